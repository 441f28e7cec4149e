"""Each exporter against a real receiver: what was measured arrives, named as the names module says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from services.chassis import names
from services.chassis.telemetry import Exporter, Telemetry, TelemetrySettings, open_telemetry

ROOT = Path(__file__).parents[2]
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class Received:
    """What a collector was sent: names of services, spans and metrics."""

    def __init__(self) -> None:
        self.services: set[str] = set()
        self.names: set[str] = set()

    def spans(self, request: trace_service_pb2.ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            self._service(resource.resource)
            self.names.update(span.name for scope in resource.scope_spans for span in scope.spans)

    def metrics(self, request: metrics_service_pb2.ExportMetricsServiceRequest) -> None:
        for resource in request.resource_metrics:
            self._service(resource.resource)
            self.names.update(metric.name for scope in resource.scope_metrics for metric in scope.metrics)

    def _service(self, resource: Any) -> None:
        self.services.update(a.value.string_value for a in resource.attributes if a.key == names.SERVICE_NAME)


@contextmanager
def grpc_collector(received: Received) -> Iterator[str]:
    class Traces(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            received.spans(request)
            return trace_service_pb2.ExportTraceServiceResponse()

    class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            received.metrics(request)
            return metrics_service_pb2.ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)  # type: ignore[no-untyped-call]
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@contextmanager
def http_collector(received: Received) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                received.spans(trace_service_pb2.ExportTraceServiceRequest.FromString(body))
            elif self.path == "/v1/metrics":
                received.metrics(metrics_service_pb2.ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def measure(telemetry: Telemetry) -> None:
    telemetry.tracer("t").start_span(names.SPAN_SANDBOX_EXECUTE).end()
    telemetry.histogram("t", names.TOOL_DURATION).record(0.5)


@pytest.mark.parametrize(
    ("exporter", "collector"), [(Exporter.OTLP_GRPC, grpc_collector), (Exporter.OTLP_HTTP, http_collector)]
)
async def test_a_collector_gets_spans_and_metrics(
    exporter: Exporter, collector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    received = Received()
    with collector(received) as endpoint:
        monkeypatch.setenv(ENDPOINT, endpoint)
        telemetry = open_telemetry("probe", "1", TelemetrySettings(exporter=exporter))
        measure(telemetry)
        await telemetry.shutdown()
    assert received.services == {"proctor.probe"}
    assert received.names == {names.SPAN_SANDBOX_EXECUTE, names.TOOL_DURATION.name}


@pytest.mark.parametrize("exporter", [Exporter.CONSOLE, Exporter.FILE])
def test_console_and_file_show_the_same(exporter: Exporter, tmp_path: Path) -> None:
    file = tmp_path / "telemetry.jsonl"
    program = (
        "from services.chassis.platform import open_platform; import os\n"
        "from tests.wire.test_telemetry_exporters import measure\n"
        "t = open_platform('probe', os.environ).telemetry; measure(t); t.shutdown_now()"
    )
    settings = {
        "PROCTOR_SIGNING_KEY": "k" * 32,
        "PROCTOR_TELEMETRY_EXPORTER": exporter.value,
        "PROCTOR_TELEMETRY_FILE": str(file),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'protos/gen'}",
    }
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | settings,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    shown = file.read_text() if exporter is Exporter.FILE else ran.stdout
    assert names.SPAN_SANDBOX_EXECUTE in shown
    assert names.TOOL_DURATION.name in shown
    if exporter is Exporter.FILE:
        assert all(json.loads(line) for line in shown.splitlines())


async def test_a_collector_that_is_away_neither_stops_nor_breaks_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    received = Received()
    with http_collector(received) as endpoint:
        gone = endpoint
    monkeypatch.setenv(ENDPOINT, gone)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    telemetry = open_telemetry("probe", "1", TelemetrySettings(exporter=Exporter.OTLP_HTTP))
    measure(telemetry)
    await telemetry.shutdown()
    assert received.names == set()
