"""A run's events as a client's stream: heartbeats, and an end where a pause is not waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from services.orchestrator.codec_events import EventEncoder, kind_of, stamped
from services.orchestrator.domain.events import (
    AnswerDelta,
    Event,
    Notice,
    RunCancelled,
    RunPaused,
    StampedEvent,
    ThinkingDelta,
)
from services.orchestrator.domain.run import RunState
from services.orchestrator.journal.feed import Feed, FeedLimits, Tail
from services.orchestrator.journal.ports import RunStatus
from services.orchestrator.streams import follow
from tests.support.orchestrator_kit import START

HOUR = timedelta(hours=1)
SOON = timedelta(milliseconds=10)
NOTE = Notice(code="n", text="told")
TEXT = AnswerDelta(text="Hi", model_call_id="c1")
PAUSE = RunPaused(pending=(), deadline=None)
END = RunCancelled(cancelled_by="ann")


class Log:
    """A store without events that answers when it may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.cancelled = False

    async def events(self, run_id: str, after: int, *, limit: int, max_bytes: int) -> Sequence[StampedEvent]:
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return []

    async def status(self, run_id: str) -> RunStatus:
        return RunStatus(state=RunState.RUNNING, last_sequence=0, oldest_sequence=1)


def told(event: Event, sequence: int) -> StampedEvent:
    return stamped(sequence, kind_of(event), EventEncoder("r1", attempt=1).encode(event, sequence=sequence, at=START))


@pytest.fixture
async def log() -> Log:
    return Log()


def stream(feed: Feed, **how: Any) -> Any:
    return aclosing(follow(feed, "r1", after=0, **{"hold": None, "heartbeat": HOUR, **how}))


@asynccontextmanager
async def live(feed: Feed, **how: Any) -> AsyncIterator[tuple[Tail, Any]]:
    """Follow a run that this process writes."""
    tail = feed.tail("r1")
    tail.open(0)
    async with stream(feed, **how) as batches:
        yield tail, batches


async def turns() -> None:
    """Let a reader that was woken come and go."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@pytest.mark.parametrize("event", [TEXT, ThinkingDelta(text="Hm", model_call_id="c1"), PAUSE, END])
async def test_what_is_waited_for_leaves_in_the_next_turn_of_the_loop(log: Log, event: Event) -> None:
    async with live(Feed(log, FeedLimits(gather=3600))) as (tail, batches):
        upcoming = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0)
        tail.publish([told(event, 1)])
        await turns()
        assert [event.sequence for event in upcoming.result()] == [1]


async def test_progress_leaves_in_one_message_with_the_text_behind_it(log: Log) -> None:
    async with live(Feed(log, FeedLimits(gather=3600))) as (tail, batches):
        upcoming = asyncio.ensure_future(anext(batches))
        for event, sequence in ((NOTE, 1), (NOTE, 2), (TEXT, 3)):
            await turns()
            assert not upcoming.done()
            tail.publish([told(event, sequence)])
        assert [event.sequence for event in await upcoming] == [1, 2, 3]


async def test_progress_that_no_text_follows_leaves_by_itself(log: Log) -> None:
    async with live(Feed(log, FeedLimits(gather=0.001))) as (tail, batches):
        for sequence in (1, 2):
            tail.publish([told(NOTE, sequence)])
            assert [event.sequence for event in await anext(batches)] == [sequence]


async def test_a_process_that_ends_does_not_gather(log: Log) -> None:
    feed = Feed(log, FeedLimits(gather=3600))
    async with live(feed) as (tail, batches):
        upcoming = asyncio.ensure_future(anext(batches))
        tail.publish([told(NOTE, 1)])
        await turns()
        feed.close()
        assert [event.sequence for event in await upcoming] == [1]


async def test_a_silent_run_has_a_heartbeat_and_a_speaking_one_does_not(log: Log) -> None:
    async with live(Feed(log, FeedLimits(poll=0.001)), heartbeat=SOON) as (tail, batches):
        assert await anext(batches) == ()
        assert await anext(batches) == ()
        tail.publish([told(NOTE, 1)])
        assert [event.sequence for event in await anext(batches)] == [1]


async def test_a_store_that_does_not_answer_holds_no_heartbeat_back_and_is_left_with_the_stream(log: Log) -> None:
    feed = Feed(log, FeedLimits())
    async with stream(feed, heartbeat=SOON) as batches:
        assert await anext(batches) == ()
        assert await anext(batches) == ()
    assert log.cancelled


async def test_a_pause_is_waited_for_as_long_as_the_client_holds(log: Log) -> None:
    feed = Feed(log, FeedLimits())
    tail = feed.tail("r1")
    tail.open(0)
    tail.publish([told(RunPaused(pending=(), deadline=None), 1)])
    for hold, batches_seen in ((timedelta(), 1), (SOON, 1)):
        async with stream(feed, hold=hold) as batches:
            assert len([batch async for batch in batches]) == batches_seen


async def test_a_reader_that_is_cancelled_ends_no_other(log: Log) -> None:
    feed = Feed(log, FeedLimits())
    tail = feed.tail("r1")
    tail.open(0)
    async with stream(feed) as one, stream(feed) as two:
        leaving, staying = asyncio.ensure_future(anext(one)), asyncio.ensure_future(anext(two))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait({leaving})
        tail.publish([told(NOTE, 1)])
        assert [event.sequence for event in await staying] == [1]
    assert tail.readers == 0
