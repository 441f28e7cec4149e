"""Executions in SQL: SQLite or PostgreSQL, by the engine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, assert_never

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.chassis.database import reading
from services.sandbox.adapters.tables import execution_events, executions, from_micros, to_micros
from services.sandbox.domain import (
    ArtifactChunk,
    DroppedFile,
    Event,
    Finished,
    Output,
    Owner,
    Started,
    Status,
    Stream,
)
from services.sandbox.ports import Record, State

_PAGE = 32


class SqlExecutions:
    """`ExecutionStore` over one engine."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def claim(self, record: Record) -> Record | None:
        row = {
            "tenant": record.owner.tenant,
            "execution_id": record.execution_id,
            "user": record.owner.user,
            "digest": record.digest,
            "state": record.state.value,
            "node": record.node,
            "boot": record.boot,
            "created_at": to_micros(record.created_at),
        }
        try:
            async with self._engine.begin() as connection:
                await connection.execute(executions.insert().values(row))
        except IntegrityError:
            return await self._find(record.owner.tenant, record.execution_id)
        return None

    async def release(self, record: Record) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(
                executions.delete().where(
                    executions.c.tenant == record.owner.tenant,
                    executions.c.execution_id == record.execution_id,
                    executions.c.state == State.RUNNING.value,
                )
            )

    async def finish(self, record: Record, events: Sequence[Event], at: datetime) -> None:
        async with self._engine.begin() as connection:
            await _end(connection, record.owner.tenant, record.execution_id, events, at)

    async def replay(self, owner: Owner, execution_id: str) -> AsyncIterator[Event]:
        position = 0
        while True:
            query = (
                sa.select(execution_events)
                .where(
                    execution_events.c.tenant == owner.tenant,
                    execution_events.c.execution_id == execution_id,
                    execution_events.c.position >= position,
                )
                .order_by(execution_events.c.position)
                .limit(_PAGE)
            )
            async with reading(self._engine).connect() as connection:
                rows = (await connection.execute(query)).all()
            for row in rows:
                yield _decode(row.kind, json.loads(row.facts), row.data)
            if len(rows) < _PAGE:
                return
            position += _PAGE

    async def abandon(self, node: str, boot: str, finished: Finished, at: datetime) -> int:
        lost = sa.select(executions.c.tenant, executions.c.execution_id).where(
            executions.c.node == node, executions.c.boot != boot, executions.c.state == State.RUNNING.value
        )
        async with self._engine.begin() as connection:
            rows = (await connection.execute(lost)).all()
            for row in rows:
                await _end(connection, row.tenant, row.execution_id, [finished], at)
        return len(rows)

    async def prune(self, before: datetime) -> int:
        old = sa.select(executions.c.tenant, executions.c.execution_id).where(
            executions.c.finished_at < to_micros(before)
        )
        async with self._engine.begin() as connection:
            rows = (await connection.execute(old)).all()
            for row in rows:
                for table in (execution_events, executions):
                    await connection.execute(
                        table.delete().where(table.c.tenant == row.tenant, table.c.execution_id == row.execution_id)
                    )
        return len(rows)

    async def _find(self, tenant: str, execution_id: str) -> Record:
        query = sa.select(executions).where(executions.c.tenant == tenant, executions.c.execution_id == execution_id)
        async with reading(self._engine).connect() as connection:
            row = (await connection.execute(query)).one()
        return Record(
            execution_id=row.execution_id,
            owner=Owner(tenant=row.tenant, user=row.user),
            digest=row.digest,
            state=State(row.state),
            node=row.node,
            boot=row.boot,
            created_at=from_micros(row.created_at),
        )


async def _end(
    connection: AsyncConnection, tenant: str, execution_id: str, events: Sequence[Event], at: datetime
) -> None:
    rows = []
    for position, event in enumerate(events):
        kind, facts, data = _encode(event)
        key = {"tenant": tenant, "execution_id": execution_id, "position": position}
        rows.append({**key, "kind": kind, "facts": json.dumps(facts), "data": data})
    await connection.execute(execution_events.insert(), rows)
    await connection.execute(
        executions.update()
        .where(executions.c.tenant == tenant, executions.c.execution_id == execution_id)
        .values(state=State.FINISHED.value, finished_at=to_micros(at))
    )


def _encode(event: Event) -> tuple[str, dict[str, Any], bytes]:
    match event:
        case Started():
            return "started", {"warm": event.warm, "queued": event.queued}, b""
        case Output():
            return event.stream.value, {"sequence": event.sequence}, event.data
        case ArtifactChunk():
            return "artifact", {"name": event.name, "last": event.last}, event.data
        case Finished():
            facts: dict[str, Any] = {
                "status": event.status.value,
                "exit_code": event.exit_code,
                "cpu": event.cpu,
                "wall": event.wall,
                "peak_memory_bytes": event.peak_memory_bytes,
                "stdout_truncated": event.stdout_truncated,
                "stderr_truncated": event.stderr_truncated,
                "dropped": [[file.name, file.reason] for file in event.dropped],
                "state_lost": event.state_lost,
                "detail": event.detail,
            }
            return "finished", facts, b""
        case _:
            assert_never(event)


def _decode(kind: str, facts: dict[str, Any], data: bytes) -> Event:
    match kind:
        case "started":
            return Started(**facts)
        case "stdout" | "stderr":
            return Output(stream=Stream(kind), sequence=facts["sequence"], data=data)
        case "artifact":
            return ArtifactChunk(name=facts["name"], data=data, last=facts["last"])
        case "finished":
            dropped = tuple(DroppedFile(name=name, reason=reason) for name, reason in facts.pop("dropped"))
            return Finished(**{**facts, "status": Status(facts["status"]), "dropped": dropped})
        case _:
            raise ValueError(f"the database holds an event of unknown kind '{kind}'")
