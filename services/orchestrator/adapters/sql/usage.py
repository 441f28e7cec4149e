"""Quotas: reserved when a run is admitted, settled when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, bindparam, case, cast, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.clock import Clock
from services.chassis.database import SqlConnection, aside
from services.orchestrator.adapters.sql.dialect import serialize, upsert
from services.orchestrator.adapters.sql.tables import consumption, quotas
from services.orchestrator.adapters.sql.transactions import looking, writing
from services.orchestrator.domain.messages import Usage
from services.orchestrator.domain.run import NewRun, Run
from services.orchestrator.domain.usage import WINDOW, Consumption, Quota, QuotaExceeded, QuotaScope, UsageDay

_TOKENS = case(
    (consumption.c.settled, consumption.c.input_tokens + consumption.c.output_tokens),
    else_=consumption.c.reserved_tokens,
)

_INSERT = insert(consumption)
_SETTLE = (
    update(consumption)
    .where(consumption.c.run_id == bindparam("key"))
    .values(
        settled=True,
        input_tokens=bindparam("input"),
        output_tokens=bindparam("output"),
        cost_micros=bindparam("cost"),
    )
)
_QUOTAS = select(quotas).where(quotas.c.tenant == bindparam("tenant"))


async def reserve(connection: SqlConnection, new: NewRun, now: datetime) -> None:
    """Count the run against every quota that applies, or raise QuotaExceeded. Admissions of one tenant pass in turn."""
    run = new.run
    limits = await _limits(connection, run, new.key_id)
    if limits:
        await serialize(connection, f"quota:{run.tenant}")
        for quota in limits:
            await _check(connection, run, new, quota, now)
    await connection.execute(
        _INSERT,
        {
            "run_id": run.run_id,
            "tenant": run.tenant,
            "user_id": run.user,
            "key_id": new.key_id,
            "model": run.model,
            "started_at": now,
            "settled": False,
            "reserved_tokens": new.reserved_tokens,
            "input_tokens": 0,
            "output_tokens": 0,
            "cost_micros": 0,
        },
    )


async def recheck(connection: SqlConnection, run: Run, key_id: str, now: datetime) -> None:
    """Raise QuotaExceeded when a run that was admitted stands above a quota by now, its own reservation included."""
    for quota in await _limits(connection, run, key_id):
        whose = _whose(quota, run, key_id)
        used = await _consumed(connection, whose, now)
        for measure, limit, spent in (
            ("runs", quota.runs, used.runs),
            ("tokens", quota.tokens, used.tokens),
            ("cost_micros", quota.cost_micros, used.cost_micros),
        ):
            if limit is not None and spent > limit:
                raise QuotaExceeded(quota.scope, measure, limit, spent, await _free_again(connection, whose, now))


async def settle(connection: SqlConnection, run_id: str, usage: Usage) -> None:
    """Replace a run's reservation by what it used."""
    await connection.execute(
        _SETTLE,
        {
            "key": run_id,
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cost": usage.cost_micros,
        },
    )


async def _limits(connection: SqlConnection, run: Run, key_id: str) -> list[Quota]:
    """Return the quotas that bind this run: for each scope the subject's own, else the scope's default."""
    subjects = {QuotaScope.TENANT: run.tenant, QuotaScope.USER: run.user, QuotaScope.KEY: key_id}
    found: dict[QuotaScope, Quota] = {}
    rows = await connection.execute(_QUOTAS, {"tenant": run.tenant})
    for row in rows:
        quota = _quota(row)
        subject = subjects[quota.scope]
        if subject and (quota.subject == subject or (quota.subject == "" and quota.scope not in found)):
            found[quota.scope] = quota
    return list(found.values())


async def _check(connection: SqlConnection, run: Run, new: NewRun, quota: Quota, now: datetime) -> None:
    whose = _whose(quota, run, new.key_id)
    used = await _consumed(connection, whose, now)
    for measure, limit, wanted, spent in (
        ("runs", quota.runs, 1, used.runs),
        ("tokens", quota.tokens, max(new.reserved_tokens, 1), used.tokens),
        ("cost_micros", quota.cost_micros, 1, used.cost_micros),
    ):
        if limit is not None and spent + wanted > limit:
            raise QuotaExceeded(quota.scope, measure, limit, spent, await _free_again(connection, whose, now))


async def _free_again(connection: SqlConnection, whose: Any, now: datetime) -> float:
    """Return in how many seconds the oldest use leaves the window."""
    oldest = await connection.scalar(
        select(func.min(consumption.c.started_at)).where(whose, consumption.c.started_at > now - WINDOW)
    )
    seconds = (oldest + WINDOW - now).total_seconds() if oldest else WINDOW.total_seconds()
    return max(seconds, 1.0)


def _whose(quota: Quota, run: Run, key_id: str) -> Any:
    return _subject(quota.scope, run.tenant, {QuotaScope.USER: run.user, QuotaScope.KEY: key_id}.get(quota.scope))


def _subject(scope: QuotaScope, tenant: str, subject: str | None) -> Any:
    whose = consumption.c.tenant == tenant
    match scope:
        case QuotaScope.TENANT:
            return whose
        case QuotaScope.USER:
            return whose & (consumption.c.user_id == subject)
        case QuotaScope.KEY:
            return whose & (consumption.c.key_id == subject)


async def _consumed(connection: SqlConnection, whose: Any, now: datetime) -> Consumption:
    row = (
        await connection.execute(
            select(
                func.count().label("runs"),
                func.coalesce(func.sum(_TOKENS), 0).label("tokens"),
                func.coalesce(func.sum(consumption.c.cost_micros), 0).label("cost"),
            ).where(whose, consumption.c.started_at > now - WINDOW)
        )
    ).one()
    return Consumption(runs=row.runs, tokens=int(row.tokens), cost_micros=int(row.cost))


def _quota(row: Any) -> Quota:
    return Quota(
        scope=QuotaScope(row.scope),
        subject=row.subject,
        runs=row.runs,
        tokens=row.tokens,
        cost_micros=row.cost_micros,
    )


class SqlUsage:
    """Quotas and consumption of tenants."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def set_quota(self, tenant: str, quota: Quota) -> None:
        """Set the caps of one subject; a quota without caps is removed."""
        async with writing(self._engine) as connection:
            if quota.runs is quota.tokens is quota.cost_micros is None:
                key = (
                    (quotas.c.tenant == tenant)
                    & (quotas.c.scope == quota.scope.value)
                    & (quotas.c.subject == quota.subject)
                )
                await connection.execute(delete(quotas).where(key))
                return
            statement = upsert(connection, quotas, ("tenant", "scope", "subject"), ("runs", "tokens", "cost_micros"))
            await connection.execute(
                statement.values(
                    tenant=tenant,
                    scope=quota.scope.value,
                    subject=quota.subject,
                    runs=quota.runs,
                    tokens=quota.tokens,
                    cost_micros=quota.cost_micros,
                )
            )

    async def quotas(self, tenant: str) -> Sequence[Quota]:
        """Return the tenant's quotas by scope and subject."""
        async with looking(self._engine) as connection:
            rows = await connection.execute(
                select(quotas).where(quotas.c.tenant == tenant).order_by(quotas.c.scope, quotas.c.subject)
            )
            return [_quota(row) for row in rows]

    async def consumed(self, tenant: str, scope: QuotaScope, subject: str = "") -> Consumption:
        """Return what `subject` (ignored for the tenant itself) used in the last 24 hours, reservations included."""
        async with looking(self._engine) as connection:
            return await _consumed(connection, _subject(scope, tenant, subject), self._clock.now())

    async def forget(self, before: datetime) -> int:
        """Drop what runs that started before used, and return how many runs; keep more than WINDOW."""
        async with writing(aside(self._engine)) as connection:
            result = await connection.execute(delete(consumption).where(consumption.c.started_at < before))
            return result.rowcount

    async def by_day(self, tenant: str, *, since: datetime, user: str = "") -> Sequence[UsageDay]:
        """Return settled use since `since` by UTC day, user and model, oldest first; of one user when given."""
        # Rows keep microseconds; integer division by a day's worth gives the day in both databases.
        day = (cast(consumption.c.started_at, BigInteger) // 86_400_000_000).label("day")
        kept = (consumption.c.tenant == tenant) & consumption.c.settled & (consumption.c.started_at >= since)
        if user:
            kept &= consumption.c.user_id == user
        statement = (
            select(
                day,
                consumption.c.user_id,
                consumption.c.model,
                func.count().label("runs"),
                func.sum(consumption.c.input_tokens).label("input_tokens"),
                func.sum(consumption.c.output_tokens).label("output_tokens"),
                func.sum(consumption.c.cost_micros).label("cost_micros"),
            )
            .where(kept)
            .group_by(day, consumption.c.user_id, consumption.c.model)
            .order_by(day, consumption.c.user_id, consumption.c.model)
        )
        async with looking(aside(self._engine)) as connection:
            return [
                UsageDay(
                    day=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=int(row.day)),
                    user=row.user_id,
                    model=row.model,
                    runs=row.runs,
                    input_tokens=int(row.input_tokens),
                    output_tokens=int(row.output_tokens),
                    cost_micros=int(row.cost_micros),
                )
                for row in await connection.execute(statement)
            ]
