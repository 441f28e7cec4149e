"""The log of changes in SQL: written inside the writer's transaction, read by followers in the order of commits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import bindparam, func, insert, select, text
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from services.approval.adapters.database import Database
from services.approval.adapters.rows import change_of, change_row, micros
from services.approval.adapters.tables import changes, cursors
from services.approval.domain import Change
from services.chassis.database import SqlConnection

CHANNEL = "proctor_approval"
# Any constant that nothing else in this database locks.
ORDER_LOCK = 7526762

# Built once: to build a statement costs more than to run it.
_INSERT = insert(changes)
_AFTER = (
    select(changes).where(changes.c.sequence > bindparam("after")).order_by(changes.c.sequence).limit(bindparam("most"))
)
_CURSOR = select(cursors.c.sequence).where(cursors.c.follower == bindparam("key"))
_LOCK = _CURSOR.with_for_update()
_MOVE = cursors.update().where(cursors.c.follower == bindparam("key")).values(sequence=bindparam("to"))
_BEHIND = select(changes.c.sequence).where(changes.c.sequence > func.coalesce(_CURSOR.scalar_subquery(), 0)).limit(1)
_OPEN = {
    "postgresql": postgresql_insert(cursors).on_conflict_do_nothing(),
    "sqlite": sqlite_insert(cursors).on_conflict_do_nothing(),
}


async def record(connection: SqlConnection, made: Sequence[Change]) -> None:
    """Write `made` as the last statement of the caller's transaction.

    Sequences must appear in the order of commits, or a follower would pass over one that commits late. SQLite has one
    writer anyway; on PostgreSQL a lock held from here to the commit orders them, and NOTIFY wakes the other replicas.
    """
    if not made:
        return
    if connection.dialect.name == "postgresql":
        await connection.execute(text(f"SELECT pg_advisory_xact_lock({ORDER_LOCK})"))
        await connection.execute(text(f"SELECT pg_notify('{CHANNEL}', '')"))
    await connection.execute(_INSERT, [change_row(change) for change in made])


async def behind(connection: SqlConnection, follower: str) -> bool:
    """Return whether there are changes that `follower` has not worked off. Takes no lock: most wakes find nothing."""
    return (await connection.execute(_BEHIND, {"key": follower})).first() is not None


async def open_cursor(connection: SqlConnection, follower: str, *, at_end: bool) -> None:
    """Give `follower` a cursor unless it has one: before the first change, or after the last."""
    end = (await connection.execute(select(func.max(changes.c.sequence)))).scalar_one() if at_end else 0
    await connection.execute(_OPEN[connection.dialect.name], {"follower": follower, "sequence": end or 0})


async def lock_cursor(connection: SqlConnection, follower: str) -> int:
    """Return how far `follower` has come, and keep other replicas' followers out until the transaction ends."""
    await open_cursor(connection, follower, at_end=False)
    return int((await connection.execute(_LOCK, {"key": follower})).scalar_one())


async def move_cursor(connection: SqlConnection, follower: str, sequence: int) -> None:
    """Say that `follower` has worked off every change up to `sequence`."""
    await connection.execute(_MOVE, {"key": follower, "to": sequence})


async def changes_after(connection: SqlConnection, sequence: int, limit: int) -> list[Change]:
    """Return up to `limit` changes after `sequence`."""
    rows = await connection.execute(_AFTER, {"after": sequence, "most": limit})
    return [change_of(row) for row in rows.mappings()]


class SqlChangeLog:
    """`ChangeLog` on SQLite or PostgreSQL; what one of `followers` has not worked off is not pruned."""

    def __init__(self, database: Database, followers: Sequence[str]) -> None:
        self._database = database
        self._followers = followers

    async def latest(self) -> int:
        async with self._database.read() as connection:
            last = (await connection.execute(select(func.max(changes.c.sequence)))).scalar_one()
        return int(last or 0)

    async def after(self, sequence: int, limit: int) -> list[Change]:
        async with self._database.read() as connection:
            return await changes_after(connection, sequence, limit)

    async def prune(self, before: datetime) -> int:
        followed = select(cursors.c.sequence).where(cursors.c.follower.in_(self._followers))
        async with self._database.write() as connection:
            places = [int(row.sequence) for row in await connection.execute(followed)]
            worked_off = min(places) if len(places) == len(self._followers) else 0
            result = await connection.execute(
                changes.delete().where(changes.c.sequence <= worked_off, changes.c.at < micros(before))
            )
        return result.rowcount
