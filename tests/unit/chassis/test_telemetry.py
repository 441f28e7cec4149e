from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest

from services.chassis import names
from services.chassis.telemetry import Exporter, TelemetrySettings, capture_content, no_telemetry, open_telemetry
from tests.support.postgres import free_port

ROOT = Path(__file__).parents[3]


def instruments() -> list[names.Instrument]:
    return [each for each in vars(names).values() if isinstance(each, names.Instrument)]


def test_no_instrument_has_two_definitions() -> None:
    assert len({each.name for each in instruments()}) == len(instruments())


def test_every_name_is_used_by_some_service() -> None:
    sources = [p for p in (ROOT / "services").rglob("*.py") if p != ROOT / "services/chassis/names.py"]
    used = set(re.findall(r"\bnames\.([A-Z_0-9]+)\b", "\n".join(path.read_text() for path in sources)))
    kept = {name for name in vars(names) if re.fullmatch("[A-Z].*[A-Z0-9]", name) and not name.endswith("_BUCKETS")}
    assert kept - used == set()


def test_call_buckets_are_the_conventions_and_two_doublings_more() -> None:
    assert names.CALL_BUCKETS[:2] == (0.01, 0.02)
    assert [round(bound, 2) for bound in names.CALL_BUCKETS[-3:]] == [81.92, 163.84, 327.68]
    assert names.TOKEN_BUCKETS[-1] == 67108864
    assert round(names.AGENT_BUCKETS[-1], 1) == 409.6


async def test_the_file_exporter_writes_a_json_object_a_line(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "telemetry.jsonl"
    telemetry = open_telemetry("probe", "1", TelemetrySettings(exporter=Exporter.FILE, file=path))
    telemetry.tracer("t").start_span("work").end()
    telemetry.histogram("t", names.TOOL_DURATION).record(0.5)
    await telemetry.shutdown()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["name"] == "work"
    assert lines[0]["resource"]["attributes"]["service.name"] == "proctor.probe"
    assert names.TOOL_DURATION.name in path.read_text()


async def test_prometheus_serves_what_was_measured() -> None:
    port = free_port()
    telemetry = open_telemetry("probe", "1", TelemetrySettings(prometheus=f"127.0.0.1:{port}"))
    telemetry.counter("t", names.RUNS).add(3, {names.RUN_OUTCOME: "completed"})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        text = page.read().decode()
    await telemetry.shutdown()
    assert "proctor_runs_total{" in text
    assert 'proctor_run_outcome="completed"' in text


def test_silent_telemetry_takes_everything() -> None:
    telemetry = no_telemetry()
    telemetry.up_down_counter("t", names.RUNS_ACTIVE).add(1)
    telemetry.tracer("t").start_span("s").end()
    telemetry.shutdown_now()


def test_an_address_without_a_port_is_refused() -> None:
    with pytest.raises(ValueError, match="host:port"):
        TelemetrySettings(prometheus="localhost")


@pytest.mark.parametrize(("value", "expected"), [("", False), ("false", False), ("true", True), ("SPAN_ONLY", True)])
def test_content_is_captured_only_when_asked(value: str, *, expected: bool) -> None:
    assert capture_content({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": value}) is expected
    assert not capture_content({})
