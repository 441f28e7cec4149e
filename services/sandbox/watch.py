"""What executions tell the operator: a span, an outcome, a duration, a log line."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opentelemetry.trace import StatusCode

from services.chassis import names
from services.chassis.telemetry import Telemetry
from services.sandbox.domain import Finished, Job, Started, Status

log = logging.getLogger(__name__)

Observed = Callable[[Started | None, Finished], None]


class Observer:
    """Records executions; code and output stay out of telemetry."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._tracer = telemetry.tracer("proctor.sandbox")
        meter = telemetry.meter("proctor.sandbox")
        start, outcome = names.SANDBOX_START_DURATION, names.SANDBOX_OUTCOME
        self._start = meter.create_histogram(
            start.name, start.unit, start.description, explicit_bucket_boundaries_advisory=start.buckets
        )
        self._outcome = meter.create_counter(outcome.name, outcome.unit, outcome.description)
        idle = names.SANDBOX_POOL_IDLE
        self._idle = meter.create_up_down_counter(idle.name, idle.unit, idle.description)
        self._parked = 0

    def pool(self, parked: int) -> None:
        """Note how many warm jobs wait now."""
        if parked != self._parked:
            self._idle.add(parked - self._parked)
            self._parked = parked

    @contextmanager
    def execution(self, job: Job) -> Iterator[Observed]:
        """Span one execution; call what is yielded with its start and end."""
        span = self._tracer.start_span(names.SPAN_SANDBOX_EXECUTE, attributes={names.TENANT: job.owner.tenant})

        def observed(started: Started | None, finished: Finished) -> None:
            span.set_attributes(
                {
                    names.SANDBOX_STATUS: finished.status.value.lower(),
                    names.SANDBOX_CPU: finished.cpu,
                    names.SANDBOX_WALL: finished.wall,
                    names.SANDBOX_PEAK_MEMORY: finished.peak_memory_bytes,
                    names.SANDBOX_WARM: started is not None and started.warm,
                    names.SANDBOX_QUEUE: started.queued if started else 0.0,
                }
            )
            if finished.status is Status.SANDBOX_ERROR:
                span.set_status(StatusCode.ERROR, finished.detail)
            self._outcome.add(1, {names.SANDBOX_STATUS: finished.status.value.lower()})
            if started is not None:
                self._start.record(started.queued, {names.SANDBOX_WARM: started.warm})
            facts = {"status": finished.status.value, "cpu": finished.cpu, "wall": finished.wall}
            log.info("finished", extra={"event": names.EVENT_SANDBOX_FINISHED, **facts})

        try:
            yield observed
        finally:
            span.end()
