"""Drives async servicers by grpcio-testing, which knows only synchronous ones.

Given an async servicer, grpcio-testing returns OK with a coroutine nobody awaited: a green test that proves nothing.
Here each method becomes a synchronous one whose steps run on the test's event loop, and `abort` and ServiceError
become the status they stand for. Interceptors, cancellation and deadlines need `tests.support.servers` instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Never, TypeVar

import grpc
import grpc_testing
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from services.chassis.errors import DETAILS_KEY, ServiceError, to_status
from services.chassis.identity import Principal, become

T = TypeVar("T")
TIMEOUT = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a call ended, and what it returned before."""

    responses: list[Any]
    code: grpc.StatusCode
    details: str

    @property
    def response(self) -> Any:
        """The only response; fails the test when there is another number of them, naming the status."""
        assert len(self.responses) == 1, f"{len(self.responses)} responses, {self.code.name}: {self.details}"
        return self.responses[0]


class Bridge:
    """Calls the methods of one async servicer by name, as `principal`. Make it inside the test's event loop."""

    def __init__(self, descriptor: ServiceDescriptor, servicer: Any, principal: Principal) -> None:
        self._descriptor = descriptor
        synchronous = _Synchronous(descriptor, servicer, principal, asyncio.get_running_loop())
        self._server = grpc_testing.server_from_dictionary({descriptor: synchronous}, grpc_testing.strict_real_time())

    async def call(self, name: str, request: Any, metadata: tuple[tuple[str, str], ...] = ()) -> Outcome:
        """Call a method; a stream of requests is given as an iterable."""
        return await asyncio.to_thread(self._call, self._descriptor.methods_by_name[name], request, metadata)

    def _call(self, method: MethodDescriptor, request: Any, metadata: tuple[tuple[str, str], ...]) -> Outcome:
        shape = f"{_word(method.client_streaming)}_{_word(method.server_streaming)}"
        invoke = getattr(self._server, f"invoke_{shape}")
        if method.client_streaming:
            rpc = invoke(method, metadata, TIMEOUT)
            for each in request:
                rpc.send_request(each)
            rpc.requests_closed()
        else:
            rpc = invoke(method, metadata, request, TIMEOUT)
        if method.server_streaming:
            _, code, details = rpc.termination()
            # After the termination every response that came before it is there to take.
            return Outcome(responses=list(_taken(rpc)), code=code, details=details)
        response, _, code, details = rpc.termination()
        return Outcome(responses=[] if response is None else [response], code=code, details=details)


def _word(streaming: bool) -> str:
    return "stream" if streaming else "unary"


def _taken(rpc: Any) -> Iterator[Any]:
    while True:
        try:
            yield rpc.take_response()
        except ValueError:  # grpcio-testing's way to say that none is left
            return


class _Synchronous:
    """A synchronous servicer over an async one."""

    def __init__(
        self, descriptor: ServiceDescriptor, servicer: Any, principal: Principal, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._principal = principal
        self._loop = loop
        for method in descriptor.methods:
            behaviour = getattr(servicer, method.name)
            make = self._stream if method.server_streaming else self._unary
            setattr(self, method.name, make(behaviour, client_streaming=method.client_streaming))

    def _unary(self, behaviour: Callable[..., Any], *, client_streaming: bool) -> Callable[..., Any]:
        def call(request: Any, context: Any) -> Any:
            with _ending(context):
                return self._run(behaviour(self._request(request, client_streaming), _AsyncContext(context)))

        return call

    def _stream(self, behaviour: Callable[..., Any], *, client_streaming: bool) -> Callable[..., Any]:
        def call(request: Any, context: Any) -> Iterator[Any]:
            responses = behaviour(self._request(request, client_streaming), _AsyncContext(context))
            with _ending(context):
                while (response := self._run(_next(responses))) is not None:
                    yield response

        return call

    def _request(self, request: Any, streaming: bool) -> Any:
        return _each(request) if streaming else request

    def _run(self, step: Coroutine[Any, Any, T]) -> T:
        async def as_principal() -> T:
            become(self._principal)
            return await step

        return asyncio.run_coroutine_threadsafe(as_principal(), self._loop).result(TIMEOUT)


async def _next(responses: AsyncGenerator[Any, None]) -> Any:
    return await anext(responses, None)


async def _each(requests: Iterable[Any]) -> AsyncIterator[Any]:
    iterator = iter(requests)
    done = object()
    # The iterator waits for the test's next request, so each step waits in a thread.
    while (request := await asyncio.to_thread(next, iterator, done)) is not done:
        yield request


class _Abort(Exception):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class _AsyncContext:
    """The async face of grpcio-testing's context."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> Never:
        self._context.set_trailing_metadata(tuple(trailing_metadata))
        raise _Abort(code, details)


class _ending:  # noqa: N801
    """Ends the call with the status that an exception stands for."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        match error:
            case ServiceError():
                status = to_status(error)
                self._context.set_trailing_metadata(((DETAILS_KEY, status.SerializeToString()),))
                self._context.abort(error.code, error.message)
            case _Abort():
                self._context.abort(error.code, error.details)
