"""What every exchange gets, before and after the routes: a request id, safe headers, and a limit on its body."""

from __future__ import annotations

import re
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.chassis.clock import Ids
from services.chassis.errors import TooLarge
from services.gateway.problems import problem_of, respond

REQUEST_ID = "X-Request-Id"
_SAFE_ID = re.compile(r"^[A-Za-z0-9._-]{1,64}$")

# Nothing but our own files; style attributes are allowed for formulas, which place glyphs with them.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; media-src 'self' blob:; manifest-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Content-Security-Policy": PAGE_POLICY,
}


class Envelope:
    """Gives each exchange its request id and its response the security headers and those that routes left for it."""

    def __init__(self, app: ASGIApp, ids: Ids) -> None:
        self._app = app
        self._ids = ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        offered = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = offered if _SAFE_ID.match(offered) else self._ids.new()
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        left: dict[str, str] = {}
        state["response_headers"] = left

        async def send_enveloped(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = request_id
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                for name, value in left.items():
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, send_enveloped)


class BodyLimit:
    """Refuses bodies above a limit: at once when their length is declared, else when they grow past it."""

    def __init__(self, app: ASGIApp, limit: Callable[[Scope], int]) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limit(scope)
        declared = Headers(scope=scope).get("content-length", "0")
        too_large = TooLarge(f"the body is larger than {limit} bytes", metadata={"limit": str(limit)})
        if declared.isdigit() and int(declared) > limit:
            await respond(problem_of(too_large), Request(scope))(scope, receive, send)
            return
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > limit:
                    raise too_large
            return message

        await self._app(scope, receive_limited, send)
