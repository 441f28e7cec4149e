"""What happens around every outgoing call: a deadline if it has none, a CLIENT span, and the trace context with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from services.chassis import names
from services.chassis.clock import Clock
from services.chassis.interceptors.tracing import PROPAGATOR, finish, measured
from services.chassis.telemetry import Telemetry

Details = grpc.aio.ClientCallDetails
Continuation = Callable[[Details, Any], Awaitable[Any]]


class Outgoing:
    """Opens and closes the span of a call. The span ends when the call does, also if nobody reads it to its end."""

    def __init__(self, telemetry: Telemetry, clock: Clock, *, timeout: float) -> None:
        self._tracer = telemetry.tracer(__name__)
        self._durations = telemetry.histogram(__name__, names.RPC_CLIENT_DURATION)
        self._clock = clock
        self._timeout = timeout

    async def call(self, continuation: Continuation, details: Details, request: Any, *, bounded: bool) -> Any:
        """Make the call; `bounded` gives it the default timeout when the caller set none."""
        given: str | bytes = details.method
        method = (given.decode() if isinstance(given, bytes) else given).lstrip("/")
        span = self._tracer.start_span(
            method, kind=SpanKind.CLIENT, attributes={names.RPC_SYSTEM_NAME: "grpc", names.RPC_METHOD: method}
        )
        started = self._clock.monotonic()
        call = await continuation(self._prepared(details, span, bounded=bounded), request)
        call.add_done_callback(partial(self._close, method, span, started))
        return call

    def _prepared(self, details: Details, span: Span, *, bounded: bool) -> Details:
        carrier: dict[str, str] = {}
        PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
        timeout = self._timeout if details.timeout is None and bounded else details.timeout
        metadata = grpc.aio.Metadata(*(details.metadata or ()), *carrier.items())
        return grpc.aio.ClientCallDetails(
            details.method, timeout, metadata, details.credentials, details.wait_for_ready
        )

    def _close(self, method: str, span: Span, started: float, call: grpc.aio.Call) -> None:
        code = code_of_ended(call).name
        failed = code != "OK"
        finish(span, code, failed=failed)
        self._durations.record(self._clock.monotonic() - started, measured(method, code, failed=failed))


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


def client_interceptors(outgoing: Outgoing) -> list[grpc.aio.ClientInterceptor]:
    """Return one interceptor for each shape of call; grpc.aio wants them to be four classes."""
    return [UnaryUnary(outgoing), UnaryStream(outgoing), StreamUnary(outgoing), StreamStream(outgoing)]


class UnaryUnary(grpc.aio.UnaryUnaryClientInterceptor):
    """For one request, one response."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing

    async def intercept_unary_unary(
        self, continuation: Continuation, client_call_details: Details, request: Any
    ) -> Any:
        return await self._outgoing.call(continuation, client_call_details, request, bounded=True)


class UnaryStream(grpc.aio.UnaryStreamClientInterceptor):
    """For one request, many responses."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing

    async def intercept_unary_stream(
        self, continuation: Continuation, client_call_details: Details, request: Any
    ) -> Any:
        return await self._outgoing.call(continuation, client_call_details, request, bounded=False)


class StreamUnary(grpc.aio.StreamUnaryClientInterceptor):
    """For many requests, one response."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing

    async def intercept_stream_unary(
        self, continuation: Continuation, client_call_details: Details, request_iterator: Any
    ) -> Any:
        return await self._outgoing.call(continuation, client_call_details, request_iterator, bounded=False)


class StreamStream(grpc.aio.StreamStreamClientInterceptor):
    """For many requests, many responses."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing

    async def intercept_stream_stream(
        self, continuation: Continuation, client_call_details: Details, request_iterator: Any
    ) -> Any:
        return await self._outgoing.call(continuation, client_call_details, request_iterator, bounded=False)
