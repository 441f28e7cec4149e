"""The short way to the routes that start runs: what is asked most often passes none of the framework's layers.

Matching the route, solving what it depends on and reading its parameters took more than the answer's own work. Here an
ordinary request's body, key and caller are found the way the framework finds them, and the route's own function is
called with them; what is out of the ordinary (another content type, a body that is no JSON) goes on to the framework as
it came.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.types import Message, Receive, Scope, Send

from services.gateway.access import Asker, asker
from services.gateway.dependencies import Parts
from services.gateway.headers import header
from services.gateway.problems import Handler

# What a route on this way takes, and nothing else; its body is a pydantic model.
PARAMETERS = ["body", "request", "parts", "caller", "idempotency_key"]
IDEMPOTENCY_KEY = b"idempotency-key"
LONGEST_KEY = 100
JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """One route: as the framework knows it, the model of its body, and what answers."""

    route: APIRoute
    body: type[BaseModel]
    endpoint: Callable[..., Awaitable[Response]]


class Express:
    """Answers POSTs to `routes` itself and hands everything else to `app`."""

    def __init__(self, app: FastAPI, parts: Parts, failed: Handler, routes: Iterable[APIRoute]) -> None:
        self._app = app
        self._parts = parts
        self._failed = failed
        self._ways = {route.path: _way(route) for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        way = self._ways.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if way is None or not _is_ordinary(scope):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        scope["route"] = way.route
        messages: Sequence[Message] = ()
        try:
            messages, value = await _read(receive)
            response = None if value is None else await self._answer(way, request, value)
        except Exception as error:  # noqa: BLE001  # told as the framework's handlers tell it
            response = await self._failed(request, error)
        if response is None:
            await self._app(scope, _again(messages, receive), send)
        else:
            await response(scope, receive, send)

    async def _answer(self, way: _Way, request: Request, value: object) -> Response:
        """Return what the route answers; who calls is asked first, as whoever may not call learns nothing else."""
        caller = await asker(request, self._parts)
        try:
            body = way.body.model_validate(value, from_attributes=True)
        except ValidationError as error:
            found = error.errors(include_url=False)
            raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in found]) from error
        key = header(request.scope, IDEMPOTENCY_KEY)
        return await way.endpoint(body=body, request=request, parts=self._parts, caller=caller, idempotency_key=key)


def _way(route: APIRoute) -> _Way:
    """Return the way to a route, or raise TypeError when it takes what this module does not give."""
    hints = get_type_hints(route.endpoint, include_extras=True)
    if list(inspect.signature(route.endpoint).parameters) != PARAMETERS or hints["caller"] != Asker:
        raise TypeError(f"{route.endpoint.__name__} takes other parameters than {', '.join(PARAMETERS)}")
    return _Way(route=route, body=hints["body"], endpoint=route.endpoint)


def _is_ordinary(scope: Scope) -> bool:
    kind = header(scope, b"content-type")
    return (kind == JSON or kind.startswith(f"{JSON};")) and len(header(scope, IDEMPOTENCY_KEY)) <= LONGEST_KEY


async def _read(receive: Receive) -> tuple[Sequence[Message], Any]:
    """Return what was received of a request's body, and its value as JSON; None when it is null or cannot be told."""
    messages: list[Message] = []
    more = True
    while more:
        message = await receive()
        messages.append(message)
        more = message["type"] == "http.request" and message.get("more_body", False)
    if messages[-1]["type"] != "http.request":
        return messages, None
    try:
        return messages, json.loads(b"".join(message.get("body", b"") for message in messages))
    except (ValueError, RecursionError):
        return messages, None


def _again(messages: Sequence[Message], receive: Receive) -> Receive:
    """Return a `receive` that gives `messages` again and then goes on."""
    kept = iter(messages)

    async def receive_again() -> Message:
        for message in kept:
            return message
        return await receive()

    return receive_again
