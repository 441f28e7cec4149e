"""Requests satisfy the protovalidate rules of their messages, or are refused with every violation named."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import protovalidate
from google.protobuf.message import Message

from services.chassis.errors import FieldViolation, InvalidRequest
from services.chassis.interceptors.chain import Context, Method, Stream, Unary


class Validation:
    """Checks each request message before the handler sees it."""

    def __init__(self) -> None:
        # Compiles the rules of a message type once and keeps them.
        self._validator = protovalidate.Validator()

    def unary(self, method: Method, proceed: Unary) -> Unary:
        async def serve(request: Any, context: Context) -> Any:
            return await proceed(self._checked(method, request), context)

        return serve

    def stream(self, method: Method, proceed: Stream) -> Stream:
        # Refused before there is a generator, so none of ours stands between the handler and who reads it.
        def serve(request: Any, context: Context) -> AsyncGenerator[Any, None]:
            return proceed(self._checked(method, request), context)

        return serve

    def _checked(self, method: Method, request: Any) -> Any:
        return self._each(request) if method.client_streaming else self._check(request)

    async def _each(self, requests: AsyncIterator[Message]) -> AsyncIterator[Message]:
        async for request in requests:
            yield self._check(request)

    def _check(self, request: Message) -> Message:
        violations = [
            FieldViolation(field=path(violation.proto.field), description=violation.proto.message)
            for violation in self._validator.collect_violations(request)
        ]
        if violations:
            told = "; ".join(f"{v.field}: {v.description}" if v.field else v.description for v in violations)
            raise InvalidRequest(f"{request.DESCRIPTOR.name} breaks its rules: {told}", violations=violations)
        return request


def path(field: Any) -> str:
    """Return a violation's field path as people write it: `history[2].parts`, `labels["team"]`."""
    text = ""
    for element in field.elements if field is not None else ():
        text += f".{element.field_name}" if text else element.field_name
        text += _subscript(element)
    return text


def _subscript(element: Any) -> str:
    subscript = element.subscript
    if subscript is None:
        return ""
    return f'["{subscript.value}"]' if isinstance(subscript.value, str) else f"[{subscript.value}]"
