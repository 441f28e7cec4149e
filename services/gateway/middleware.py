"""What every exchange gets, before and after the routes: a request id, safe headers, and a limit on its body."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.chassis.clock import Ids
from services.chassis.errors import TooLarge
from services.gateway.headers import header
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


_SECURITY = tuple((name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items())
_REQUEST_ID = REQUEST_ID.lower().encode()


class Envelope:
    """Gives each exchange its request id and its response the security headers and those that routes left for it."""

    def __init__(self, app: ASGIApp, ids: Ids) -> None:
        self._app = app
        self._ids = ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        offered = header(scope, _REQUEST_ID)
        request_id = offered if _SAFE_ID.match(offered) else self._ids.new()
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        left: dict[str, str] = {}
        state["response_headers"] = left

        async def send_enveloped(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _enveloped(message.get("headers", ()), {REQUEST_ID: request_id, **left})
            await send(message)

        await self._app(scope, receive, send_enveloped)


def _enveloped(given: Iterable[tuple[bytes, bytes]], ours: dict[str, str]) -> list[tuple[bytes, bytes]]:
    """Return a response's headers with ours in place of its own, and the security headers where it has none."""
    replacing = {name.lower().encode("latin-1"): value.encode("latin-1") for name, value in ours.items()}
    headers = [pair for pair in given if pair[0] not in replacing]
    headers += replacing.items()
    present = {name for name, _ in headers}
    headers += [pair for pair in _SECURITY if pair[0] not in present]
    return headers


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
        declared = header(scope, b"content-length")
        if declared.isdigit() and int(declared) > limit:
            await respond(problem_of(_too_large(limit)), Request(scope))(scope, receive, send)
            return
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > limit:
                    raise _too_large(limit)
            return message

        await self._app(scope, receive_limited, send)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes", metadata={"limit": str(limit)})
