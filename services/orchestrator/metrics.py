"""Metrics of runs, tools and budgets; names and buckets are the chassis'."""

from __future__ import annotations

from services.chassis import names
from services.chassis.telemetry import Telemetry

SCOPE = "services.orchestrator"


class RunMetrics:
    """Counts every run, traced or not."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._runs = telemetry.counter(SCOPE, names.RUNS)
        self._active = telemetry.up_down_counter(SCOPE, names.RUNS_ACTIVE)
        self._legs = telemetry.histogram(SCOPE, names.AGENT_DURATION)
        self._tools = telemetry.histogram(SCOPE, names.TOOL_DURATION)
        self._budgets = telemetry.counter(SCOPE, names.BUDGET_EXHAUSTED)

    def began(self, cause: str) -> None:
        """Count a leg that begins: a new run, one that goes on, or one taken over."""
        outcome = {"": "started", "recovery": "recovered"}.get(cause, "resumed")
        self._runs.add(1, {names.RUN_OUTCOME: outcome})
        self._active.add(1)

    def ended(self, agent: str, outcome: str, seconds: float) -> None:
        """Count a leg that ended."""
        self._active.add(-1)
        self._runs.add(1, {names.RUN_OUTCOME: outcome})
        self._legs.record(seconds, {names.GEN_AI_AGENT_NAME: agent, names.RUN_OUTCOME: outcome})

    def tool(self, name: str, outcome: str, seconds: float) -> None:
        """Record one execution, waiting for people left out."""
        self._tools.record(seconds, {names.GEN_AI_TOOL_NAME: name, names.TOOL_OUTCOME: outcome})

    def cut(self, kind: str) -> None:
        """Count a run that met a cap."""
        self._budgets.add(1, {names.BUDGET_KIND: kind})
