"""Every call ends: at the client's deadline, or at the service's own limit when that comes first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self

import grpc

from services.chassis.errors import ServiceError
from services.chassis.interceptors.chain import Context, Method, Stream, Unary


class DeadlineExceeded(ServiceError):
    """The call took longer than its deadline."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    reason = "DEADLINE_EXCEEDED"


class Deadline:
    """Cuts calls off after `unary` or `stream` seconds, or earlier if the client asked for that."""

    def __init__(self, *, unary: float, stream: float) -> None:
        self._unary = unary
        self._stream = stream

    def unary(self, method: Method, proceed: Unary) -> Unary:
        async def serve(request: Any, context: Context) -> Any:
            limit = effective(self._unary, context)
            async with Alarm(limit) as alarm:
                try:
                    return await proceed(request, context)
                except asyncio.CancelledError:
                    alarm.raise_if_rung(method)
                    raise

        return serve

    def stream(self, method: Method, proceed: Stream) -> Stream:
        async def serve(request: Any, context: Context) -> AsyncGenerator[Any, None]:
            limit = effective(self._stream, context)
            async with Alarm(limit) as alarm:
                try:
                    async with aclosing(proceed(request, context)) as responses:
                        async for response in responses:
                            yield response
                except (asyncio.CancelledError, GeneratorExit):
                    # asyncio.timeout would miss the second: it rings while the chain writes and we stand in `yield`.
                    alarm.raise_if_rung(method)
                    raise

        return serve


class Alarm:
    """Cancels the current task after `seconds`, and can tell its own cancellation from anybody else's."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rung = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        self._handle = asyncio.get_running_loop().call_later(self._seconds, self._ring)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()

    def _ring(self) -> None:
        if self._task is not None:
            self._rung = True
            self._task.cancel()

    def raise_if_rung(self, method: Method) -> None:
        """Raise DeadlineExceeded in place of the cancellation that this alarm caused."""
        if self._rung and self._task is not None:
            self._task.uncancel()
            raise DeadlineExceeded(f"{method.name} took longer than its deadline of {self._seconds:.3g} s") from None


def effective(limit: float, context: Context) -> float:
    """Return the seconds that remain: the client's, if it set a deadline sooner than `limit`."""
    remaining: float | None = context.time_remaining()
    return limit if remaining is None else min(limit, remaining)
