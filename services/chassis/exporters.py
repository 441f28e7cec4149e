"""OpenTelemetry's SDK: providers, and where spans and metrics go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TextIO

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

from services.chassis.later import Later
from services.chassis.telemetry import Exporter, Telemetry, TelemetrySettings


def open_providers(
    attributes: Mapping[str, str], settings: TelemetrySettings, later: Later, *, content: bool = False
) -> Telemetry:
    """Return telemetry that exports as `settings` say, for a resource with `attributes`."""
    resource = Resource.create(dict(attributes))
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
    meters = MeterProvider(metric_readers=readers, resource=resource)
    closing = [later.flush, tracers.shutdown, meters.shutdown, *release]
    return Telemetry(tracers, meters, closing, content=content, later=later)


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
