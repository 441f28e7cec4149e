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
        self._queue = telemetry.histogram(SCOPE, names.RUNS_QUEUE_DURATION)
        self._legs = telemetry.histogram(SCOPE, names.AGENT_DURATION)
        self._tools = telemetry.histogram(SCOPE, names.TOOL_DURATION)
        self._budgets = telemetry.counter(SCOPE, names.BUDGET_EXHAUSTED)

    def began(self, cause: str, queued: float) -> None:
        """Count a leg that begins, new, going on or taken over, after `queued` seconds of waiting."""
        outcome = {"": "started", "recovery": "recovered"}.get(cause, "resumed")
        self._runs.add(1, {names.RUN_OUTCOME: outcome})
        self._active.add(1)
        self._queue.record(queued)

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


class StreamMetrics:
    """Counts what happens to those who read runs."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._resumed = telemetry.counter(SCOPE, names.STREAMS_RESUMED)
        self._gaps = telemetry.counter(SCOPE, names.STREAMS_GAPS)
        self._replayed = telemetry.counter(SCOPE, names.STREAMS_REPLAYED)
        self._slow = telemetry.counter(SCOPE, names.STREAMS_SLOW)

    def resumed(self) -> None:
        """Count a reader that came back with a cursor."""
        self._resumed.add(1)

    def gap(self) -> None:
        """Count a cursor older than what is kept."""
        self._gaps.add(1)

    def replayed(self, events: int) -> None:
        """Count events that were recorded before their reader came; joined deltas are one."""
        self._replayed.add(events)

    def lagged(self) -> None:
        """Count a reader that fell behind the live tail."""
        self._slow.add(1)
