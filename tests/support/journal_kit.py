"""What tests of the journal need: a store, journals over it, new runs."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from services.chassis.clock import Clock, SystemClock
from services.chassis.telemetry import Telemetry
from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.codec_events import decode
from services.orchestrator.domain.events import AnswerDelta, Event, RunCompleted, StampedEvent
from services.orchestrator.domain.messages import Role, Usage, text_message
from services.orchestrator.domain.run import Checkpoint, NewRun, Run, RunState, Segment
from services.orchestrator.journal.feed import Feed, FeedLimits
from services.orchestrator.journal.journal import Interrupt, RunJournal
from services.orchestrator.journal.journals import Journals
from services.orchestrator.journal.ports import LeaseTerms, RunStore
from services.orchestrator.journal.writer import Pacing

_numbers = itertools.count(1)
NO_USAGE = Usage()
ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """Return the environment of a child process that can import what this one can."""
    paths = [str(ROOT), str(ROOT / "protos" / "gen")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def new_run(run_id: str = "", **changes: Any) -> NewRun:
    """Return a run to admit; `changes` go to the NewRun or to its Run, whichever has the field."""
    run_id = run_id or f"run-{next(_numbers)}"
    now = SystemClock().now()
    run = Run(
        run_id=run_id,
        tenant="acme",
        user="ann",
        state=RunState.RUNNING,
        agent_id="helper",
        agent_name="Helper",
        agent_version=3,
        model="scripted",
        created_at=now,
        updated_at=now,
        question="What?",
        labels={"team": "it"},
        trace_id="t" * 32,
    )
    own = {key: changes.pop(key) for key in list(changes) if key in Run.__dataclass_fields__}
    new = NewRun(
        run=replace(run, **own),
        request_digest="d1",
        checkpoint=Checkpoint(
            head=b"head-1", min_reader=1, new_segments=(Segment(digest=b"s1", kind="agent", content=b"agent"),)
        ),
        user_message=None,
    )
    return replace(new, **changes)


def in_conversation(conversation_id: str, text: str = "What?", **changes: Any) -> NewRun:
    """Return a run of a conversation that is made when it does not exist."""
    message = replace(text_message(Role.USER, text), message_id=f"q-{next(_numbers)}")
    return new_run(conversation_id=conversation_id, title="A talk", user_message=message, **changes)


async def interruption(journal: RunJournal) -> Interrupt:
    """Wait until the run's work must stop, and return why."""
    told: asyncio.Future[Interrupt] = asyncio.get_running_loop().create_future()
    journal.when_interrupted(told.set_result)
    return await told


def completed(text: str = "done", usage: Usage = NO_USAGE) -> RunCompleted:
    return RunCompleted(message_id="m1", text=text, usage=usage)


def answer(text: str, call: str = "m1") -> AnswerDelta:
    return AnswerDelta(text=text, model_call_id=call)


def decoded(batch: tuple[StampedEvent, ...] | list[StampedEvent]) -> list[Event | None]:
    return [decode(event.payload).event for event in batch]


def answer_text(batch: list[StampedEvent]) -> str:
    """Return all answer text of events in order."""
    return "".join(event.text for event in decoded(batch) if isinstance(event, AnswerDelta))


@dataclass(slots=True)
class Replica:
    """One process's worth of journal over a database."""

    database: Database
    feed: Feed
    journals: Journals
    seen: dict[str, list[StampedEvent]] = field(default_factory=dict)

    async def read(self, run_id: str, after: int = 0, *, live: bool = True) -> list[StampedEvent]:
        """Return a run's events after `after` until the feed ends."""
        return [event async for batch in self.feed.watch(run_id, after, live=live) for event in batch]


@asynccontextmanager
async def replica(
    database: Database,
    owner: str = "one",
    *,
    clock: Clock | None = None,
    lease: float = 10.0,
    limits: FeedLimits | None = None,
    pacing: Pacing | None = None,
    block: int = 256,
    store: Callable[[RunStore], RunStore] = lambda store: store,
    telemetry: Telemetry | None = None,
) -> AsyncIterator[Replica]:
    """Run a journal over `database` until the block ends; `store` may wrap the run store."""
    runs = store(database.runs)
    feed = Feed(runs, limits or FeedLimits(poll=0.2))
    terms = LeaseTerms(owner=owner, duration=timedelta(seconds=lease), block=block)
    journals = Journals(runs, feed, database.signals, clock or SystemClock(), terms, pacing, telemetry)
    await journals.start()
    try:
        yield Replica(database, feed, journals)
    finally:
        await journals.close()
