"""Records in SQL, SQLite or PostgreSQL by the engine's URL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Select, and_, bindparam, func, insert, or_, select, tuple_, union
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from services.approval.adapters.database import Database
from services.approval.adapters.rows import approval_of, approval_row, micros, moment, rule_row
from services.approval.adapters.sql_changes import record
from services.approval.adapters.tables import allow_rules, approvals
from services.approval.changes import settled
from services.approval.domain import AllowRule, Approval, Change, State
from services.approval.ports import Bell, Filter, Place, Waiting

Columns = approvals.c

_ADD = {
    "postgresql": postgresql_insert(approvals).on_conflict_do_nothing(),
    "sqlite": sqlite_insert(approvals).on_conflict_do_nothing(),
}
_FIND = select(approvals).where(Columns.approval_id.in_(bindparam("ids", expanding=True)))
_FIND_OF_TENANT = _FIND.where(Columns.tenant == bindparam("of"))
_REPLACE = approvals.update().where(
    Columns.approval_id == bindparam("key"),
    Columns.tenant == bindparam("of"),
    Columns.state == State.PENDING,
    Columns.version == bindparam("seen"),
)


class SqlApprovals:
    """`Approvals` over one database; rings `bell` after each commit that changed something."""

    def __init__(self, database: Database, bell: Bell) -> None:
        self._database = database
        self._bell = bell

    async def add(self, approval: Approval, changes: Sequence[Change]) -> bool:
        async with self._database.write() as connection:
            if (await connection.execute(_ADD[connection.dialect.name], approval_row(approval))).rowcount != 1:
                return False
            await record(connection, changes)
        self._bell.ring()
        return True

    async def find(self, tenant: str | None, ids: Sequence[str]) -> list[Approval]:
        query = _FIND if tenant is None else _FIND_OF_TENANT
        async with self._database.read() as connection:
            rows = await connection.execute(query, {"ids": list(ids), "of": tenant})
            return [approval_of(row) for row in rows.mappings()]

    async def replace(
        self, before: Approval, after: Approval, changes: Sequence[Change], rule: AllowRule | None = None
    ) -> bool:
        # The one conditional UPDATE that decides every race: only the first finds the version that it read.
        seen = {"key": before.approval_id, "of": before.tenant, "seen": before.version}
        async with self._database.write() as connection:
            if (await connection.execute(_REPLACE, {**approval_row(after), **seen})).rowcount != 1:
                return False
            if rule is not None:
                await connection.execute(insert(allow_rules).values(rule_row(rule)))
            await record(connection, changes)
        self._bell.ring()
        return True

    async def expire(
        self, now: datetime, limit: int, *, tenant: str | None = None, ids: Sequence[str] | None = None
    ) -> list[Approval]:
        due = _due(now, limit, tenant, ids)
        async with self._database.read() as connection:
            # Most sweeps find nothing; they must not take the write lock.
            if (await connection.execute(due.limit(1))).first() is None:
                return []
        async with self._database.write() as connection:
            # A sweep passes over what another replica holds; whoever asks for a record must wait for its end.
            locked = due.with_for_update(skip_locked=ids is None)
            keys = [tuple(row) for row in await connection.execute(locked)]
            statement = (
                approvals.update()
                .where(tuple_(Columns.approval_id, Columns.tenant).in_(keys), Columns.state == State.PENDING)
                .values(state=State.EXPIRED, decided_at=Columns.deadline, version=Columns.version + 1)
                .returning(*Columns)
            )
            expired = [approval_of(row) for row in (await connection.execute(statement)).mappings()]
            await record(connection, [settled(approval) for approval in expired])
        self._bell.ring()
        return expired

    async def page(self, wanted: Filter, after: Place | None, limit: int) -> list[Approval]:
        """Read one index range for each audience and state, keys only, each at most `limit` long, and merge them.

        One condition `state IN (…) AND (mine OR my group's)` would make the database sort or scan all that match.
        """
        arms = [_arm(condition, after, limit) for condition in _ranges(wanted)]
        merged = union(*(select(arm.subquery()) for arm in arms)).subquery()
        newest = merged.c.requested_at.desc(), merged.c.approval_id.desc()
        keys = select(merged).order_by(*newest).limit(limit).subquery()
        query = (
            select(approvals)
            .join(keys, and_(Columns.approval_id == keys.c.approval_id, Columns.tenant == keys.c.tenant))
            .order_by(Columns.requested_at.desc(), Columns.approval_id.desc())
        )
        async with self._database.read() as connection:
            return [approval_of(row) for row in (await connection.execute(query)).mappings()]

    async def waiting(self) -> Waiting:
        query = select(func.count(), func.min(Columns.requested_at)).where(Columns.state == State.PENDING)
        async with self._database.read() as connection:
            count, since = (await connection.execute(query)).one()
        return Waiting(count=count, since=None if since is None else moment(since))


def _due(now: datetime, limit: int, tenant: str | None, ids: Sequence[str] | None) -> Select[tuple[str, str]]:
    query = select(Columns.approval_id, Columns.tenant).where(
        Columns.state == State.PENDING, Columns.deadline <= micros(now)
    )
    if tenant is not None:
        query = query.where(Columns.tenant == tenant)
    if ids is not None:
        query = query.where(Columns.approval_id.in_(ids))
    return query.order_by(Columns.deadline).limit(limit)


def _ranges(wanted: Filter) -> Iterator[ColumnElement[bool]]:
    audience = wanted.audience
    whose: list[ColumnElement[bool]] = [Columns.tenant == audience.tenant]
    if audience.user is not None:
        whose = [
            and_(Columns.tenant == audience.tenant, Columns.requested_by == audience.user),
            *(
                and_(Columns.tenant == audience.tenant, Columns.group_name == group, Columns.group_name != "")
                for group in audience.groups
            ),
        ]
    narrowed: list[ColumnElement[bool]] = []
    if wanted.run_id:
        narrowed.append(Columns.run_id == wanted.run_id)
    if wanted.tool:
        narrowed.append(Columns.tool == wanted.tool)
    if wanted.kind is not None:
        narrowed.append(Columns.kind == wanted.kind)
    for people in whose:
        for state in sorted(wanted.states or set(State)):
            yield and_(people, Columns.state == state, *narrowed)


def _arm(condition: ColumnElement[bool], after: Place | None, limit: int) -> Select[tuple[str, str, int]]:
    query = select(Columns.approval_id, Columns.tenant, Columns.requested_at).where(condition)
    if after is not None:
        at = micros(after.at)
        # The first condition bounds the index range; the second is exact among equal times.
        query = query.where(Columns.requested_at <= at, or_(Columns.requested_at < at, Columns.approval_id < after.id))
    return query.order_by(Columns.requested_at.desc(), Columns.approval_id.desc()).limit(limit)
