"""One SERVER span and one duration for every HTTP exchange, a child of the caller's trace when it brings one."""

from __future__ import annotations

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.chassis import names
from services.chassis.clock import Clock
from services.chassis.telemetry import Telemetry
from services.gateway.headers import header

PROPAGATOR = TraceContextTextMapPropagator()
PROPAGATED = tuple((field, field.encode()) for field in sorted(PROPAGATOR.fields))
# Others are told as one, as the conventions say: a caller may invent as many as it likes.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"})
# Probes come every few seconds and tell nothing.
UNTRACED = frozenset({"/healthz", "/readyz"})


class Traced:
    """Measures each exchange; for a stream the span lasts as long as the response."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._tracer = telemetry.tracer(__name__)
        self._durations = telemetry.histogram(__name__, names.HTTP_SERVER_DURATION)
        self._active = telemetry.up_down_counter(__name__, names.HTTP_SERVER_ACTIVE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"} or scope["path"] in UNTRACED:
            await self._app(scope, receive, send)
            return
        method = scope.get("method", "WEBSOCKET")
        method = method if method in METHODS else "_OTHER"
        parent = PROPAGATOR.extract({key: value for key, name in PROPAGATED if (value := header(scope, name))})
        span = self._tracer.start_span(
            method, context=parent, kind=SpanKind.SERVER, attributes={names.HTTP_REQUEST_METHOD: method}
        )
        measured: dict[str, str | int] = {names.HTTP_REQUEST_METHOD: method}

        async def send_traced(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                measured[names.HTTP_RESPONSE_STATUS_CODE] = status
                if status >= 500:
                    measured[names.ERROR_TYPE] = str(status)
                    span.set_status(Status(StatusCode.ERROR))
            await send(message)

        started = self._clock.monotonic()
        self._active.add(1, {names.HTTP_REQUEST_METHOD: method})
        token = otel_context.attach(trace.set_span_in_context(span, parent))
        try:
            await self._app(scope, receive, send_traced)
        finally:
            otel_context.detach(token)
            self._active.add(-1, {names.HTTP_REQUEST_METHOD: method})
            # Only the route's template: paths hold ids, and each of them would be a series of its own.
            if route := getattr(scope.get("route"), "path", ""):
                span.update_name(f"{method} {route}")
                measured[names.HTTP_ROUTE] = route
            self._durations.record(self._clock.monotonic() - started, measured)
            span.set_attributes(measured)
            span.end()
