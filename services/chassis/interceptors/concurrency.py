"""A bound on calls in progress: more are refused at once, with a time to come back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from services.chassis.errors import Overloaded
from services.chassis.interceptors.chain import Context, Method, Stream, Unary

RETRY_AFTER = 1.0


class Concurrency:
    """Caps unary calls and streams apart, so that long streams do not starve short calls."""

    def __init__(self, *, unary: int, streams: int) -> None:
        self._unary = _Slots(unary, "calls")
        self._streams = _Slots(streams, "streams")

    def unary(self, method: Method, proceed: Unary) -> Unary:
        async def serve(request: Any, context: Context) -> Any:
            with self._unary.take():
                return await proceed(request, context)

        return serve

    def stream(self, method: Method, proceed: Stream) -> Stream:
        async def serve(request: Any, context: Context) -> AsyncGenerator[Any, None]:
            with self._streams.take():
                async with aclosing(proceed(request, context)) as responses:
                    async for response in responses:
                        yield response

        return serve


class _Slots:
    def __init__(self, limit: int, noun: str) -> None:
        self._limit = limit
        self._noun = noun
        self._taken = 0

    @contextmanager
    def take(self) -> Iterator[None]:
        if self._taken >= self._limit:
            raise Overloaded(
                f"{self._limit} {self._noun} are in progress, which is the limit; try again in a moment",
                retry_after=RETRY_AFTER,
            )
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1
