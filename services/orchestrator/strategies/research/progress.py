"""Where a research run stands: what its checkpoints hold beside the steps' own messages and calls."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from services.chassis.canonical import canonical_json

VERSION = 1


class Stage(StrEnum):
    """What is to be done next."""

    PLAN = "plan"
    STEPS = "steps"
    ANSWER = "answer"


class StepState(StrEnum):
    """Where a step stands."""

    PLANNED = "planned"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step. `report` is its findings, or why there are none; `seconds` its machine time.

    `searched_again` says that it was told to search with other words, which happens once.
    """

    step_id: str
    title: str
    question: str
    state: StepState = StepState.PLANNED
    report: str = ""
    seconds: float = 0.0
    searched_again: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it has no report yet."""
        return self.state in (StepState.PLANNED, StepState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Research:
    """The whole: `asked` says that the user was asked to clarify, which happens once."""

    stage: Stage = Stage.PLAN
    asked: bool = False
    complexity: str = ""
    steps: tuple[Step, ...] = ()

    def with_step(self, step: Step) -> Research:
        """Put `step` in the place of the one with its id."""
        return replace(self, steps=tuple(step if s.step_id == step.step_id else s for s in self.steps))

    def step(self, step_id: str) -> Step:
        """Return a step by id."""
        return next(step for step in self.steps if step.step_id == step_id)


def encode(research: Research) -> bytes:
    """Return it as canonical JSON."""
    return canonical_json({"v": VERSION, **asdict(research)})


def decode(content: bytes) -> Research:
    """Return what `encode` wrote; nothing is a run that has not begun."""
    saved = json.loads(content or b"{}")
    steps = tuple(Step(**{**step, "state": StepState(step["state"])}) for step in saved.get("steps", ()))
    return Research(
        stage=Stage(saved.get("stage", Stage.PLAN)),
        asked=saved.get("asked", False),
        complexity=saved.get("complexity", ""),
        steps=steps,
    )
