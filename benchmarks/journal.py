"""The journal: events per second, checkpoints, recovery, resume latency, and what recording costs the loop.

Usage: `python benchmarks/journal.py [--url URL] [--runs N] [--events N]`. A new SQLite file by default; `--url` takes
an empty PostgreSQL database. Absolute figures belong to the machine; those that count are ratios of one run: grouped
commits over one transaction per run, a text delta over a committed fact, a resume from memory over one from the store.
Ends with 1 when grouping does not pay or a delta is not far cheaper than a commit.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "protos" / "gen")]

from services.chassis.clock import SystemClock  # noqa: E402
from services.orchestrator.adapters.sql.database import Database  # noqa: E402
from services.orchestrator.codec_events import EventEncoder, frame, stamped  # noqa: E402
from services.orchestrator.domain.events import AnswerDelta, Notice, RunCompleted, StampedEvent  # noqa: E402
from services.orchestrator.domain.run import Checkpoint, Segment  # noqa: E402
from services.orchestrator.journal.feed import Feed, FeedLimits  # noqa: E402
from services.orchestrator.journal.journal import RunJournal  # noqa: E402
from services.orchestrator.journal.journals import Journals  # noqa: E402
from services.orchestrator.journal.ports import LeaseTerms, Ownership, RunStore, RunWrite, WriteResult  # noqa: E402
from tests.support.journal_kit import new_run  # noqa: E402

GROUPING_PAYS = 1.5
DELTA_OVER_FACT = 0.05


class Apart:
    """A store that writes each run of a batch in its own transaction, to compare with."""

    def __init__(self, store: RunStore) -> None:
        self._store = store

    async def write(self, batch: Sequence[RunWrite], terms: LeaseTerms) -> Sequence[WriteResult]:
        return [result for piece in batch for result in await self._store.write([piece], terms)]


@asynccontextmanager
async def journals_over(database: Database, owner: str) -> AsyncIterator[tuple[Journals, Feed]]:
    feed = Feed(database.runs, FeedLimits())
    terms = LeaseTerms(owner=owner, duration=timedelta(minutes=5))
    journals = Journals(database.runs, feed, database.signals, SystemClock(), terms)
    await journals.start()
    yield journals, feed
    await journals.close()


async def opened(journals: Journals) -> RunJournal:
    journal = (await journals.admit(new_run())).journal
    assert journal is not None
    return journal


async def throughput(store: RunStore | Apart, owned: Sequence[Ownership], events: int, each: int = 20) -> float:
    """Return events per second when every run writes `events`, `each` per commit."""
    terms = LeaseTerms(owner="bench", duration=timedelta(minutes=5))
    encoders = [EventEncoder(run.run.run_id, 1) for run in owned]
    now = SystemClock().now()
    delta = AnswerDelta(text="some twenty letters ", model_call_id="call-1")
    starts = {run.run.run_id: (await _last(store, run)) for run in owned}
    began = time.perf_counter()
    for base in range(0, events, each):
        batch = []
        for run, encoder in zip(owned, encoders, strict=True):
            first = starts[run.run.run_id] + base + 1
            page = [
                stamped(sequence, 14, encoder.encode(delta, sequence=sequence, at=now))
                for sequence in range(first, first + each)
            ]
            batch.append(_write(run, page))
        await store.write(batch, terms)
    return events * len(owned) / (time.perf_counter() - began)


async def _last(store: RunStore | Apart, run: Ownership) -> int:
    inner = store._store if isinstance(store, Apart) else store  # noqa: SLF001 - ours
    return (await inner.status(run.run.run_id)).last_sequence


def _write(run: Ownership, page: Sequence[StampedEvent]) -> RunWrite:
    last = page[-1].sequence
    return RunWrite(
        run_id=run.run.run_id,
        owner=run.owner,
        epoch=run.epoch,
        last_sequence=last,
        reserved_until=last + 256,
        events=tuple(page),
    )


async def grouping(database: Database, runs: int, events: int) -> float:
    owned = []
    for _ in range(runs):
        admission = await database.runs.admit(new_run(), LeaseTerms(owner="bench", duration=timedelta(minutes=5)))
        assert admission.ownership is not None
        owned.append(admission.ownership)
    apart = await throughput(Apart(database.runs), owned, events)
    grouped = await throughput(database.runs, owned, events)
    print(f"events per second, {runs} runs: one transaction per run {apart:,.0f}, grouped {grouped:,.0f}")
    print(f"  grouped over apart: {grouped / apart:.2f}")
    return grouped / apart


async def recording(database: Database) -> float:
    """Return what `delta` costs over what a committed fact takes."""
    async with journals_over(database, "recording") as (journals, _):
        journal = await opened(journals)
        facts = []
        for n in range(200):
            began = time.perf_counter()
            await journal.fact(Notice(code="n", text=str(n)))
            facts.append(time.perf_counter() - began)
        delta = AnswerDelta(text="word ", model_call_id="call-1")
        began = time.perf_counter()
        for _ in range(20_000):
            journal.delta(delta)
        cost = (time.perf_counter() - began) / 20_000
        await journal.finish(RunCompleted(message_id="m", text=""))
    fact = statistics.median(facts)
    print(f"recording: delta {cost * 1e6:.2f} µs, committed fact {fact * 1e3:.2f} ms (median), ratio {cost / fact:.5f}")
    return cost / fact


async def checkpoints(database: Database) -> None:
    async with journals_over(database, "checkpoints") as (journals, _):
        journal = await opened(journals)
        for size in (2_000, 20_000, 200_000):
            took = []
            for n in range(30):
                segment = Segment(digest=n.to_bytes(4) + size.to_bytes(4), kind="messages", content=b"m" * size)
                saved = Checkpoint(head=b"h" * 2_000, min_reader=1, new_segments=(segment,))
                began = time.perf_counter()
                await journal.fact(Notice(code="n", text=""), checkpoint=saved)
                took.append(time.perf_counter() - began)
            print(f"checkpoint of 2,000 + {size:,} new bytes: {statistics.median(took) * 1e3:.2f} ms (median of 30)")
        began = time.perf_counter()
        saved_state = await database.runs.load_checkpoint(journal.run_id)
        size = sum(map(len, saved_state.segments.values()))
        print(f"loading a checkpoint of {size:,} bytes: {(time.perf_counter() - began) * 1e3:.2f} ms")
        await journal.finish(RunCompleted(message_id="m", text=""))


async def recovery(database: Database) -> None:
    """Time from an ended lease to the first event of the next owner."""
    async with journals_over(database, "dies") as (journals, _), journals_over(database, "takes over") as (others, _):
        took = []
        for _ in range(30):
            journal = await opened(journals)
            await journal.fact(Notice(code="n", text=""))
            async with database.engine.begin() as connection:
                await connection.exec_driver_sql(f"UPDATE runs SET lease_until = 0 WHERE run_id = '{journal.run_id}'")
            began = time.perf_counter()
            (orphan,) = await database.runs.orphans()
            taken = await others.claim(orphan.run_id)
            assert taken is not None
            await database.runs.load_checkpoint(orphan.run_id)
            await taken.fact(Notice(code="n", text=""))
            took.append(time.perf_counter() - began)
            await taken.finish(RunCompleted(message_id="m", text=""))
    print(f"recovery: {statistics.median(took) * 1e3:.2f} ms from a free run to its next event (median of 30)")


async def resuming(database: Database) -> None:
    """Time from asking to the first event, of a run in memory and of one in the store; pages of a long run."""
    async with journals_over(database, "resuming") as (journals, feed):
        journal = await opened(journals)
        for n in range(20):
            await journal.fact(*(Notice(code="n", text=str(n)) for _ in range(500)))
        memory = await _first_event(feed, journal.run_id, journal.last_sequence - 5)
        store = await _first_event(Feed(database.runs, FeedLimits()), journal.run_id, journal.last_sequence - 5)
        print(f"resume latency: from memory {memory * 1e3:.3f} ms, from the store {store * 1e3:.2f} ms (medians)")
        print(f"  store over memory: {store / memory:.0f}")
        await journal.finish(RunCompleted(message_id="m", text=""))
        began = time.perf_counter()
        count = size = 0
        async for batch in feed.watch(journal.run_id):
            count += len(batch)
            size += len(frame(batch))
        took = time.perf_counter() - began
        print(f"replaying {count:,} events, {size:,} bytes: {count / took:,.0f} events/s")


async def _first_event(feed: Feed, run_id: str, after: int) -> float:
    took = []
    for _ in range(50):
        began = time.perf_counter()
        async with aclosing(feed.watch(run_id, after)) as watching:
            await anext(watching)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


async def measure(url: str, runs: int, events: int) -> int:
    database = await Database.open(url, SystemClock())
    print(f"database: {database.engine.dialect.name}")
    gain = await grouping(database, runs, events)
    cost = await recording(database)
    await checkpoints(database)
    await recovery(database)
    await resuming(database)
    await database.close()
    failed = []
    if gain < GROUPING_PAYS:
        failed.append(f"grouped commits are only {gain:.2f} times as fast; {GROUPING_PAYS} expected")
    if cost > DELTA_OVER_FACT:
        failed.append(f"a delta costs {cost:.4f} of a commit; {DELTA_OVER_FACT} allowed")
    print("\n".join(failed) or "ok")
    return int(bool(failed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="", help="an empty database; a new SQLite file by default")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--events", type=int, default=400, help="events per run")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = chosen.url or f"sqlite:///{folder}/journal.sqlite3"
        return asyncio.run(measure(url, chosen.runs, chosen.events))


if __name__ == "__main__":
    sys.exit(main())
