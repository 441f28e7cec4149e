"""The blocking client."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from proctor.client import requests
from proctor.client.answer import Answer, fold
from proctor.client.errors import ConnectionLost
from proctor.client.follow import BACKOFF, Position
from proctor.client.grpc_transport import GrpcTransport, Token
from proctor.client.http_transport import HttpTransport
from proctor.orchestrator.v1.events_pb2 import RunEvent
from proctor.orchestrator.v1.run_service_pb2 import (
    CallDecision,
    ListRunsRequest,
    ListRunsResponse,
    ResumeRunRequest,
    RunState,
    StartRunRequest,
)
from proctor.orchestrator.v1.run_service_pb2 import Run as RunRecord


class Transport(Protocol):
    """A way to the server. Streams raise ConnectionLost when they break and may be opened again."""

    def start(self, request: StartRunRequest) -> Iterator[RunEvent]: ...

    def watch(self, run_id: str, after: int) -> Iterator[RunEvent]: ...

    def resume(self, request: ResumeRunRequest) -> Iterator[RunEvent]: ...

    def cancel(self, run_id: str) -> RunState.ValueType: ...

    def get(self, run_id: str) -> RunRecord: ...

    def list(self, request: ListRunsRequest) -> ListRunsResponse: ...

    def close(self) -> None: ...


class Run:
    """One run being followed. Iterate it for its events; `answer` is what they add up to so far.

    A lost connection is taken up again after the last event seen; none is given twice and none is missed.
    """

    def __init__(
        self,
        transport: Transport,
        open_first: Callable[[], Iterator[RunEvent]],
        position: Position,
        sleep: Callable[[float], None],
    ) -> None:
        self._transport = transport
        self._open_first = open_first
        self._position = position
        self._sleep = sleep
        self.answer = Answer(run_id=position.run_id)

    @property
    def run_id(self) -> str:
        """The run's id, empty until its first event."""
        return self._position.run_id

    def __iter__(self) -> Iterator[RunEvent]:
        position, opened = self._position, self._open_first
        while True:
            try:
                for event in opened():
                    if position.advance(event):
                        self.answer = fold(self.answer, event)
                        yield event
                self._check_end()
                return  # noqa: TRY300  # an ended stream of a working run is one more loss
            except ConnectionLost:
                wait = position.next_wait()
                if position.ended:
                    return
                if wait is None:
                    raise
                self._sleep(wait)
            if position.run_id:
                opened = self._watch

    def _check_end(self) -> None:
        """Raise ConnectionLost when a stream that ended in order left a run that works on."""
        position = self._position
        if position.settled or not position.run_id or position.is_past(self._transport.get(position.run_id)):
            return
        raise ConnectionLost("the server ended the stream of a run that works on", reason="UNAVAILABLE")

    def wait(self) -> Answer:
        """Read to the end, or to a pause that nobody has decided, and return the answer."""
        for _ in self:
            pass
        return self.answer

    def _watch(self) -> Iterator[RunEvent]:
        return self._transport.watch(self._position.run_id, self._position.after)


class Client:
    """Asks, watches, decides.

    `address` is the gateway's URL, or `grpc://host:port` (or `unix:/path`) of the orchestrator.
    `key` is an API key for HTTP; `token` makes signed service tokens for gRPC.
    """

    def __init__(
        self,
        address: str,
        key: str = "",
        *,
        token: Token | None = None,
        transport: Transport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        backoff: Sequence[float] = BACKOFF,
    ) -> None:
        self._transport = transport or _transport(address, key, token)
        self._sleep = sleep
        self._backoff = backoff

    def ask(self, question: requests.Question, **options: Any) -> Run:
        """Start a run and follow it; `options` are fields of StartRunRequest, and `agent`."""
        request = requests.start(question, f"client:{uuid.uuid4().hex}", **options)
        return self._run(lambda: self._transport.start(request), Position(backoff=self._backoff))

    def watch(self, run_id: str, after: int = 0) -> Run:
        """Follow a run that exists, after a sequence."""
        position = Position(run_id, after, self._backoff)
        return self._run(lambda: self._transport.watch(run_id, position.after), position)

    def resume(self, run_id: str, decisions: Sequence[CallDecision] = (), *, text: str = "", after: int = 0) -> Run:
        """Bring decisions to a paused run and follow what comes."""
        request = requests.resume(run_id, decisions, text, after)
        return self._run(lambda: self._transport.resume(request), Position("", after, self._backoff))

    def cancel(self, run_id: str) -> RunState.ValueType:
        """Ask a run to stop; returns its state then."""
        return self._transport.cancel(run_id)

    def get(self, run_id: str) -> RunRecord:
        """Return one run."""
        return self._transport.get(run_id)

    def runs(self, **filters: Any) -> Iterator[RunRecord]:
        """Yield the caller's runs, newest first, page by page; `filters` are fields of ListRunsRequest."""
        request = ListRunsRequest(**filters)
        while True:
            page = self._transport.list(request)
            yield from page.runs
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def close(self) -> None:
        """Close the connections. Runs go on."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, open_first: Callable[[], Iterator[RunEvent]], position: Position) -> Run:
        return Run(self._transport, open_first, position, self._sleep)


def _transport(address: str, key: str, token: Token | None) -> Transport:
    if address.startswith(("http://", "https://")):
        return HttpTransport(address, key)
    return GrpcTransport(address.removeprefix("grpc://"), token)
