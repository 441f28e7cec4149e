"""Telemetry: providers made from settings and handed on as arguments; no global provider is ever set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TextIO

from opentelemetry import metrics, trace
from opentelemetry.metrics import Counter, Histogram, Meter, UpDownCounter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricExporter,
    MetricReader,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import Tracer

from services.chassis import names


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

    exporter: Exporter = Exporter.NONE
    file: Path = Path("telemetry.jsonl")
    prometheus: str = ""
    interval: float = 10.0

    def __post_init__(self) -> None:
        if self.prometheus and not self.prometheus.rpartition(":")[2].isdigit():
            raise ValueError(f"PROMETHEUS: expected host:port, got {self.prometheus!r}")


class Telemetry:
    """A tracer provider and a meter provider, and the instruments made from them by name."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider,
        meter_provider: metrics.MeterProvider,
        release: Sequence[Callable[[], None]] = (),
    ) -> None:
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
        for provider in (self.tracer_provider, self.meter_provider):
            if isinstance(provider, TracerProvider | MeterProvider):
                provider.shutdown()
        for release in self._release:
            release()


def no_telemetry() -> Telemetry:
    """Return telemetry that costs next to nothing and goes nowhere."""
    return Telemetry(trace.NoOpTracerProvider(), metrics.NoOpMeterProvider())


def open_telemetry(service: str, version: str, settings: TelemetrySettings) -> Telemetry:
    """Return providers for `service` that export as `settings` say; the caller ends them with `shutdown`."""
    if settings.exporter is Exporter.NONE and not settings.prometheus:
        return no_telemetry()
    resource = Resource.create({names.SERVICE_NAME: f"proctor.{service}", names.SERVICE_VERSION: version})
    tracers = TracerProvider(resource=resource)
    readers: list[MetricReader] = []
    release: list[Callable[[], None]] = []
    if settings.exporter is not Exporter.NONE:
        spans, numbers, close = _exporters(settings)
        tracers.add_span_processor(BatchSpanProcessor(spans))
        readers.append(PeriodicExportingMetricReader(numbers, export_interval_millis=settings.interval * 1000))
        release.append(close)
    if settings.prometheus:
        reader, close = _prometheus(settings.prometheus)
        readers.append(reader)
        release.append(close)
    return Telemetry(tracers, MeterProvider(metric_readers=readers, resource=resource), release)


def _exporters(settings: TelemetrySettings) -> tuple[SpanExporter, MetricExporter, Callable[[], None]]:
    """Return where spans and metrics go, and what closes it after their own shutdown."""
    # Imported where used: each exporter pulls in its own transport, and most processes need one or none.
    match settings.exporter:
        case Exporter.OTLP_GRPC:
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

            return OTLPSpanExporter(), OTLPMetricExporter(), _nothing
        case Exporter.OTLP_HTTP:
            from opentelemetry.exporter.otlp.proto.http import metric_exporter, trace_exporter

            return trace_exporter.OTLPSpanExporter(), metric_exporter.OTLPMetricExporter(), _nothing
        case Exporter.FILE:
            settings.file.parent.mkdir(parents=True, exist_ok=True)
            return _line_exporters(settings.file.open("a", encoding="utf-8"))
        case _:
            return ConsoleSpanExporter(), ConsoleMetricExporter(), _nothing


def _line_exporters(sink: TextIO) -> tuple[SpanExporter, MetricExporter, Callable[[], None]]:
    """Return exporters that write one JSON object a line."""
    return (
        ConsoleSpanExporter(out=sink, formatter=lambda span: span.to_json(indent=None) + "\n"),
        ConsoleMetricExporter(out=sink, formatter=lambda numbers: numbers.to_json(indent=None) + "\n"),
        sink.close,
    )


def _prometheus(address: str) -> tuple[MetricReader, Callable[[], None]]:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import CollectorRegistry, start_http_server

    host, _, port = address.rpartition(":")
    # A registry of its own: the default one is global, and one process may hold several services.
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry)
    server, thread = start_http_server(int(port), addr=host or "127.0.0.1", registry=registry)

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return reader, close


def _nothing() -> None:
    """Close nothing: the exporter closes itself."""


def capture_content(environ: Mapping[str, str]) -> bool:
    """Tell whether prompts, answers, arguments and results may be recorded; off unless asked for."""
    value = environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "")
    return value.strip().lower() in {"true", "1", "span", "span_only", "span_and_event"}
