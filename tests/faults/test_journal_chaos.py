"""Real processes killed, stopped and cut off at random points of random runs: nothing lost or doubled, one end each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from services.chassis.clock import SystemClock
from services.chassis.database import open_engine
from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.adapters.sql.signals import NoSignals
from services.orchestrator.codec_events import decode
from services.orchestrator.domain.events import AnswerDelta, Notice, StampedEvent
from services.orchestrator.domain.run import Checkpoint, RunState
from services.orchestrator.journal.feed import Feed, FeedLimits
from services.orchestrator.journal.ports import LeaseTerms
from tests.support.journal_kit import environment, new_run
from tests.support.journal_worker import STEPS, step_text

# Long enough that a loaded machine renews in time: shorter ones only make owners change for no fault.
LEASE = 1.5

# Twenty seeds of each kind are some hundred faults; PROCTOR_CHAOS_SEEDS=500 keeps a machine busy for about an hour.
SEEDS = range(2, 2 + int(os.environ.get("PROCTOR_CHAOS_SEEDS", "20")))


@dataclass(slots=True)
class Zygote:
    """Forks workers that have everything imported already."""

    process: asyncio.subprocess.Process
    log: Path
    alive: list[int] = field(default_factory=list)
    made: int = 0

    async def fork(self, url: str) -> int:
        """Start a worker and return its pid."""
        self.made += 1
        order = {"url": url, "owner": f"w{self.made}", "lease": LEASE, "log": str(self.log), "alarm": 900}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        pid = int(await self.process.stdout.readline())
        self.alive.append(pid)
        return pid

    def kill(self, pid: int) -> None:
        self.alive.remove(pid)
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
async def zygote(tmp_path: Path) -> AsyncIterator[Zygote]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.journal_worker",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    made = Zygote(process, tmp_path / "workers.log")
    yield made
    for pid in list(made.alive):
        with contextlib.suppress(ProcessLookupError):
            made.kill(pid)
    assert process.stdin is not None
    process.stdin.close()
    await process.wait()


class Proxy:
    """Passes bytes between a worker and the database until it is told to cut, or falls silent."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, far_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer))
                group.create_task(self._pump(far_reader, writer))
        except* (OSError, asyncio.CancelledError):
            pass
        self._writers -= {writer, far_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self.flowing.wait()
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    def cut(self) -> None:
        """Reset every connection in the middle of whatever it does."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()


@asynccontextmanager
async def proxy_to(url: str) -> AsyncIterator[Proxy]:
    """Stand between workers and the database at `url`."""
    proxy = Proxy(make_url(url).port or 5432)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()


@asynccontextmanager
async def observer(url: str) -> AsyncIterator[Database]:
    """Read a database that workers hold, without holding it."""
    database = Database(open_engine(url), SystemClock(), NoSignals(), None)
    try:
        yield database
    finally:
        await database.close()


async def admit(url: str, count: int) -> list[str]:
    """Make runs that any worker may take."""
    database = await Database.open(url, SystemClock())
    names = []
    for _ in range(count):
        new = replace(new_run(), checkpoint=Checkpoint(head=b"0", min_reader=1))
        admission = await database.runs.admit(new, LeaseTerms(owner="nobody"))
        await database.runs.release(admission.run.run_id, "nobody", 1)
        names.append(admission.run.run_id)
    await database.close()
    return names


async def read_restlessly(database: Database, run_id: str, chance: random.Random) -> list[StampedEvent]:
    """Watch a run, leaving and coming back with the last sequence, to its end."""
    feed = Feed(database.runs, FeedLimits(poll=0.05, join_from=10_000, batch_events=chance.choice((1, 3, 500))))
    seen: list[StampedEvent] = []
    while not (seen and seen[-1].terminal):
        patience = chance.randint(1, 6)
        async with aclosing(feed.watch(run_id, seen[-1].sequence if seen else 0)) as watching:
            async for batch in watching:
                seen += batch
                patience -= 1
                if patience == 0:
                    break
    return seen


def check(stored: list[StampedEvent], seen: list[StampedEvent]) -> None:
    """One run: every step once and in order, all its text before it, one end; a reader saw just that."""
    assert [event.terminal for event in stored] == [False] * (len(stored) - 1) + [True]
    sequences = [event.sequence for event in stored]
    assert sequences == sorted(set(sequences))
    assert [event.sequence for event in seen] == sequences
    steps = []
    written: dict[str, str] = defaultdict(str)
    for recorded in (decode(event.payload) for event in stored):
        if isinstance(recorded.event, AnswerDelta):
            written[recorded.event.model_call_id] += recorded.event.text
        elif isinstance(recorded.event, Notice):
            step = int(recorded.event.text)
            steps.append(step)
            assert written[f"{recorded.attempt}/{step}"].endswith(step_text(step))
    assert steps == list(range(STEPS))


async def verify(url: str, runs: list[str], seen: list[list[StampedEvent]]) -> None:
    """Check every run against what its reader saw."""
    async with observer(url) as database:
        for run_id, shown in zip(runs, seen, strict=True):
            stored = list(await database.runs.events(run_id, 0, limit=10_000, max_bytes=10_000_000))
            check(stored, shown)


async def survive_on_sqlite(zygote: Zygote, url: str, rounds: int, seed: int) -> None:
    """Kill the only owner again and again; each successor goes on."""
    chance = random.Random(seed)
    runs = await admit(url, 4)
    pid = await zygote.fork(url)
    async with observer(url) as database, asyncio.timeout(600), asyncio.TaskGroup() as group:
        readers = [group.create_task(read_restlessly(database, run_id, chance)) for run_id in runs]
        for _ in range(rounds):
            await asyncio.sleep(chance.uniform(0.05, 0.4))
            zygote.kill(pid)
            pid = await zygote.fork(url)
    zygote.kill(pid)
    await verify(url, runs, [reader.result() for reader in readers])


async def survive_on_postgres(zygote: Zygote, url: str, rounds: int, seed: int) -> None:
    """Kill, stop, cut off and silence owners at random while others take their runs over."""
    chance = random.Random(seed)
    runs = await admit(url, 6)
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(proxy_to(url)) for _ in range(3)]
        through = [make_url(url).set(port=proxy.port).render_as_string(hide_password=False) for proxy in proxies]
        workers = [await zygote.fork(target) for target in through]
        database = await stack.enter_async_context(observer(url))
        async with asyncio.timeout(600), asyncio.TaskGroup() as group:
            readers = [group.create_task(read_restlessly(database, run_id, chance)) for run_id in runs]
            for _ in range(rounds):
                await asyncio.sleep(chance.uniform(0.02, 0.3))
                victim = chance.randrange(3)
                match chance.choice(("kill", "stop", "silence", "cut")):
                    case "kill":
                        zygote.kill(workers[victim])
                        workers[victim] = await zygote.fork(through[victim])
                    case "stop":
                        os.kill(workers[victim], signal.SIGSTOP)
                        await asyncio.sleep(chance.uniform(0, 2 * LEASE))
                        os.kill(workers[victim], signal.SIGCONT)
                    case "silence":
                        proxies[victim].flowing.clear()
                        await asyncio.sleep(chance.uniform(0, 2 * LEASE))
                        proxies[victim].flowing.set()
                    case _:
                        proxies[victim].cut()
        for pid in workers:
            zygote.kill(pid)
    await verify(url, runs, [reader.result() for reader in readers])


async def test_runs_survive_the_death_of_their_only_owner(zygote: Zygote, sqlite_url: str) -> None:
    await survive_on_sqlite(zygote, sqlite_url, rounds=4, seed=1)


async def test_runs_survive_dead_stopped_and_cut_off_replicas(zygote: Zygote, postgres_url: str) -> None:
    await survive_on_postgres(zygote, postgres_url, rounds=6, seed=1)


@pytest.mark.prove
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
async def test_runs_survive_hundreds_of_deaths_of_their_only_owner(zygote: Zygote, sqlite_url: str, seed: int) -> None:
    await survive_on_sqlite(zygote, sqlite_url, rounds=12, seed=seed)


@pytest.mark.prove
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
async def test_runs_survive_hundreds_of_faults_of_replicas(zygote: Zygote, postgres_url: str, seed: int) -> None:
    await survive_on_postgres(zygote, postgres_url, rounds=15, seed=seed)


async def test_a_stopped_owner_is_replaced_in_time_and_fenced_when_it_wakes(zygote: Zygote, postgres_url: str) -> None:
    runs = await admit(postgres_url, 3)
    first = await zygote.fork(postgres_url)
    async with observer(postgres_url) as database, asyncio.timeout(60):
        while any([(await database.runs.find(run_id)).last_sequence == 0 for run_id in runs]):
            await asyncio.sleep(0.005)
        os.kill(first, signal.SIGSTOP)
        stopped = time.monotonic()
        before = {run.run_id: run for run in [await database.runs.find(run_id) for run_id in runs]}
        owned = [run.run_id for run in before.values() if run.state is RunState.RUNNING]
        second = await zygote.fork(postgres_url)
        taken: set[str] = set()
        while len(taken) < len(owned):
            for run_id in owned:
                run = await database.runs.find(run_id)
                # One whose last commit was under way when its owner was stopped has ended all the same.
                if run.attempt > before[run_id].attempt or run.state.is_terminal:
                    taken.add(run_id)
            await asyncio.sleep(0.01)
        assert time.monotonic() - stopped < LEASE + 2
        assert owned
        os.kill(first, signal.SIGCONT)
        feed = Feed(database.runs, FeedLimits(poll=0.05, join_from=10_000))
        seen = [[e async for batch in feed.watch(run_id) for e in batch] for run_id in runs]
    zygote.kill(first)
    zygote.kill(second)
    await verify(postgres_url, runs, seen)
