"""One SERVER span and one duration for every served call, with the status that the call really ended with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from services.chassis import names
from services.chassis.clock import Clock
from services.chassis.interceptors.chain import Context, Method, Stream, Unary
from services.chassis.telemetry import Telemetry

# For a server only these are its own failures; the rest are the caller's (OpenTelemetry's convention for gRPC).
SERVER_FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
PROPAGATOR = TraceContextTextMapPropagator()


class Tracing:
    """Takes the caller's trace context from the metadata and measures the call."""

    def __init__(self, telemetry: Telemetry, clock: Clock) -> None:
        self._tracer = telemetry.tracer(__name__)
        self._clock = clock
        self._durations = telemetry.histogram(__name__, names.RPC_SERVER_DURATION)
        self._first_messages = telemetry.histogram(__name__, names.RPC_SERVER_FIRST_MESSAGE)

    def unary(self, method: Method, proceed: Unary) -> Unary:
        async def serve(request: Any, context: Context) -> Any:
            call = self._open(method, context)
            try:
                return await proceed(request, context)
            except asyncio.CancelledError:
                call.broken_off()
                raise
            finally:
                self._close(method, call)

        return serve

    def stream(self, method: Method, proceed: Stream) -> Stream:
        async def serve(request: Any, context: Context) -> AsyncGenerator[Any, None]:
            call = self._open(method, context)
            messages = 0
            try:
                async with aclosing(proceed(request, context)) as responses:
                    async for response in responses:
                        if messages == 0:
                            self._note_first(method, call)
                        messages += 1
                        yield response
            except (asyncio.CancelledError, GeneratorExit):
                call.broken_off()
                raise
            finally:
                call.span.set_attribute(names.STREAM_MESSAGES, messages)
                self._close(method, call)

        return serve

    def _open(self, method: Method, context: Context) -> _Call:
        metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        parent = PROPAGATOR.extract(metadata)
        span = self._tracer.start_span(
            method.name,
            context=parent,
            kind=SpanKind.SERVER,
            attributes={names.RPC_SYSTEM_NAME: "grpc", names.RPC_METHOD: method.name},
        )
        # Never detached: the call owns its task, and a generator's `finally` may run in another context.
        otel_context.attach(trace.set_span_in_context(span, parent))
        return _Call(context, span, self._clock.monotonic())

    def _note_first(self, method: Method, call: _Call) -> None:
        elapsed = self._clock.monotonic() - call.started
        call.span.set_attribute(names.STREAM_TIME_TO_FIRST_MESSAGE, elapsed)
        self._first_messages.record(elapsed, {names.RPC_METHOD: method.name})

    def _close(self, method: Method, call: _Call) -> None:
        code = call.code()
        finish(call.span, code, failed=code in SERVER_FAULTS)
        attributes = measured(method.name, code, failed=code in SERVER_FAULTS)
        self._durations.record(self._clock.monotonic() - call.started, attributes)


class _Call:
    """One call in progress and how it ends."""

    def __init__(self, context: Context, span: Span, started: float) -> None:
        self.span = span
        self.started = started
        self._context = context
        self._timeout = remaining(context)
        self._broken = ""

    def broken_off(self) -> None:
        """Note a cancellation. gRPC tells the same thing for a client that left and for a deadline that passed."""
        left = remaining(self._context)
        # On the wire a timeout has three significant digits, rounded up, so the client gives up a little earlier.
        late = self._timeout is not None and left is not None and left <= max(0.01, 0.02 * self._timeout)
        self._broken = "DEADLINE_EXCEEDED" if late else "CANCELLED"

    def code(self) -> str:
        """Return the name of the status the call ended with."""
        return self._broken or status_name(self._context.code())


def remaining(context: Context) -> float | None:
    """Return the seconds to the client's deadline, None when it set none (the stubs leave that out)."""
    left: float | None = context.time_remaining()
    return left


def status_name(code: object) -> str:
    """Return a status code's name; grpc.aio gives it as a number, an enum member, or None for OK."""
    if isinstance(code, grpc.StatusCode):
        return code.name
    return next((member.name for member in grpc.StatusCode if member.value[0] == (code or 0)), "UNKNOWN")


def measured(method: str, code: str, *, failed: bool) -> dict[str, str]:
    """Return the attributes of a call's duration."""
    attributes = {names.RPC_SYSTEM_NAME: "grpc", names.RPC_METHOD: method, names.RPC_RESPONSE_STATUS_CODE: code}
    return attributes | {names.ERROR_TYPE: code} if failed else attributes


def finish(span: Span, code: str, *, failed: bool) -> None:
    """End a span with an RPC status; `failed` marks it as an error."""
    span.set_attribute(names.RPC_RESPONSE_STATUS_CODE, code)
    if failed:
        span.set_attribute(names.ERROR_TYPE, code)
        span.set_status(Status(StatusCode.ERROR))
    span.end()
