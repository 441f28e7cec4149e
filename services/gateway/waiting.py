"""Work for a client that waits: given up when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import grpc
from fastapi import Request

from services.chassis.errors import ServiceError
from services.gateway.projections.native import is_terminal, kind_of
from services.gateway.streams import Batches

T = TypeVar("T")


class ClientLeft(ServiceError):
    """The caller gave up."""

    code = grpc.StatusCode.CANCELLED
    reason = "CANCELLED"


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns, or cancel it and raise ClientLeft when the client leaves first. Reads no body."""
    task = asyncio.ensure_future(work)
    left = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait([task, left], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientLeft("the client closed the connection")
    finally:
        for each in (task, left):
            each.cancel()
        await asyncio.gather(task, left, return_exceptions=True)


async def abandoned(batches: Batches, on_left: Callable[[str], None]) -> Batches:
    """Yield `batches`; when the reader stops before the run ended or paused, call `on_left` with the run's id."""
    run_id, settled = "", False
    try:
        async with aclosing(batches):
            async for batch in batches:
                run_id = batch[-1].run_id
                settled = is_terminal(batch[-1]) or kind_of(batch[-1]) == "run_paused"
                yield batch
    finally:
        if run_id and not settled:
            on_left(run_id)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
