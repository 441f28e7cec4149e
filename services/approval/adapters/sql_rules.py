"""Allow rules in SQL."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import and_, insert, or_, select

from services.approval.adapters.database import Database
from services.approval.adapters.rows import micros, rule_of, rule_row
from services.approval.adapters.sql_changes import record
from services.approval.adapters.tables import allow_rules
from services.approval.domain import AllowRule, Change
from services.approval.ports import Bell, Place

Columns = allow_rules.c
# One request looks at no more than this many of a user's rules for one tool, newest first.
MAX_CANDIDATES = 200


class SqlRules:
    """`Rules` over one database."""

    def __init__(self, database: Database, bell: Bell) -> None:
        self._database = database
        self._bell = bell

    async def add(self, rule: AllowRule, change: Change) -> None:
        async with self._database.write() as connection:
            await connection.execute(insert(allow_rules).values(rule_row(rule)))
            await record(connection, [change])
        self._bell.ring()

    async def candidates(self, tenant: str, user: str, tool: str, now: datetime) -> list[AllowRule]:
        # The only prefixes that may name it: its own, each with a star. An index finds those; LIKE would read them all.
        names = [tool, *(f"{tool[:length]}*" for length in range(len(tool) + 1))]
        lasting = or_(Columns.expires_at.is_(None), Columns.expires_at > micros(now))
        query = (
            select(allow_rules)
            .where(and_(Columns.tenant == tenant, Columns.user_name == user, Columns.tool.in_(names), lasting))
            .order_by(Columns.created_at.desc())
            .limit(MAX_CANDIDATES)
        )
        async with self._database.read() as connection:
            return [rule_of(row) for row in (await connection.execute(query)).mappings()]

    async def page(self, tenant: str, user: str, after: Place | None, limit: int) -> list[AllowRule]:
        query = select(allow_rules).where(Columns.tenant == tenant, Columns.user_name == user)
        if after is not None:
            at = micros(after.at)
            query = query.where(Columns.created_at <= at, or_(Columns.created_at < at, Columns.rule_id < after.id))
        query = query.order_by(Columns.created_at.desc(), Columns.rule_id.desc()).limit(limit)
        async with self._database.read() as connection:
            return [rule_of(row) for row in (await connection.execute(query)).mappings()]

    async def find(self, tenant: str, user: str, rule_id: str) -> AllowRule | None:
        query = select(allow_rules).where(
            Columns.tenant == tenant, Columns.user_name == user, Columns.rule_id == rule_id
        )
        async with self._database.read() as connection:
            row = (await connection.execute(query)).mappings().first()
        return None if row is None else rule_of(row)

    async def remove(self, rule: AllowRule, change: Change) -> bool:
        statement = allow_rules.delete().where(Columns.tenant == rule.tenant, Columns.rule_id == rule.rule_id)
        async with self._database.write() as connection:
            if (await connection.execute(statement)).rowcount != 1:
                return False
            await record(connection, [change])
        self._bell.ring()
        return True
