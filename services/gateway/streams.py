"""A run's events as one unbroken stream, also when the connection to the orchestrator breaks in between."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import grpc
from google.protobuf.duration_pb2 import Duration

from proctor.orchestrator.v1 import events_pb2, run_service_pb2
from services.chassis.identity import IdentitySigner, Principal
from services.gateway.backends import STREAM_TIMEOUT, UNARY_TIMEOUT
from services.gateway.background import Background
from services.gateway.projections.native import is_terminal

if TYPE_CHECKING:
    from proctor.orchestrator.v1.run_service_pb2_grpc import RunServiceAsyncStub

log = logging.getLogger(__name__)

Batch = Sequence[events_pb2.RunEvent]
Batches = AsyncGenerator[Batch]
# A stream that ended with one of these is watched again: it aged, or its server went away; the run did not.
RECONNECT = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
# Waits between tries without progress; after the last one the failure is the caller's to see.
BACKOFF = (0.05, 0.2, 0.5, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0)

# Seconds that a stream may take to end after its run's last event.
ENDING = 1.0


class Reply(Protocol):
    """What the three streaming RPCs have in common."""

    @property
    def events(self) -> Batch: ...


class Call(Protocol):
    """A stream of replies that can be given up."""

    def __aiter__(self) -> AsyncIterator[Reply]: ...

    def cancel(self) -> bool: ...


class RunStreams:
    """Opens the orchestrator's event streams for a principal and keeps them whole."""

    def __init__(
        self,
        runs: RunServiceAsyncStub,
        signer: IdentitySigner,
        background: Background,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        backoff: Sequence[float] = BACKOFF,
    ) -> None:
        self._runs = runs
        self._signer = signer
        self._background = background
        self._sleep = sleep
        self._backoff = backoff

    def start(self, principal: Principal, request: run_service_pb2.StartRunRequest) -> Batches:
        """Start a run and yield its events. `request_id` must be set, which makes a second try join the first."""
        return self._unbroken(principal, lambda: self._call(self._runs.StartRun, principal, request), request.hold)

    def resume(self, principal: Principal, request: run_service_pb2.ResumeRunRequest) -> Batches:
        """Bring decisions and yield the events from the resume on."""
        return self._unbroken(
            principal,
            lambda: self._call(self._runs.ResumeRun, principal, request),
            request.hold,
            request.after_sequence,
        )

    def watch(
        self, principal: Principal, run_id: str, after: int = 0, hold: Duration | None = None, *, replay: bool = False
    ) -> Batches:
        """Yield the run's events after a sequence; `replay` ends after those that are kept now."""
        request = run_service_pb2.WatchRunRequest(run_id=run_id, after_sequence=after, hold=hold, replay_only=replay)
        return self._unbroken(principal, lambda: self._call(self._runs.WatchRun, principal, request), hold, after)

    async def cancel(self, principal: Principal, run_id: str) -> None:
        """Ask a run to stop."""
        request = run_service_pb2.CancelRunRequest(run_id=run_id)
        await self._runs.CancelRun(request, metadata=self._signer.metadata(principal), timeout=UNARY_TIMEOUT)

    def _call(self, method: Callable[..., Call], principal: Principal, request: object) -> Call:
        return method(request, metadata=self._signer.metadata(principal), timeout=STREAM_TIMEOUT)

    async def _unbroken(
        self, principal: Principal, first: Callable[[], Call], hold: Duration | None, after: int = 0
    ) -> Batches:
        """Yield the events of `first` and, when it breaks, of watches after what was seen. A clean end is the end."""
        position = _Position(after)
        tries = 0
        while True:
            call = self._rewatch(principal, position, hold) if position.run_id else first()
            try:
                async for reply in call:
                    batch = position.advance(reply.events)
                    if batch:
                        tries = 0
                        yield batch
                    if position.ended:
                        return
            except grpc.RpcError as error:
                if error.code() not in RECONNECT or tries >= len(self._backoff):
                    raise
                log.info(
                    "watching a run again",
                    extra={"event": "run.rewatched", "run_id": position.run_id, "after": position.last},
                )
            else:
                return
            finally:
                # Nobody should wait for the end of a stream that has nothing more to say.
                if position.ended:
                    self._background.spawn(_read_to_end(call), "read a run's stream to its end")
                else:
                    call.cancel()
            await self._sleep(self._backoff[tries])
            tries += 1

    def _rewatch(self, principal: Principal, position: _Position, hold: Duration | None) -> Call:
        request = run_service_pb2.WatchRunRequest(run_id=position.run_id, after_sequence=position.last, hold=hold)
        return self._call(self._runs.WatchRun, principal, request)


async def _read_to_end(call: Call) -> None:
    """Let a stream end by itself: to cancel it costs both sides more, and counts as a failure."""
    try:
        with contextlib.suppress(TimeoutError, grpc.RpcError):
            async with asyncio.timeout(ENDING):
                async for _ in call:
                    pass
    finally:
        call.cancel()


class _Position:
    """How far a stream has come: the last sequence, and whether it was the terminal event's."""

    def __init__(self, after: int) -> None:
        self.run_id = ""
        self.last = after
        self.ended = False

    def advance(self, events: Batch) -> Batch:
        """Return the events not seen before, and move past them."""
        fresh = [event for event in events if event.sequence > self.last]
        if fresh:
            newest = fresh[-1]
            self.run_id, self.last = newest.run_id, newest.sequence
            self.ended = is_terminal(newest)
        return fresh
