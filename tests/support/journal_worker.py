"""A process that leads runs through the real journal, to be killed, stopped and cut off by fault tests.

Started once as a zygote that has everything imported; each line `{"url": …, "owner": …}` on its input forks a worker
and answers with its pid. A run's work is a counter in its checkpoint: every step writes texts, then a fact together
with the checkpoint of the next step. Whoever leads a run goes on from there: a kept run shows every step exactly once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from services.chassis.clock import SystemClock
from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.adapters.sql.exclusive import DatabaseHeld
from services.orchestrator.domain.events import AnswerDelta, Notice, RunCompleted, RunPaused
from services.orchestrator.domain.run import Checkpoint, Fenced, RunNotFound, RunState
from services.orchestrator.journal.journal import RunJournal
from services.orchestrator.journal.ports import StoreUnavailable
from tests.support.journal_kit import Replica, replica

STEPS = 15
PIECES = 5


def step_text(step: int) -> str:
    """Return what a step writes as answer text."""
    return "".join(f"{step}.{piece} " for piece in range(PIECES))


@dataclass(slots=True)
class Worker:
    """Leads every run it can get."""

    here: Replica
    chance: random.Random

    async def run(self) -> None:
        leading: dict[str, asyncio.Task[None]] = {}
        while True:
            with contextlib.suppress(StoreUnavailable):
                for found in (*await self.here.database.runs.orphans(), *await self.here.database.runs.parked()):
                    task = leading.get(found.run_id)
                    if task is None or task.done():
                        leading[found.run_id] = asyncio.create_task(self.lead(found.run_id))
            await asyncio.sleep(0.02)

    async def lead(self, run_id: str) -> None:
        journal = None
        try:
            journal = await self.here.journals.claim(run_id)
            if journal is not None:
                saved = await self.here.database.runs.load_checkpoint(run_id)
                await self.work(journal, int(saved.head))
        except (Fenced, StoreUnavailable, RunNotFound):
            return
        finally:
            if journal is not None:
                journal.give_up()

    async def work(self, journal: RunJournal, step: int) -> None:
        for now in range(step, STEPS):
            for piece in range(PIECES):
                journal.delta(AnswerDelta(text=f"{now}.{piece} ", model_call_id=f"{journal.attempt}/{now}"))
                await asyncio.sleep(self.chance.uniform(0, 0.02))
            done = Checkpoint(head=str(now + 1).encode(), min_reader=1)
            note = Notice(code="step", text=str(now))
            if self.chance.random() < 0.2:
                # In one transaction the step's fact, its checkpoint, the pause and the hand-back.
                pause = RunPaused(pending=(), deadline=None)
                await journal.fact(note, pause, checkpoint=done, state=RunState.PAUSED, release=True)
                return
            await journal.fact(note, checkpoint=done, state=RunState.RUNNING)
        await journal.finish(RunCompleted(message_id="m", text=str(STEPS)))


async def work(url: str, owner: str, lease: float) -> None:
    """Open the database and lead runs until killed."""
    database = None
    while database is None:
        try:
            database = await Database.open(url, SystemClock())
        except DatabaseHeld:
            await asyncio.sleep(0.01)  # the kernel has not buried the last owner yet
        except (OSError, DBAPIError):
            await asyncio.sleep(0.05)  # cut off while it started
    async with replica(database, owner=owner, lease=lease) as here:
        await Worker(here, random.Random(owner)).run()


def say(line: str) -> None:
    """Answer the test."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Fork a worker for each line of the input."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            # Whatever becomes of the test, no worker outlives it for long.
            signal.alarm(order["alarm"])
            log = Path(order["log"]).open("a")
            os.dup2(log.fileno(), 2)
            try:
                asyncio.run(work(order["url"], order["owner"], order["lease"]))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        say(str(pid))


if __name__ == "__main__":
    say("ready")
    main()
