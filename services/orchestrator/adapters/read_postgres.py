"""A PostgreSQL database that may be read: by a role without power, in a read-only transaction with a time limit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg

from services.orchestrator.tools.sql.ports import DatabaseTerms, QueryFailed, Rows, TableShape

_log = logging.getLogger(__name__)
AT_ONCE = 4
CONNECT_SECONDS = 5.0
# Rows are fetched in this many at a time, and no further once they hold so many characters.
_BATCH = 50
_CHARACTERS = 1_000_000
_ROLE = "SELECT rolsuper OR rolcreaterole OR rolreplication FROM pg_roles WHERE rolname = current_user"
_SHAPES = """
SELECT n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND a.attnum > 0 AND NOT a.attisdropped
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%'
  AND has_column_privilege(c.oid, a.attnum, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE')
ORDER BY n.nspname, c.relname, a.attnum
"""


class PostgresDatabase:
    """Implements ReadableDatabase. Each query has a connection of its own, so that nothing of one is seen by another.

    A role that could get round the transaction (superuser, creator of roles, replication) is refused.
    """

    dialect = "postgres"

    def __init__(self, url: str, terms: DatabaseTerms) -> None:
        self._url = url
        self.terms = terms
        self._allowed = frozenset(table.lower() for table in terms.tables)
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def shapes(self) -> Sequence[TableShape]:
        async with self._reading() as connection:
            found = await connection.fetch(_SHAPES)
        tables: dict[str, list[tuple[str, str]]] = {}
        for schema, table, column, kind in found:
            name = table if schema == "public" else f"{schema}.{table}"
            if not self._allowed or {name.lower(), f"{schema}.{table}".lower()} & self._allowed:
                tables.setdefault(name, []).append((column, kind))
        return [TableShape(name=name, columns=tuple(columns)) for name, columns in tables.items()]

    async def query(self, statement: str) -> Rows:
        limit = self.terms.max_rows
        async with self._reading() as connection:
            prepared = await connection.prepare(statement)
            cursor = await prepared.cursor()
            rows: list[tuple[object, ...]] = []
            size = 0
            while len(rows) <= limit and size <= _CHARACTERS:
                batch = await cursor.fetch(min(_BATCH, limit + 1 - len(rows)))
                if not batch:
                    break
                rows += [tuple(row.values()) for row in batch]
                size += sum(len(str(value)) for row in batch for value in row.values())
            columns = tuple(attribute.name for attribute in prepared.get_attributes())
            return Rows(columns=columns, rows=tuple(rows[:limit]), more=len(rows) > limit or size > _CHARACTERS)

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[asyncpg.Connection]:
        """Yield a connection inside a read-only transaction that is rolled back. Raises QueryFailed."""
        name, seconds = self.terms.name, self.terms.seconds
        try:
            async with self._slots, asyncio.timeout(seconds + CONNECT_SECONDS):
                connection = await self._connect()
                try:
                    if await connection.fetchval(_ROLE):
                        _log.error("database '%s': its role may do more than read; give it one with SELECT only", name)
                        raise QueryFailed(f"the database '{name}' is set up with a role that may do more than read")
                    transaction = connection.transaction(isolation="repeatable_read", readonly=True)
                    await transaction.start()
                    yield connection
                    await transaction.rollback()
                finally:
                    connection.terminate()
        except asyncpg.QueryCanceledError:
            raise QueryFailed(f"the query took longer than {seconds:g} s and was stopped; ask for less") from None
        except asyncpg.PostgresError as error:
            raise QueryFailed(f"the database refused: {error.message or type(error).__name__}") from None
        except (OSError, TimeoutError, asyncpg.InterfaceError) as error:
            _log.warning("database '%s' does not answer: %s", name, type(error).__name__)
            raise QueryFailed(f"the database '{name}' does not answer") from None

    async def _connect(self) -> asyncpg.Connection:
        milliseconds = str(int(self.terms.seconds * 1000))
        return await asyncpg.connect(
            self._url,
            timeout=CONNECT_SECONDS,
            statement_cache_size=0,
            server_settings={
                "application_name": "proctor query_sql",
                "default_transaction_read_only": "on",
                "statement_timeout": milliseconds,
                "idle_in_transaction_session_timeout": milliseconds,
            },
        )
