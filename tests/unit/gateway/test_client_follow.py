"""The Python clients over a server whose streams end in order while their run works on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from proctor.client import AsyncClient, Client, ConnectionLost
from proctor.orchestrator.v1.events_pb2 import RunEvent
from proctor.orchestrator.v1.run_service_pb2 import Run, RunState
from tests.support.run_events import ANSWER, approval_requested, journal, paused, started

WHOLE = journal(ANSWER)
WAITING = journal([started(), approval_requested(), paused("call_1")])
RUNNING, PAUSED, COMPLETED = RunState.RUN_STATE_RUNNING, RunState.RUN_STATE_PAUSED, RunState.RUN_STATE_COMPLETED

AWAY = RunState.RUN_STATE_UNSPECIFIED


class Ending:
    """A transport whose n-th stream ends in order after `lengths[n]` events; the run's state then is `states[n]`."""

    def __init__(self, events: list[RunEvent], lengths: list[int], states: list[RunState.ValueType]) -> None:
        self.events, self.lengths, self.states = events, lengths, states
        self.opened: list[int] = []

    def start(self, request: Any) -> Iterator[RunEvent]:
        return self.watch("", 0)

    def watch(self, run_id: str, after: int) -> Iterator[RunEvent]:
        self.opened.append(after)
        rest = [event for event in self.events if event.sequence > after]
        length = self.lengths.pop(0) if self.lengths else len(rest)
        return iter(rest[:length])

    def get(self, run_id: str) -> Run:
        if self.states[0] == AWAY:
            self.states.pop(0)
            raise ConnectionLost("nobody there")
        return Run(run_id=run_id, state=self.states.pop(0), last_sequence=self.events[-1].sequence)


class AsyncEnding(Ending):
    def watch(self, run_id: str, after: int) -> Any:
        events = list(super().watch(run_id, after))

        async def stream() -> AsyncIterator[RunEvent]:
            for event in events:
                yield event

        return stream()

    async def get(self, run_id: str) -> Run:  # type: ignore[override]
        return super().get(run_id)


async def nothing(_: float) -> None: ...


async def read(style: str, ending: type[Ending], *arguments: Any, watch: int | None = None) -> tuple[list[int], Any]:
    transport: Any = ending(*arguments)
    if style == "sync":
        sync = Client("", transport=transport, sleep=lambda _: None, backoff=(0.0, 0.0))
        run: Any = sync.ask("x") if watch is None else sync.watch(WHOLE[0].run_id, watch)
        return [event.sequence for event in run], transport
    client = AsyncClient("", transport=transport, sleep=nothing, backoff=(0.0, 0.0))
    run = client.ask("x") if watch is None else client.watch(WHOLE[0].run_id, watch)
    return [event.sequence async for event in run], transport


@pytest.mark.parametrize(("style", "ending"), [("sync", Ending), ("async", AsyncEnding)])
class TestStreamsThatEndInOrder:
    async def test_a_server_that_stops_is_asked_again(self, style: str, ending: type[Ending]) -> None:
        got, transport = await read(style, ending, WHOLE, [3, 0, 2], [AWAY, RUNNING, COMPLETED])
        assert got == [event.sequence for event in WHOLE]
        assert transport.opened == [0, 3, 3, 5]

    async def test_a_finished_run_that_was_seen_to_its_end_is_no_loss(self, style: str, ending: type[Ending]) -> None:
        got, transport = await read(style, ending, WHOLE, [], [COMPLETED], watch=WHOLE[-1].sequence)
        assert (got, len(transport.opened)) == ([], 1)

    async def test_a_pause_ends_the_reading(self, style: str, ending: type[Ending]) -> None:
        got, transport = await read(style, ending, WAITING, [3], [])
        assert (got, len(transport.opened)) == ([1, 2, 3], 1)
        got, transport = await read(style, ending, WAITING, [0], [PAUSED], watch=3)
        assert (got, len(transport.opened)) == ([], 1)

    async def test_a_server_that_never_goes_on_is_told(self, style: str, ending: type[Ending]) -> None:
        with pytest.raises(ConnectionLost, match="works on"):
            await read(style, ending, WHOLE, [2, 0, 0, 0], [RUNNING] * 4)
