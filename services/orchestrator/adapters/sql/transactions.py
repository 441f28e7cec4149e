"""Transactions that end, whatever becomes of their callers, and whose transient failures are told from defects."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.chassis.database import reading
from services.orchestrator.journal.ports import StoreUnavailable

T = TypeVar("T")

# Connection lost, idle too long, rolled back by the server, out of resources, lock not got, shut down by the operator.
# https://www.postgresql.org/docs/15/errcodes-appendix.html
_TRANSIENT_CLASSES = ("08", "25", "40", "53", "55", "57")


@asynccontextmanager
async def writing(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Open a transaction that commits at the end; raise StoreUnavailable when the database does not answer."""
    try:
        async with engine.begin() as connection:
            yield connection
    except (DBAPIError, OSError, TimeoutError, PoolTimeout) as error:
        if is_transient(error):
            raise StoreUnavailable("the database does not answer; try again in a moment", retry_after=1.0) from error
        raise


@asynccontextmanager
async def looking(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Open a transaction that only reads; raise StoreUnavailable as `writing` does."""
    async with writing(reading(engine)) as connection:
        yield connection


def whole(store: type[T]) -> type[T]:
    """Let every public coroutine of a store run to its end, also when its caller is cancelled in the middle.

    A cancelled aiosqlite call goes on in its thread, and what it began stays open with the write lock of the whole
    database until the connection is collected, seconds later. The caller gets its CancelledError once the transaction
    is over; a transaction is short.
    """
    for name, method in list(vars(store).items()):
        if not name.startswith("_") and inspect.iscoroutinefunction(method):
            setattr(store, name, _to_its_end(method))
    return store


def _to_its_end(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(method)
    async def run(*args: Any, **options: Any) -> Any:
        task = asyncio.create_task(method(*args, **options))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                await asyncio.wait({task})
            # Whatever came of it, the caller is no longer there to hear it.
            if not task.cancelled():
                task.exception()
            raise

    return run


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
