"""Callers that are cancelled inside a transaction leave nothing behind in SQLite."""

from __future__ import annotations

import asyncio
import random

from sqlalchemy import Column, Integer, MetaData, Table, func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.database import open_engine

counts = Table("counts", MetaData(), Column("id", Integer, primary_key=True), Column("n", Integer, nullable=False))


async def add_two(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        for n in range(2):
            # RETURNING leaves a statement unfinished when its reader is cancelled.
            (await connection.execute(insert(counts).values(n=n).returning(counts))).one()


async def test_a_cancelled_transaction_neither_lasts_nor_takes_part(sqlite_url: str) -> None:
    engine = open_engine(sqlite_url)
    async with engine.begin() as connection:
        await connection.run_sync(counts.metadata.create_all)
    chance = random.Random(3)
    for _ in range(40):
        cancelled = [asyncio.create_task(add_two(engine)) for _ in range(4)]
        await asyncio.sleep(chance.uniform(0, 0.03))
        for task in cancelled:
            task.cancel()
        await asyncio.wait(cancelled)
        # A transaction left open would hold SQLite's write lock, for which this waits 5 s and fails.
        async with asyncio.timeout(4):
            await add_two(engine)
    async with engine.connect() as connection:
        kept = (await connection.execute(select(counts.c.n, func.count()).group_by(counts.c.n))).all()
        rows = {row[0]: row[1] for row in kept}
        assert rows[0] == rows[1] >= 40
    await engine.dispose()
