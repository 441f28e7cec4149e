"""What happens around every outgoing call: a deadline if it has none, a CLIENT span, and the trace context with it.

grpc.aio's own client interceptors run each call as a task behind an object that stands in for it, which cost as much as
the call itself. Ours is the channel that the stubs see: it hands out the channel's own callables, wrapped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

import grpc
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from services.chassis import names
from services.chassis.clock import Clock
from services.chassis.interceptors.tracing import PROPAGATOR, finish, measured
from services.chassis.telemetry import Telemetry


class Outgoing:
    """Opens and closes the span of a call. The span ends when the call does, also if nobody reads it to its end."""

    def __init__(self, telemetry: Telemetry, clock: Clock, *, timeout: float) -> None:
        self.timeout = timeout
        self._tracer = telemetry.tracer(__name__)
        self._durations = telemetry.histogram(__name__, names.RPC_CLIENT_DURATION)
        self._clock = clock

    def wrapped(self, path: str, callable_: Callable[..., grpc.aio.Call], *, bounded: bool) -> Any:
        """Return `callable_`, the method at `path`, measured; `bounded` gives calls the default timeout."""
        method = path.lstrip("/")
        attributes = {names.RPC_SYSTEM_NAME: "grpc", names.RPC_METHOD: method}

        def call(request: Any = None, *, timeout: float | None = None, metadata: Any = None, **options: Any) -> Any:
            span = self._tracer.start_span(method, kind=SpanKind.CLIENT, attributes=attributes)
            started = self._clock.monotonic()
            if timeout is None and bounded:
                timeout = self.timeout
            made = callable_(request, timeout=timeout, metadata=_with_trace(metadata, span), **options)
            made.add_done_callback(partial(self._close, method, span, started))
            return made

        return call

    def _close(self, method: str, span: Span, started: float, call: grpc.aio.Call) -> None:
        code = code_of_ended(call).name
        failed = code != "OK"
        finish(span, code, failed=failed)
        self._durations.record(self._clock.monotonic() - started, measured(method, code, failed=failed))


def _with_trace(metadata: Any, span: Span) -> tuple[tuple[str, str | bytes], ...]:
    """Return call metadata with the span's trace context added."""
    carrier: dict[str, str] = {}
    PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
    return (*(metadata or ()), *carrier.items())


def code_of_ended(call: grpc.aio.Call) -> grpc.StatusCode:
    """Return the code of a call that has ended; its `code()` is a coroutine that then has nothing to wait for."""
    coroutine = call.code()
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value if isinstance(done.value, grpc.StatusCode) else grpc.StatusCode.UNKNOWN
    finally:
        coroutine.close()
    return grpc.StatusCode.UNKNOWN


class MeasuredChannel(grpc.aio.Channel):
    """A channel each call of which goes through an `Outgoing`; all else is the channel's own."""

    def __init__(self, channel: grpc.aio.Channel, outgoing: Outgoing) -> None:
        self._channel = channel
        self._outgoing = outgoing

    def unary_unary(self, method: str, *codecs: Any, **options: Any) -> Any:
        """Return the callable of a method with one request and one response; it has a deadline always."""
        return self._outgoing.wrapped(method, self._channel.unary_unary(method, *codecs, **options), bounded=True)

    def unary_stream(self, method: str, *codecs: Any, **options: Any) -> Any:
        """Return the callable of a method with many responses."""
        return self._outgoing.wrapped(method, self._channel.unary_stream(method, *codecs, **options), bounded=False)

    def stream_unary(self, method: str, *codecs: Any, **options: Any) -> Any:
        """Return the callable of a method with many requests."""
        return self._outgoing.wrapped(method, self._channel.stream_unary(method, *codecs, **options), bounded=False)

    def stream_stream(self, method: str, *codecs: Any, **options: Any) -> Any:
        """Return the callable of a method with many of both."""
        return self._outgoing.wrapped(method, self._channel.stream_stream(method, *codecs, **options), bounded=False)

    async def close(self, grace: float | None = None) -> None:
        """Close the channel; calls in progress get `grace` seconds."""
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: FBT001, FBT002  # grpc's own
        """Return whether it is connected."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Return once the state is another."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Return once it is connected."""
        await self._channel.channel_ready()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self._channel.close()
