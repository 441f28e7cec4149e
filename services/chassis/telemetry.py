"""Telemetry: providers made from settings and handed on as arguments; no global provider is ever set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from opentelemetry import metrics, trace
from opentelemetry.metrics import Counter, Histogram, Meter, UpDownCounter
from opentelemetry.trace import Tracer

from services.chassis import names
from services.chassis.later import Later, Telling, at_once


class Exporter(Enum):
    """Where spans and metrics go."""

    NONE = "none"
    CONSOLE = "console"
    FILE = "file"
    OTLP_GRPC = "otlp-grpc"
    OTLP_HTTP = "otlp-http"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """`PROCTOR_TELEMETRY_…`. The OTLP exporters also read OpenTelemetry's own `OTEL_EXPORTER_OTLP_…` variables.

    `prometheus` is the `host:port` that serves /metrics; empty serves none. `interval` is seconds between exports.
    """

    # Where spans and metrics go: none, console, file, otlp-grpc or otlp-http.
    exporter: Exporter = Exporter.NONE
    # What the exporter `file` appends to, one JSON object a line.
    file: Path = Path("telemetry.jsonl")
    # `host:port` that serves /metrics to Prometheus; empty serves none.
    prometheus: str = ""
    # Seconds between two exports of metrics.
    interval: float = 10.0

    def __post_init__(self) -> None:
        if self.prometheus and not self.prometheus.rpartition(":")[2].isdigit():
            raise ValueError(f"PROMETHEUS: expected host:port, got {self.prometheus!r}")


class Telemetry:
    """A tracer provider and a meter provider, and the instruments made from them by name.

    `release` are called in order at the end: the telling of what waits, the providers' own shutdown, then what their
    exporters leave open.
    `content` says whether spans may hold prompts, answers, tool arguments and results. `later` is how to tell what
    nobody waits for.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider,
        meter_provider: metrics.MeterProvider,
        release: Sequence[Callable[[], None]] = (),
        *,
        content: bool = False,
        later: Telling = at_once,
    ) -> None:
        self.content = content
        self.later = later
        self.tracer_provider = tracer_provider
        self.meter_provider = meter_provider
        self._release = tuple(release)

    def tracer(self, scope: str) -> Tracer:
        """Return the tracer of a module, `scope` being its `__name__`."""
        return self.tracer_provider.get_tracer(scope)

    def meter(self, scope: str) -> Meter:
        """Return the meter of a module, `scope` being its `__name__`."""
        return self.meter_provider.get_meter(scope)

    def histogram(self, scope: str, instrument: names.Measured) -> Histogram:
        """Return a histogram with the boundaries that `names` gives it."""
        return self.meter(scope).create_histogram(
            instrument.name,
            unit=instrument.unit,
            description=instrument.description,
            explicit_bucket_boundaries_advisory=instrument.buckets,
        )

    def counter(self, scope: str, instrument: names.Counted) -> Counter:
        """Return a counter."""
        return self.meter(scope).create_counter(
            instrument.name, unit=instrument.unit, description=instrument.description
        )

    def up_down_counter(self, scope: str, instrument: names.UpDown) -> UpDownCounter:
        """Return a counter that also goes down."""
        return self.meter(scope).create_up_down_counter(
            instrument.name, unit=instrument.unit, description=instrument.description
        )

    async def shutdown(self) -> None:
        """Send what is left and release the exporters; waits in a thread, for exporters block."""
        await asyncio.to_thread(self.shutdown_now)

    def shutdown_now(self) -> None:
        """Send what is left and release the exporters."""
        for release in self._release:
            release()


def no_telemetry(release: Sequence[Callable[[], None]] = (), later: Telling = at_once) -> Telemetry:
    """Return telemetry that costs next to nothing and goes nowhere."""
    return Telemetry(trace.NoOpTracerProvider(), metrics.NoOpMeterProvider(), release, later=later)


def open_telemetry(service: str, version: str, settings: TelemetrySettings, *, content: bool = False) -> Telemetry:
    """Return providers for `service` that export as `settings` say; the caller ends them with `shutdown`."""
    later = Later()
    if settings.exporter is Exporter.NONE and not settings.prometheus:
        return no_telemetry([later.flush], later)
    # The SDK is loaded by those who use it: it is a fifth of what a service loads at its start.
    from services.chassis.exporters import open_providers

    attributes = {names.SERVICE_NAME: f"proctor.{service}", names.SERVICE_VERSION: version}
    return open_providers(attributes, settings, later, content=content)


def capture_content(environ: Mapping[str, str]) -> bool:
    """Tell whether prompts, answers, arguments and results may be recorded; off unless asked for."""
    value = environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "")
    return value.strip().lower() in {"true", "1", "span", "span_only", "span_and_event"}
