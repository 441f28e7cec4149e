"""A platform for tests: their clock and ids, telemetry in memory, a signing key made for the occasion."""

from __future__ import annotations

from dataclasses import dataclass

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services.chassis.clock import Clock, Ids, RandomIds, SystemClock
from services.chassis.identity import IdentitySigner, IdentityVerifier, Principal
from services.chassis.platform import Platform
from services.chassis.telemetry import Telemetry, no_telemetry
from tests.support.waiting import until

KEY = "tests-only-" + "0" * 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Telemetry that stays in memory, to be read back."""

    telemetry: Telemetry
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Return finished spans in the order they ended, only those called `name` when given."""
        return [span for span in self.exporter.get_finished_spans() if not name or span.name == name]

    async def whole(self, name: str) -> list[ReadableSpan]:
        """Return the traces of spans whose name begins with `name`, once each span has its parent, up to the roots.

        The gateway's own spans end behind the response.
        """
        await until(lambda: self._is_whole(self._traces_of(name)))
        return self._traces_of(name)

    def _traces_of(self, name: str) -> list[ReadableSpan]:
        spans = self.spans()
        traces = {span.context.trace_id for span in spans if span.name.startswith(name)}
        return [span for span in spans if span.context.trace_id in traces]

    def _is_whole(self, spans: list[ReadableSpan]) -> bool:
        known = {None, *(span.context.span_id for span in spans)}
        parents = [span.parent.span_id if span.parent else None for span in spans]
        return None in parents and known.issuperset(parents)

    def points(self, instrument: str) -> list[object]:
        """Return the data points of one instrument so far."""
        batch = self.reader.get_metrics_data()
        return [
            point
            for resource in (batch.resource_metrics if batch else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == instrument
            for point in metric.data.data_points
        ]


def recorded_telemetry(*, content: bool = False) -> Recorded:
    """Return telemetry that keeps every span and number in memory, with `content` also what was said."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    return Recorded(telemetry=Telemetry(tracers, meters, content=content), exporter=exporter, reader=reader)


def test_platform(
    *, clock: Clock | None = None, ids: Ids | None = None, telemetry: Telemetry | None = None, key: str = KEY
) -> Platform:
    """Return a platform; what is not given is real (clock, ids) or silent (telemetry)."""
    clock = clock or SystemClock()
    return Platform(
        clock=clock,
        ids=ids or RandomIds(),
        telemetry=telemetry or no_telemetry(),
        signer=IdentitySigner(key, clock),
        verifier=IdentityVerifier(key, clock),
    )


# Not a test, whatever its name says to pytest.
test_platform.__test__ = False  # type: ignore[attr-defined]


def principal(user: str = "ann", tenant: str = "local", *scopes: str) -> Principal:
    """Return a principal with `scopes`, all of them when none is given."""
    return Principal(tenant=tenant, user=user, scopes=frozenset(scopes or ("*",)))
