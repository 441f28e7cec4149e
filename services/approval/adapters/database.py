"""Transactions on the service's database, and what it means when that does not answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.database import SqlConnection, transaction
from services.chassis.errors import Unavailable
from services.chassis.turns import write_turn

RETRY_AFTER = 1.0


class Database:
    """One engine; a database that is down, busy or restarting becomes Unavailable, which callers retry."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    @property
    def is_postgresql(self) -> bool:
        """Whether it is PostgreSQL; SQLite otherwise."""
        return self._engine.dialect.name == "postgresql"

    @asynccontextmanager
    async def read(self) -> AsyncIterator[SqlConnection]:
        """Open a transaction that only reads."""
        with _told_as_unavailable():
            async with transaction(self._engine, read_only=True) as connection:
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[SqlConnection]:
        """Open a transaction that is committed at the end, or rolled back by an exception."""
        with _told_as_unavailable():
            async with write_turn(self._engine), transaction(self._engine) as connection:
                yield connection


@contextmanager
def _told_as_unavailable() -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout, OSError) as error:
        raise _unavailable() from error
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
        raise _unavailable() from error


def _unavailable() -> Unavailable:
    return Unavailable("the approval database does not answer now; try again", retry_after=RETRY_AFTER)
