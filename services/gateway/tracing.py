"""One SERVER span for every HTTP exchange, a child of the caller's trace when it brings one."""

from __future__ import annotations

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.chassis import names
from services.chassis.telemetry import Telemetry

PROPAGATOR = TraceContextTextMapPropagator()
# Probes come every few seconds and tell nothing.
UNTRACED = frozenset({"/healthz", "/readyz"})


class Traced:
    """Measures each exchange; for a stream the span lasts as long as the response."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app = app
        self._tracer = telemetry.tracer(__name__)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"} or scope["path"] in UNTRACED:
            await self._app(scope, receive, send)
            return
        method = scope.get("method", "WEBSOCKET")
        parent = PROPAGATOR.extract(dict(Headers(scope=scope)))
        span = self._tracer.start_span(
            method, context=parent, kind=SpanKind.SERVER, attributes={names.HTTP_REQUEST_METHOD: method}
        )

        async def send_traced(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                span.set_attribute(names.HTTP_RESPONSE_STATUS_CODE, status)
                if status >= 500:
                    span.set_status(Status(StatusCode.ERROR))
            await send(message)

        token = otel_context.attach(trace.set_span_in_context(span, parent))
        try:
            await self._app(scope, receive, send_traced)
        finally:
            otel_context.detach(token)
            route = getattr(scope.get("route"), "path", "")
            if route:
                span.update_name(f"{method} {route}")
                span.set_attribute(names.HTTP_ROUTE, route)
            span.end()
