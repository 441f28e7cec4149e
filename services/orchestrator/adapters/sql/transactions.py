"""Transactions whose transient failures are told apart from defects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.database import SqlConnection, transaction
from services.chassis.turns import write_turn
from services.orchestrator.journal.ports import StoreUnavailable

# Connection lost, idle too long, rolled back by the server, out of resources, lock not got, shut down by the operator.
# https://www.postgresql.org/docs/15/errcodes-appendix.html
_FAILURES = (DBAPIError, OSError, TimeoutError, PoolTimeout)
_TRANSIENT_CLASSES = ("08", "25", "40", "53", "55", "57")


@asynccontextmanager
async def writing(engine: AsyncEngine, *, urgent: bool = False, relaxed: bool = False) -> AsyncIterator[SqlConnection]:
    """Open a transaction that commits at the end; raise StoreUnavailable when the database does not answer.

    What keeps running runs alive is `urgent`: a burst of new ones must not hold it up, and it begins at once. `relaxed`
    means what it means to `transaction`.
    """
    try:
        async with (
            write_turn(engine, urgent=urgent),
            transaction(engine, relaxed=relaxed, at_once=urgent) as connection,
        ):
            yield connection
    except _FAILURES as error:
        if not is_transient(error):
            raise
        raise _away() from error


@asynccontextmanager
async def looking(engine: AsyncEngine) -> AsyncIterator[SqlConnection]:
    """Open a transaction that only reads; raise StoreUnavailable as `writing` does."""
    try:
        async with transaction(engine, read_only=True) as connection:
            yield connection
    except _FAILURES as error:
        if not is_transient(error):
            raise
        raise _away() from error


def _away() -> StoreUnavailable:
    return StoreUnavailable("the database does not answer; try again in a moment", retry_after=1.0)


def is_transient(error: BaseException) -> bool:
    """Return whether the same transaction may succeed later."""
    if not isinstance(error, DBAPIError):
        return True
    state = getattr(error.orig, "sqlstate", None) or ""
    return (
        error.connection_invalidated
        # InternalError is also asyncpg's for a connection that the server has ended, before the socket says so.
        or isinstance(error, OperationalError | InterfaceError | InternalError)
        or str(state)[:2] in _TRANSIENT_CLASSES
    )
