"""Expected failures become statuses with details; anything else is INTERNAL and its details stay in the log."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Never

import grpc
from grpc_status import rpc_status
from opentelemetry import trace

from services.chassis import names
from services.chassis.errors import ServiceError, to_status
from services.chassis.interceptors.chain import Context, Method, Stream, Unary

log = logging.getLogger(__name__)


class Errors:
    """Ends a failed call with the status that its exception stands for."""

    def unary(self, method: Method, proceed: Unary) -> Unary:
        async def serve(request: Any, context: Context) -> Any:
            try:
                return await proceed(request, context)
            except Exception as error:  # noqa: BLE001 - the one place that turns every failure into a status
                await end(method, context, error)

        return serve

    def stream(self, method: Method, proceed: Stream) -> Stream:
        async def serve(request: Any, context: Context) -> AsyncGenerator[Any, None]:
            try:
                async with aclosing(proceed(request, context)) as responses:
                    async for response in responses:
                        yield response
            except Exception as error:  # noqa: BLE001 - the one place that turns every failure into a status
                await end(method, context, error)

        return serve


async def end(method: Method, context: Context, error: Exception) -> Never:
    """Abort the call for `error`; an abort that a handler made itself goes on as it is."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.CANCELLED and context.done():
        raise error
    if isinstance(error, NotImplementedError):
        # What a generated servicer raises for a method that its subclass lacks; told as gRPC tells unknown methods.
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method.name} is not served here")
    failure = error if isinstance(error, ServiceError) else _unexpected(method, error)
    await context.abort_with_status(rpc_status.to_status(to_status(failure)))


def _unexpected(method: Method, error: Exception) -> ServiceError:
    span = trace.get_current_span().get_span_context()
    trace_id = trace.format_trace_id(span.trace_id) if span.is_valid else ""
    log.error("unexpected failure", exc_info=error, extra={"event": names.EVENT_RPC_FAILED, "method": method.name})
    where = f"; its log has the details under trace {trace_id}" if trace_id else "; its log has the details"
    return ServiceError(f"the service failed unexpectedly{where}", metadata={"trace_id": trace_id} if trace_id else {})
