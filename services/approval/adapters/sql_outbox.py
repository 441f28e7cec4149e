"""The webhook outbox in SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import select, tuple_
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from services.approval.adapters.database import Database
from services.approval.adapters.rows import approval_of, delivery_of, delivery_row, micros
from services.approval.adapters.sql_changes import (
    behind,
    changes_after,
    lock_cursor,
    move_cursor,
    open_cursor,
)
from services.approval.adapters.tables import approvals, deliveries
from services.approval.domain import Approval, Change
from services.approval.ports import Delivery
from services.chassis.database import SqlConnection

FOLLOWER = "webhooks"
Columns = deliveries.c


class SqlOutbox:
    """`Outbox` over one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self) -> None:
        async with self._database.write() as connection:
            await open_cursor(connection, FOLLOWER, at_end=True)

    async def enqueue(self, limit: int, compose: Callable[[Change, Approval | None], Sequence[Delivery]]) -> int:
        async with self._database.read() as connection:
            if not await behind(connection, FOLLOWER):
                return 0
        async with self._database.write() as connection:
            cursor = await lock_cursor(connection, FOLLOWER)
            changes = await changes_after(connection, cursor, limit)
            if not changes:
                return 0
            found = await self._approvals(connection, changes)
            rows = [
                delivery_row(delivery)
                for change in changes
                for delivery in compose(change, found.get((change.subject, change.tenant)))
            ]
            if rows:
                dialect = postgresql_insert if connection.dialect.name == "postgresql" else sqlite_insert
                await connection.execute(dialect(deliveries).on_conflict_do_nothing(), rows)
            await move_cursor(connection, FOLLOWER, changes[-1].sequence)
        return len(changes)

    async def claim(self, now: datetime, until: datetime, limit: int) -> list[Delivery]:
        due = select(deliveries).where(Columns.next_at <= micros(now)).order_by(Columns.next_at).limit(limit)
        async with self._database.read() as connection:
            if (await connection.execute(due)).first() is None:
                return []
        async with self._database.write() as connection:
            rows = await connection.execute(due.with_for_update(skip_locked=True))
            claimed = [delivery_of(row) for row in rows.mappings()]
            ids = [delivery.delivery_id for delivery in claimed]
            await connection.execute(
                deliveries.update().where(Columns.delivery_id.in_(ids)).values(next_at=micros(until))
            )
        return claimed

    async def reschedule(self, delivery: Delivery, next_at: datetime, error: str) -> None:
        statement = (
            deliveries.update()
            .where(Columns.delivery_id == delivery.delivery_id)
            .values(attempts=delivery.attempts + 1, next_at=micros(next_at), error=error)
        )
        async with self._database.write() as connection:
            await connection.execute(statement)

    async def remove(self, delivery: Delivery) -> None:
        async with self._database.write() as connection:
            await connection.execute(deliveries.delete().where(Columns.delivery_id == delivery.delivery_id))

    async def _approvals(self, connection: SqlConnection, changes: Sequence[Change]) -> dict[tuple[str, str], Approval]:
        keys = {(change.subject, change.tenant) for change in changes}
        query = select(approvals).where(tuple_(approvals.c.approval_id, approvals.c.tenant).in_(keys))
        records = [approval_of(row) for row in (await connection.execute(query)).mappings()]
        return {(record.approval_id, record.tenant): record for record in records}
