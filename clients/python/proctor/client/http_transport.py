"""The HTTP API as a transport: JSON, and server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx

from proctor.client.errors import ConnectionLost, of_problem
from proctor.client.sse import EventReader
from proctor.client.wirejson import decision_body, read, start_body
from proctor.orchestrator.v1.events_pb2 import RunEvent
from proctor.orchestrator.v1.run_service_pb2 import (
    CancelRunResponse,
    ListRunsRequest,
    ListRunsResponse,
    ResumeRunRequest,
    Run,
    RunState,
    StartRunRequest,
)

# The gateway sends a comment every 15 s; this much silence means that the connection is dead.
TIMEOUT = httpx.Timeout(10.0, read=60.0)
STREAM = {"Accept": "text/event-stream"}
JSON = {"Accept": "application/json"}
Call = tuple[str, str, dict[str, Any]]


def _start(request: StartRunRequest) -> Call:
    return "POST", "/v1/runs", {"json": start_body(request), "headers": STREAM}


def _watch(run_id: str, after: int) -> Call:
    return "GET", f"/v1/runs/{run_id}/events", {"params": {"after": after}, "headers": STREAM}


def _resume(request: ResumeRunRequest) -> Call:
    decisions = [decision_body(decision) for decision in request.decisions]
    body = {"decisions": decisions, "text": request.text, "after": request.after_sequence}
    return "POST", f"/v1/runs/{request.run_id}/resume", {"json": body, "headers": STREAM}


def _list(request: ListRunsRequest) -> Call:
    states = [RunState.Name(state).removeprefix("RUN_STATE_").lower() for state in request.states]
    params = {
        "page_size": request.page_size,
        "page_token": request.page_token,
        "conversation_id": request.conversation_id,
        "state": states,
    }
    return "GET", "/v1/runs", {"params": params, "headers": JSON}


def _raise_for(response: httpx.Response) -> None:
    if response.is_success:
        return
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    raise of_problem(
        response.status_code, problem if isinstance(problem, dict) else {}, response.headers.get("retry-after", "")
    )


def _headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


class HttpTransport:
    """Blocking."""

    def __init__(self, url: str, key: str = "", transport: httpx.BaseTransport | None = None) -> None:
        self._client = httpx.Client(base_url=url, headers=_headers(key), timeout=TIMEOUT, transport=transport)

    def start(self, request: StartRunRequest) -> Iterator[RunEvent]:
        return self._events(_start(request))

    def watch(self, run_id: str, after: int) -> Iterator[RunEvent]:
        return self._events(_watch(run_id, after))

    def resume(self, request: ResumeRunRequest) -> Iterator[RunEvent]:
        return self._events(_resume(request))

    def cancel(self, run_id: str) -> RunState.ValueType:
        reply = read(self._json(("POST", f"/v1/runs/{run_id}/cancel", {})), CancelRunResponse())
        return reply.state

    def get(self, run_id: str) -> Run:
        return read(self._json(("GET", f"/v1/runs/{run_id}", {})), Run())

    def list(self, request: ListRunsRequest) -> ListRunsResponse:
        return read(self._json(_list(request)), ListRunsResponse())

    def close(self) -> None:
        self._client.close()

    def _events(self, call: Call) -> Iterator[RunEvent]:
        method, path, options = call
        reader = EventReader()
        with _reaching(), self._client.stream(method, path, **options) as response:
            if not response.is_success:
                response.read()
            _raise_for(response)
            for line in response.iter_lines():
                event = reader.feed(line)
                if event is not None:
                    yield event

    def _json(self, call: Call) -> Any:
        method, path, options = call
        with _reaching():
            response = self._client.request(method, path, **options)
        _raise_for(response)
        return response.json()


class AsyncHttpTransport:
    """On an event loop."""

    def __init__(self, url: str, key: str = "", transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._client = httpx.AsyncClient(base_url=url, headers=_headers(key), timeout=TIMEOUT, transport=transport)

    def start(self, request: StartRunRequest) -> AsyncIterator[RunEvent]:
        return self._events(_start(request))

    def watch(self, run_id: str, after: int) -> AsyncIterator[RunEvent]:
        return self._events(_watch(run_id, after))

    def resume(self, request: ResumeRunRequest) -> AsyncIterator[RunEvent]:
        return self._events(_resume(request))

    async def cancel(self, run_id: str) -> RunState.ValueType:
        reply = read(await self._json(("POST", f"/v1/runs/{run_id}/cancel", {})), CancelRunResponse())
        return reply.state

    async def get(self, run_id: str) -> Run:
        return read(await self._json(("GET", f"/v1/runs/{run_id}", {})), Run())

    async def list(self, request: ListRunsRequest) -> ListRunsResponse:
        return read(await self._json(_list(request)), ListRunsResponse())

    async def close(self) -> None:
        await self._client.aclose()

    async def _events(self, call: Call) -> AsyncIterator[RunEvent]:
        method, path, options = call
        reader = EventReader()
        async with _reaching_async(), self._client.stream(method, path, **options) as response:
            if not response.is_success:
                await response.aread()
            _raise_for(response)
            async for line in response.aiter_lines():
                event = reader.feed(line)
                if event is not None:
                    yield event

    async def _json(self, call: Call) -> Any:
        method, path, options = call
        with _reaching():
            response = await self._client.request(method, path, **options)
        _raise_for(response)
        return response.json()


@contextmanager
def _reaching() -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as error:
        raise ConnectionLost(f"the server does not answer: {error}", reason="UNAVAILABLE") from error


@asynccontextmanager
async def _reaching_async() -> AsyncIterator[None]:
    with _reaching():
        yield
