"""The one grpc.aio interceptor: composes ours in order around every handler, and drives the streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import grpc

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
# `request` is a message, or an async iterator of messages for client-streaming calls.
# A server-streaming servicer method is an async generator function; `context.write` is for the chain alone.
Unary: TypeAlias = Callable[[Any, Context], Awaitable[Any]]
Stream: TypeAlias = Callable[[Any, Context], AsyncGenerator[Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """The method being served: `name` is `package.Service/Method`."""

    name: str
    client_streaming: bool
    server_streaming: bool


class Interceptor(Protocol):
    """Wraps handlers; called once per method, so what belongs to one call is made when that is served.

    What `stream` returns must close `proceed`'s iterator when it is closed itself (`contextlib.aclosing`).
    """

    def unary(self, method: Method, proceed: Unary) -> Unary: ...

    def stream(self, method: Method, proceed: Stream) -> Stream: ...


class Chain(grpc.aio.ServerInterceptor):
    """Applies interceptors, outermost first. Health and reflection pass untouched: they must answer always."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self._interceptors = tuple(interceptors)
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        if wrapped := self._wrapped.get(handler_call_details.method):
            return wrapped
        handler = await continuation(handler_call_details)
        name = handler_call_details.method.lstrip("/")
        if handler is None or name.startswith("grpc."):
            return handler
        method = Method(
            name=name,
            client_streaming=bool(handler.request_streaming),
            server_streaming=bool(handler.response_streaming),
        )
        serve = self._wrap_stream(method, handler) if method.server_streaming else self._wrap_unary(method, handler)
        wrapped = self._wrapped[handler_call_details.method] = _KINDS[method.client_streaming, method.server_streaming](
            serve,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )
        return wrapped

    def _wrap_unary(self, method: Method, handler: Handler) -> Unary:
        behaviour: Unary = handler.stream_unary if method.client_streaming else handler.unary_unary  # type: ignore[assignment]
        for interceptor in reversed(self._interceptors):
            behaviour = interceptor.unary(method, behaviour)

        async def serve(request: Any, context: Context) -> Any:
            return await behaviour(request, context)

        return serve

    def _wrap_stream(self, method: Method, handler: Handler) -> Unary:
        behaviour: Stream = handler.stream_stream if method.client_streaming else handler.unary_stream  # type: ignore[assignment]
        for interceptor in reversed(self._interceptors):
            behaviour = interceptor.stream(method, behaviour)

        # A coroutine that writes, not a generator: grpc.aio leaves a cancelled generator to the garbage collector.
        async def serve(request: Any, context: Context) -> None:
            async with aclosing(behaviour(request, context)) as responses:
                async for response in responses:
                    await context.write(response)

        return serve


_KINDS: dict[tuple[bool, bool], Callable[..., Handler]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
