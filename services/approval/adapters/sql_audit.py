"""The audit log in SQL. Triggers of the schema refuse to change or delete an entry."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import bindparam, insert, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from services.approval.adapters.database import Database
from services.approval.adapters.rows import entry_of, entry_row
from services.approval.adapters.sql_changes import behind, changes_after, lock_cursor, move_cursor
from services.approval.adapters.tables import audit_entries, audit_heads
from services.approval.audit import EMPTY
from services.approval.domain import Change
from services.approval.ports import AuditEntry, AuditHead
from services.chassis.database import SqlConnection

FOLLOWER = "audit"

_INSERT = insert(audit_entries)
_HEADS = select(audit_heads).where(audit_heads.c.tenant.in_(bindparam("tenants", expanding=True)))
_WRITE_HEADS = {
    name: statement.on_conflict_do_update(
        index_elements=[audit_heads.c.tenant],
        set_={"sequence": statement.excluded.sequence, "hash": statement.excluded.hash},
    )
    for name, statement in (("postgresql", postgresql_insert(audit_heads)), ("sqlite", sqlite_insert(audit_heads)))
}


class SqlAuditLog:
    """`AuditLog` over one database. The follower's cursor, locked first, makes one appender of all replicas."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, limit: int, link: Callable[[AuditHead, Change], AuditEntry]) -> int:
        async with self._database.read() as connection:
            if not await behind(connection, FOLLOWER):
                return 0
        async with self._database.write() as connection:
            cursor = await lock_cursor(connection, FOLLOWER)
            changes = await changes_after(connection, cursor, limit)
            if not changes:
                return 0
            heads = await self._heads(connection, {change.tenant for change in changes})
            entries: list[AuditEntry] = []
            for change in changes:
                entry = link(heads.get(change.tenant, EMPTY), change)
                heads[change.tenant] = AuditHead(sequence=entry.sequence, hash=entry.hash)
                entries.append(entry)
            await connection.execute(_INSERT, [entry_row(entry) for entry in entries])
            await self._write_heads(connection, heads)
            await move_cursor(connection, FOLLOWER, changes[-1].sequence)
        return len(changes)

    async def head(self, tenant: str) -> AuditHead:
        async with self._database.read() as connection:
            return (await self._heads(connection, {tenant})).get(tenant, EMPTY)

    async def read(self, tenant: str, after: int, limit: int, subject: str = "") -> list[AuditEntry]:
        columns = audit_entries.c
        query = select(audit_entries).where(columns.tenant == tenant, columns.sequence > after)
        if subject:
            query = query.where(columns.subject == subject)
        query = query.order_by(columns.sequence).limit(limit)
        async with self._database.read() as connection:
            return [entry_of(row) for row in (await connection.execute(query)).mappings()]

    async def _heads(self, connection: SqlConnection, tenants: set[str]) -> dict[str, AuditHead]:
        rows = await connection.execute(_HEADS, {"tenants": list(tenants)})
        return {row["tenant"]: AuditHead(sequence=row["sequence"], hash=row["hash"]) for row in rows.mappings()}

    async def _write_heads(self, connection: SqlConnection, heads: dict[str, AuditHead]) -> None:
        rows = [{"tenant": tenant, "sequence": head.sequence, "hash": head.hash} for tenant, head in heads.items()]
        await connection.execute(_WRITE_HEADS[connection.dialect.name], rows)
