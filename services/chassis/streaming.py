"""Streams of bytes that are encoded already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

Register = Callable[[Any, grpc.aio.Server], None]


def raw_streaming(register: Register) -> Register:
    """Return a generated `add_…Servicer_to_server` whose streams may yield messages or their encoded bytes.

    An event that many watchers read is then encoded once. Bytes are trusted to be a whole message of the method.
    """

    def register_raw(servicer: Any, server: grpc.aio.Server) -> None:
        register(servicer, _RawStreams(server))  # type: ignore[arg-type]  # the two methods it calls

    return register_raw


class _RawStreams:
    """Stands in for the server while generated code registers its handlers."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Ignore the opaque form; generated code gives the same handlers again below."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        raw = {name: _raw(handler) if handler.response_streaming else handler for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, raw),))


def _raw(handler: Any) -> Any:
    encode = handler.response_serializer

    def serialize(response: Any) -> bytes:
        return response if isinstance(response, bytes) else encode(response)

    return handler._replace(response_serializer=serialize)  # grpc's handlers are named tuples
