"""A leg: one stretch of a run's life in one owner, from start or resume to pause or end."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from opentelemetry.context import Context

from services.chassis.clock import Clock
from services.orchestrator.budget import exhausted
from services.orchestrator.continuation import encode
from services.orchestrator.dedup import ConversationMemory, Deduplicator
from services.orchestrator.domain.events import Fact, ToolCallStarted
from services.orchestrator.domain.messages import Message, Usage
from services.orchestrator.domain.run import Checkpoint
from services.orchestrator.domain.state import Phase, Progress, RunSpec
from services.orchestrator.journal.journal import RunJournal
from services.orchestrator.models.ports import Purpose
from services.orchestrator.ports import ApprovalRecord


@dataclass(slots=True, kw_only=True)
class Leg:
    """What the loop and the gate work with.

    `parent` is the trace context of the leg's span; `result_characters` the most of one tool result that the model's
    window bears; `purpose` what the rounds of its loop are for; `decided` are records of requests that are decided, by
    approval id, as far as they are known without asking. A branch is a leg for one step of a run: `root` is the
    run's own leg, whose checkpoints hold it.
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
    purpose: Purpose = Purpose.ANSWER
    root: Leg | None = None
    decided: Mapping[str, ApprovalRecord] = field(default_factory=dict)
    _since: float = field(default=0.0)

    def __post_init__(self) -> None:
        self._since = self.clock.monotonic()

    def branch(self, step_id: str, spec: RunSpec, messages: Sequence[Message] = (), turn_start: int = 0) -> Leg:
        """Return the leg of a step: as it was saved, or begun with `messages`.

        `spec` is made anew by the strategy each time, from what is fixed; it says which tools, model and caps the step
        has. The caps of the run hold as well.
        """
        root = self.root or self
        path = self.path(step_id)
        progress = root.progress.branches.get(path)
        if progress is None:
            progress = Progress(
                messages=list(messages),
                turn_start=turn_start,
                evidence=root.progress.evidence,
                phase=Phase.ROUND_START,
                attempt=root.progress.attempt,
                next_call_id=_first_call_id(self.spec.run_id, path, root.progress.attempt),
            )
            root.progress.branches[path] = progress
        return replace(
            self,
            spec=spec,
            progress=progress,
            dedup=root.dedup.branch(progress.seen),
            step_id=path,
            root=root,
            _since=self.clock.monotonic(),
        )

    def close_branch(self, step_id: str) -> None:
        """Forget a step that is done; the next checkpoint no longer holds it."""
        root = self.root or self
        root.progress.branches.pop(self.path(step_id), None)

    def path(self, step_id: str) -> str:
        """Return the id by which the whole run knows a step of this leg."""
        return f"{self.step_id}.{step_id}" if self.step_id else step_id

    def checkpoint(self) -> Checkpoint:
        """Return the state of the whole run as it is now, to be committed."""
        self.count_time()
        if self.root is not None:
            return self.root.checkpoint()
        self.progress.sequence = self.journal.last_sequence
        return encode(self.spec, self.progress, self.clock.now())

    def count_time(self) -> None:
        """Add the machine time since the last count to what was spent; steps side by side count once for the run."""
        now = self.clock.monotonic()
        elapsed, self._since = timedelta(seconds=now - self._since), now
        spent = self.progress.spent
        self.progress.spent = replace(spent, wall_time=spent.wall_time + elapsed)
        if self.root is not None:
            self.root.count_time()

    def spend(self, *, rounds: int = 0, tool_calls: int = 0, usage: Usage | None = None) -> None:
        """Count rounds, executions and what a model call used, for a step also on the run's account."""
        spent = self.progress.spent
        self.progress.spent = replace(
            spent,
            rounds=spent.rounds + rounds,
            tool_calls=max(spent.tool_calls + tool_calls, 0),
            usage=spent.usage + usage if usage else spent.usage,
        )
        if self.root is not None:
            self.root.spend(rounds=rounds, tool_calls=tool_calls, usage=usage)

    def cap_reached(self, *, rounds: bool = True, tool_calls: bool = True) -> str:
        """Return which cap of the step or the run is reached, in words; empty while none is. Switched-off ones wait."""
        budget = self.spec.budget
        if not rounds:
            budget = replace(budget, rounds=None)
        if not tool_calls:
            budget = replace(budget, tool_calls=None)
        if reason := exhausted(budget, self.progress.spent):
            return reason
        return self.root.cap_reached(rounds=rounds, tool_calls=tool_calls) if self.root else ""

    async def commit(self, *facts: Fact) -> None:
        """Record `facts` together with a checkpoint."""
        await self.journal.fact(*facts, checkpoint=self.checkpoint(), step_id=self.step_id)

    def save(self, *facts: Fact) -> None:
        """Record `facts` together with a checkpoint, without waiting for the disk."""
        self.journal.save(self.checkpoint(), *facts, step_id=self.step_id)

    def save_soon(self, *facts: Fact) -> None:
        """Do as `save` does, with what comes next: the checkpoint is made then."""
        self.journal.save_soon(self.checkpoint, *facts, step_id=self.step_id)

    async def record(self, *facts: Fact) -> None:
        """Record `facts` without a checkpoint, and return once they are committed."""
        await self.journal.fact(*facts, step_id=self.step_id)

    def begin_to_read(self, started: ToolCallStarted) -> None:
        """Record without waiting that a call begins which only reads. Raises as `commit` does, as far as is known."""
        self.journal.begin_to_read(started, step_id=self.step_id)

    def post(self, *facts: Fact) -> None:
        """Record `facts` without waiting: they are committed, in their place, before anyone sees them.

        For what the next commit covers anyway, so that a round costs fewer waits for the disk.
        """
        for fact in facts:
            self.journal.delta(fact, step_id=self.step_id)


def _first_call_id(run_id: str, step_id: str, attempt: int) -> str:
    """Return the id of a step's first model call; a dead owner's text can be withdrawn, for it had another."""
    return hashlib.sha256(f"{run_id}/{step_id}/{attempt}".encode()).hexdigest()[:32]
