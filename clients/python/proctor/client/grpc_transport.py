"""The orchestrator's RPCs as a transport, for callers inside the suite's network with an identity of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc

from proctor.client.errors import of_rpc
from proctor.orchestrator.v1.events_pb2 import RunEvent
from proctor.orchestrator.v1.run_service_pb2 import (
    CancelRunRequest,
    GetRunRequest,
    ListRunsRequest,
    ListRunsResponse,
    ResumeRunRequest,
    Run,
    RunState,
    StartRunRequest,
    WatchRunRequest,
)
from proctor.orchestrator.v1.run_service_pb2_grpc import RunServiceStub

# Returns a fresh signed service token; called for every RPC, because tokens are short-lived.
Token = Callable[[], str]
TIMEOUT = 30.0
STREAM_TIMEOUT = 3600.0
OPTIONS = (("grpc.max_receive_message_length", 8 * 1024 * 1024), ("grpc.keepalive_time_ms", 30_000))


def _metadata(token: Token | None) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token()}"),) if token is not None else ()


class GrpcTransport:
    """Blocking."""

    def __init__(self, target: str, token: Token | None = None, channel: grpc.Channel | None = None) -> None:
        self._channel = channel or grpc.insecure_channel(target, options=OPTIONS)
        self._runs = RunServiceStub(self._channel)
        self._token = token

    def start(self, request: StartRunRequest) -> Iterator[RunEvent]:
        return self._events(self._runs.StartRun, request)

    def watch(self, run_id: str, after: int) -> Iterator[RunEvent]:
        return self._events(self._runs.WatchRun, WatchRunRequest(run_id=run_id, after_sequence=after))

    def resume(self, request: ResumeRunRequest) -> Iterator[RunEvent]:
        return self._events(self._runs.ResumeRun, request)

    def cancel(self, run_id: str) -> RunState.ValueType:
        state: RunState.ValueType = self._unary(self._runs.CancelRun, CancelRunRequest(run_id=run_id)).state
        return state

    def get(self, run_id: str) -> Run:
        run: Run = self._unary(self._runs.GetRun, GetRunRequest(run_id=run_id)).run
        return run

    def list(self, request: ListRunsRequest) -> ListRunsResponse:
        page: ListRunsResponse = self._unary(self._runs.ListRuns, request)
        return page

    def close(self) -> None:
        self._channel.close()

    def _events(self, method: Any, request: Any) -> Iterator[RunEvent]:
        call = method(request, metadata=_metadata(self._token), timeout=STREAM_TIMEOUT)
        try:
            for reply in call:
                yield from reply.events
        except grpc.RpcError as error:
            raise of_rpc(error) from error
        finally:
            call.cancel()

    def _unary(self, method: Any, request: Any) -> Any:
        try:
            return method(request, metadata=_metadata(self._token), timeout=TIMEOUT)
        except grpc.RpcError as error:
            raise of_rpc(error) from error


class AsyncGrpcTransport:
    """On an event loop."""

    def __init__(self, target: str, token: Token | None = None, channel: grpc.aio.Channel | None = None) -> None:
        self._channel = channel or grpc.aio.insecure_channel(target, options=OPTIONS)
        self._runs = RunServiceStub(self._channel)
        self._token = token

    def start(self, request: StartRunRequest) -> AsyncIterator[RunEvent]:
        return self._events(self._runs.StartRun, request)

    def watch(self, run_id: str, after: int) -> AsyncIterator[RunEvent]:
        return self._events(self._runs.WatchRun, WatchRunRequest(run_id=run_id, after_sequence=after))

    def resume(self, request: ResumeRunRequest) -> AsyncIterator[RunEvent]:
        return self._events(self._runs.ResumeRun, request)

    async def cancel(self, run_id: str) -> RunState.ValueType:
        state: RunState.ValueType = (await self._unary(self._runs.CancelRun, CancelRunRequest(run_id=run_id))).state
        return state

    async def get(self, run_id: str) -> Run:
        run: Run = (await self._unary(self._runs.GetRun, GetRunRequest(run_id=run_id))).run
        return run

    async def list(self, request: ListRunsRequest) -> ListRunsResponse:
        page: ListRunsResponse = await self._unary(self._runs.ListRuns, request)
        return page

    async def close(self) -> None:
        await self._channel.close()

    async def _events(self, method: Any, request: Any) -> AsyncIterator[RunEvent]:
        call = method(request, metadata=_metadata(self._token), timeout=STREAM_TIMEOUT)
        try:
            async for reply in call:
                for event in reply.events:
                    yield event
        except grpc.RpcError as error:
            raise of_rpc(error) from error
        finally:
            call.cancel()

    async def _unary(self, method: Any, request: Any) -> Any:
        try:
            return await method(request, metadata=_metadata(self._token), timeout=TIMEOUT)
        except grpc.RpcError as error:
            raise of_rpc(error) from error
