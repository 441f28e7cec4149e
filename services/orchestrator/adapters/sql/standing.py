"""Whether runs that waited may go on: keys that were revoked, and quotas that are used up by now."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Column, String, Table, bindparam, delete, select
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.clock import Clock
from services.orchestrator.adapters.sql.dialect import Instant, insert_new
from services.orchestrator.adapters.sql.tables import consumption, metadata
from services.orchestrator.adapters.sql.transactions import looking, writing
from services.orchestrator.adapters.sql.usage import recheck
from services.orchestrator.domain.run import KeyEnded, Run

ended_keys = Table(
    "ended_keys",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("key_id", String(128), primary_key=True),
    Column("ended_at", Instant, nullable=False),
)

_KEY = select(consumption.c.key_id).where(consumption.c.run_id == bindparam("run_id"))
_ENDED = select(ended_keys.c.key_id).where(
    ended_keys.c.tenant == bindparam("tenant"), ended_keys.c.key_id == bindparam("key_id")
)


class SqlStanding:
    """Implements the Standing port over the orchestrator's own rows."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def check(self, run: Run) -> None:
        """Raise KeyEnded or QuotaExceeded when a run that waited may not go on."""
        async with looking(self._engine) as connection:
            key_id = await connection.scalar(_KEY, {"run_id": run.run_id})
            ended = {"tenant": run.tenant, "key_id": key_id}
            if key_id and await connection.scalar(_ENDED, ended) is not None:
                raise KeyEnded(run.run_id, key_id)
            await recheck(connection, run, key_id or "", self._clock.now())

    async def end_key(self, tenant: str, key_id: str) -> None:
        """Remember that a key was revoked; again is once."""
        async with writing(self._engine) as connection:
            statement = insert_new(connection, ended_keys)
            await connection.execute(statement.values(tenant=tenant, key_id=key_id, ended_at=self._clock.now()))

    async def forget_keys(self, before: datetime) -> int:
        """Forget keys that ended before; keep them as long as runs."""
        async with writing(self._engine) as connection:
            result = await connection.execute(delete(ended_keys).where(ended_keys.c.ended_at < before))
            return result.rowcount
