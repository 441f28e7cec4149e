"""The metrics of model calls: how long, on what, how many tokens, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping

from services.chassis import names
from services.chassis.telemetry import Telemetry
from services.orchestrator.models.ports import CallTiming, ModelReply, ModelRequest
from services.orchestrator.models.timing import CallClock

Attributes = Mapping[str, str | bool]


class CallMetrics:
    """Records every logical call once, when it has ended. No tenant is told: a label for each would have no bound."""

    def __init__(self, telemetry: Telemetry, scope: str) -> None:
        self._duration = telemetry.histogram(scope, names.MODEL_CALL_DURATION)
        self._first_chunk = telemetry.histogram(scope, names.MODEL_TIME_TO_FIRST_CHUNK)
        self._per_chunk = telemetry.histogram(scope, names.MODEL_TIME_PER_OUTPUT_CHUNK)
        self._tokens = telemetry.histogram(scope, names.MODEL_TOKEN_USAGE)
        self._phases = telemetry.histogram(scope, names.MODEL_PHASE_DURATION)
        self._stalls = telemetry.histogram(scope, names.MODEL_STALL)
        self._failed = telemetry.counter(scope, names.MODEL_ATTEMPTS_FAILED)
        self._cached = telemetry.counter(scope, names.MODEL_CACHED_INPUT)
        self._cost = telemetry.counter(scope, names.MODEL_COST)

    def record(
        self, request: ModelRequest, call: CallClock, timing: CallTiming, reply: ModelReply | None, shared: Attributes
    ) -> None:
        """Record a call; `shared` is what its span carries as well: operation, provider, model, error if any."""
        served = {key: shared[key] for key in (names.GEN_AI_PROVIDER_NAME, names.GEN_AI_REQUEST_MODEL)}
        self._record_times(call, timing, shared, served)
        if reply is None:
            return
        usage = reply.usage
        self._tokens.record(usage.input_tokens, {**shared, names.GEN_AI_TOKEN_TYPE: "input"})
        self._tokens.record(usage.output_tokens, {**shared, names.GEN_AI_TOKEN_TYPE: "output"})
        self._cached.add(usage.cached_input_tokens, served)
        self._cost.add(usage.cost_micros / 1e6, {**served, names.LLM_PURPOSE: request.purpose.value})

    def attempt_failed(self, model: str, error: str) -> None:
        """Count an attempt that failed at `model`, by the name its endpoint knows it by."""
        self._failed.add(1, {names.GEN_AI_REQUEST_MODEL: model, names.ERROR_TYPE: error})

    def _record_times(self, call: CallClock, timing: CallTiming, shared: Attributes, served: Attributes) -> None:
        self._duration.record(timing.total.total_seconds(), shared)
        for phase, spent in call.phases(timing).items():
            self._phases.record(spent, {**served, names.LLM_PHASE: phase})
        if call.first is not None:
            self._first_chunk.record(call.first, shared)
            self._stalls.record(call.longest_stall, served)
        if (gap := call.mean_gap) is not None:
            # One reading a call, its mean: a reading for every chunk would cost as much as reading the chunk.
            self._per_chunk.record(gap, shared)
