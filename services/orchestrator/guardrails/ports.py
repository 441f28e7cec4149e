"""The port of a guardrail: it sees a text on its way in or out and lets it pass, changes it, or refuses it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import grpc

from services.chassis.errors import ServiceError
from services.orchestrator.models.errors import ModelError


class Stage(Enum):
    """Where a text is on its way: what a user says, or what a model answers."""

    INPUT = "input"
    OUTPUT = "output"


class FailMode(Enum):
    """What happens to a text that a guardrail could not judge: OPEN lets it pass, CLOSED refuses it."""

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A text that may pass, as it may pass. `changes` says in words what was changed, empty when nothing was."""

    text: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A text that may not pass. `reason` is for people and says nothing of the text itself."""

    reason: str


Verdict = Checked | Refused


class Check(Protocol):
    """Judges a whole text. May raise: then its fail mode speaks."""

    async def judge(self, text: str, stage: Stage, tenant: str) -> Verdict: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrail:
    """A check with where it stands. It holds for the tenants named, all when none is.

    A `quick` check is made again and again while an answer is written; the others see it when it is whole.
    """

    name: str
    check: Check
    stages: frozenset[Stage]
    fail: FailMode
    tenants: frozenset[str] = field(default_factory=frozenset)
    quick: bool = False

    def concerns(self, stage: Stage, tenant: str) -> bool:
        """Whether it judges texts of `tenant` at `stage`."""
        return stage in self.stages and (not self.tenants or tenant in self.tenants)


class InputRefused(ServiceError):
    """A guardrail refused what a user said."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "INPUT_REFUSED"


class OutputRefused(ModelError):
    """A guardrail refused what a model answered."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "OUTPUT_REFUSED"
