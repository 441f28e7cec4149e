"""A leg: one stretch of a run's life in one owner, from start or resume to pause or end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

from opentelemetry.context import Context

from services.chassis.clock import Clock
from services.orchestrator.continuation import encode
from services.orchestrator.dedup import ConversationMemory, Deduplicator
from services.orchestrator.domain.events import Fact
from services.orchestrator.domain.run import Checkpoint
from services.orchestrator.domain.state import Progress, RunSpec
from services.orchestrator.journal.journal import RunJournal


@dataclass(slots=True, kw_only=True)
class Leg:
    """What the loop and the gate work with.

    `parent` is the trace context of the leg's span; `result_characters` the most of one tool result that the model's
    window bears.
    """

    spec: RunSpec
    progress: Progress
    journal: RunJournal
    clock: Clock
    dedup: Deduplicator
    memory: ConversationMemory
    parent: Context
    step_id: str = ""
    result_characters: int = 32_000
    _since: float = field(default=0.0)

    def __post_init__(self) -> None:
        self._since = self.clock.monotonic()

    def checkpoint(self) -> Checkpoint:
        """Return the state as it is now, to be committed."""
        self.count_time()
        self.progress.sequence = self.journal.last_sequence
        return encode(self.spec, self.progress, self.clock.now())

    def count_time(self) -> None:
        """Add the machine time since the last count to what was spent."""
        now = self.clock.monotonic()
        elapsed, self._since = timedelta(seconds=now - self._since), now
        spent = self.progress.spent
        self.progress.spent = replace(spent, wall_time=spent.wall_time + elapsed)

    def spend(self, *, rounds: int = 0, tool_calls: int = 0) -> None:
        """Count rounds and executions."""
        spent = self.progress.spent
        self.progress.spent = replace(
            spent, rounds=spent.rounds + rounds, tool_calls=max(spent.tool_calls + tool_calls, 0)
        )

    async def commit(self, *facts: Fact) -> None:
        """Record `facts` together with a checkpoint."""
        await self.journal.fact(*facts, checkpoint=self.checkpoint(), step_id=self.step_id)

    def save(self, *facts: Fact) -> None:
        """Record `facts` together with a checkpoint, without waiting for the disk."""
        self.journal.save(self.checkpoint(), *facts, step_id=self.step_id)

    async def record(self, *facts: Fact) -> None:
        """Record `facts` without a checkpoint, and return once they are committed."""
        await self.journal.fact(*facts, step_id=self.step_id)

    def post(self, *facts: Fact) -> None:
        """Record `facts` without waiting: they are committed, in their place, before anyone sees them.

        For what the next commit covers anyway, so that a round costs fewer waits for the disk.
        """
        for fact in facts:
            self.journal.delta(fact, step_id=self.step_id)
