"""Caps of a run: what they are by default, what is left, and in what words one is reached."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

from services.orchestrator.domain.agent import AgentType
from services.orchestrator.domain.messages import Budget, Spent

T = TypeVar("T", int, timedelta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The service's defaults; cost has none. A research agent's are closer, since its steps spend side by side."""

    rounds: int = 25
    tool_calls: int = 40
    tokens: int = 200_000
    wall_time: timedelta = timedelta(minutes=30)
    research_tokens: int = 100_000
    research_wall_time: timedelta = timedelta(seconds=300)

    def of(self, kind: AgentType) -> Caps:
        """Return the defaults for agents of this kind."""
        if kind is not AgentType.RESEARCH:
            return self
        return replace(
            self,
            tokens=min(self.tokens, self.research_tokens),
            wall_time=min(self.wall_time, self.research_wall_time),
        )

    def resolve(self, *budgets: Budget) -> Budget:
        """Return the lowest cap of `budgets` field by field, the default where none is set."""
        return Budget(
            rounds=_least([b.rounds for b in budgets], self.rounds),
            tool_calls=_least([b.tool_calls for b in budgets], self.tool_calls),
            tokens=_least([b.tokens for b in budgets], self.tokens),
            wall_time=_least([b.wall_time for b in budgets], self.wall_time),
            cost_micros=min((b.cost_micros for b in budgets if b.cost_micros is not None), default=None),
        )


def _least(values: list[T | None], default: T) -> T:
    given = [value for value in values if value is not None]
    return min(given) if given else default


def exhausted(budget: Budget, spent: Spent) -> str:
    """Return which cap is reached, in words for people and models; empty while none is."""
    if budget.rounds is not None and spent.rounds >= budget.rounds:
        return f"the limit of {budget.rounds} rounds is reached"
    if budget.tool_calls is not None and spent.tool_calls >= budget.tool_calls:
        return f"the limit of {budget.tool_calls} tool calls is reached"
    if budget.tokens is not None and spent.usage.total_tokens >= budget.tokens:
        return f"the limit of {budget.tokens} tokens is reached"
    if budget.wall_time is not None and spent.wall_time >= budget.wall_time:
        return f"the limit of {budget.wall_time} of working time is reached"
    if budget.cost_micros is not None and spent.usage.cost_micros >= budget.cost_micros:
        return f"the limit of {budget.cost_micros / 1e6:.2f} of cost is reached"
    return ""


def reason_kind(reason: str) -> str:
    """Return which cap a text of `exhausted` is about, as a short word for a metric."""
    words = {"rounds": "rounds", "tool calls": "tool_calls", "tokens": "tokens", "working time": "wall_time"}
    return next((kind for phrase, kind in words.items() if phrase in reason), "cost")
