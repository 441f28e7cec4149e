"""What becomes of the orchestrator's stream when its reader stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from proctor.orchestrator.v1 import run_service_pb2 as pb
from services.chassis.clock import SystemClock
from services.chassis.identity import DEFAULT_TENANT, IdentitySigner, Principal
from services.gateway import streams
from services.gateway.background import Background
from services.gateway.streams import Batches, RunStreams
from tests.support import run_events as script

ANN = Principal(tenant=DEFAULT_TENANT, user="ann")


class Call:
    """A stream of replies, which then ends or, without an `end`, stays open."""

    def __init__(self, replies: Sequence[pb.StartRunResponse], *, ends: bool) -> None:
        self.read_to_end = self.cancelled = False
        self._messages = self._read(replies, ends=ends)

    async def _read(self, replies: Sequence[pb.StartRunResponse], *, ends: bool) -> AsyncGenerator[Any]:
        for reply in replies:
            yield reply
        if not ends:
            await asyncio.Event().wait()
        self.read_to_end = True

    def __aiter__(self) -> AsyncGenerator[Any]:
        return self._messages

    def cancel(self) -> bool:
        self.cancelled = not self.read_to_end
        return self.cancelled


class Runs:
    """The stub, with the one call that it makes."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def StartRun(self, request: Any, **_: Any) -> Call:
        return self._call


def opened(call: Call, background: Background) -> Batches:
    return RunStreams(Runs(call), IdentitySigner("k" * 32, SystemClock()), background).start(ANN, pb.StartRunRequest())  # type: ignore[arg-type]


async def read(call: Call, batches: int) -> None:
    """Read so many batches and stop, and see what becomes of the rest."""
    background = Background()
    stream = opened(call, background)
    for _ in range(batches):
        await anext(stream)
    await stream.aclose()
    await background.settle(10)


def replies() -> list[pb.StartRunResponse]:
    return [pb.StartRunResponse(events=[event]) for event in script.journal(script.ANSWER)]


async def test_a_run_that_ended_is_read_to_its_streams_end() -> None:
    call = Call(replies(), ends=True)
    await read(call, len(replies()))
    assert call.read_to_end
    assert not call.cancelled


async def test_a_run_that_goes_on_is_given_up() -> None:
    call = Call(replies(), ends=True)
    await read(call, 1)
    assert call.cancelled


async def test_a_stream_that_does_not_end_with_its_run_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "ENDING", 0.01)
    call = Call(replies(), ends=False)
    await read(call, len(replies()))
    assert call.cancelled


async def test_the_end_of_a_run_does_not_wait_for_its_streams_end() -> None:
    call, background = Call(replies(), ends=False), Background()
    read = [batch async for batch in opened(call, background)]
    assert len(read) == len(replies())
    assert not call.cancelled
    await background.settle(0)
    assert call.cancelled
