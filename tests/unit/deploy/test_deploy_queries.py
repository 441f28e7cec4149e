"""Every query of boards, recording rules and alerts asks for what is emitted: metric, label and value."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from services.approval.domain import State
from services.chassis import names
from services.chassis.telemetry import TelemetrySettings, open_telemetry
from services.orchestrator.domain.events import ToolStatus
from services.orchestrator.runner import LegEnd
from services.sandbox.domain import Status
from tests.support.postgres import free_port

ROOT = Path(__file__).resolve().parents[3]
PROMETHEUS = ROOT / "deploy/prometheus"
INSTRUMENTS = [each for each in vars(names).values() if isinstance(each, names.Instrument)]
VALUES = {
    names.RUN_OUTCOME: {"started", "resumed", "recovered", *(end.value for end in LegEnd)},
    names.APPROVAL_OUTCOME: {str(state) for state in State},
    names.SANDBOX_STATUS: {status.value.lower() for status in Status},
    names.LLM_PHASE: {"queue", "retry", "first_chunk", "generation"},
    names.GEN_AI_TOKEN_TYPE: {"input", "output"},
    names.TOOL_OUTCOME: {status.name.lower() for status in ToolStatus},
}


def rules() -> list[dict[str, str]]:
    groups = yaml.safe_load((PROMETHEUS / "rules.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> Iterator[str]:
    board = json.loads((ROOT / "deploy/grafana/boards/proctor.json").read_text())
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])
    yield from (rule["expr"] for rule in rules())


def as_prometheus(name: str) -> str:
    return name.replace(".", "_")


def kept_as(instrument: names.Instrument) -> set[str]:
    """Return the names under which Prometheus keeps an instrument, by its translation of OpenTelemetry's names."""
    name = as_prometheus(instrument.name)
    unit = "_seconds" if instrument.unit == "s" else ""
    if isinstance(instrument, names.Measured):
        return {f"{name}{unit}_{suffix}" for suffix in ("bucket", "count", "sum")}
    return {f"{name}_total"} if isinstance(instrument, names.Counted) else {f"{name}{unit}"}


METRICS = {kept: instrument for instrument in INSTRUMENTS for kept in kept_as(instrument)}
RECORDED = {rule["record"] for rule in rules() if "record" in rule}


def labels_of(query: str) -> set[str]:
    """Return the labels that a query matches or groups by."""
    matched = {name for body in re.findall(r"\{([^}]*)\}", query) for name in re.findall(r"(\w+)\s*(?:!?=~?|!~)", body)}
    grouped = re.findall(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)", query)
    return matched | {label.strip() for body in grouped for label in body.split(",") if label.strip()}


def metrics_of(query: str) -> set[str]:
    """Return the metrics that a query asks for."""
    bare = re.sub(r"\{[^}]*\}|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", query)
    return set(re.findall(r"\b(?:gen_ai|proctor|rpc|http)[a-z0-9_:]*", bare))


@pytest.mark.parametrize("query", list(queries()))
def test_a_query_asks_for_metrics_and_labels_that_are_emitted(query: str) -> None:
    asked = metrics_of(query)
    assert asked
    assert asked <= set(METRICS) | RECORDED
    carried = {as_prometheus(a) for metric in asked & set(METRICS) for a in METRICS[metric].attributes}
    assert labels_of(query) <= carried | {"le"}


@pytest.mark.parametrize("query", list(queries()))
def test_a_query_looks_for_values_that_exist(query: str) -> None:
    for attribute, values in VALUES.items():
        for asked in re.findall(rf'{as_prometheus(attribute)}=~?"([^"]*)"', query):
            assert set(asked.split("|")) <= values


def test_prometheus_finds_every_instrument_under_the_name_the_queries_use() -> None:
    port = free_port()
    telemetry = open_telemetry("probe", "1", TelemetrySettings(prometheus=f"127.0.0.1:{port}"))
    try:
        for instrument in INSTRUMENTS:
            attributes = dict.fromkeys(instrument.attributes, "x")
            match instrument:
                case names.Measured():
                    telemetry.histogram("t", instrument).record(1, attributes)
                case names.Counted():
                    telemetry.counter("t", instrument).add(1, attributes)
                case names.UpDown():
                    telemetry.up_down_counter("t", instrument).add(1, attributes)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            lines = page.read().decode().splitlines()
    finally:
        telemetry.shutdown_now()
    shown = {re.split(r"[{ ]", line)[0]: line for line in lines if not line.startswith("#")}
    for kept, instrument in METRICS.items():
        assert kept in shown, kept
        for attribute in instrument.attributes:
            assert f'{as_prometheus(attribute)}="x"' in shown[kept]


def test_every_instrument_is_on_the_board_or_in_a_rule() -> None:
    asked = {metric for query in queries() for metric in metrics_of(query)}
    unseen = {i.name for i in INSTRUMENTS if not kept_as(i) & asked}
    # One search's hits are on its span; the share of searches without any is on the board.
    assert unseen == {names.RETRIEVAL_HITS.name}


def test_every_alert_has_a_runbook() -> None:
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs/runbooks.md").read_text(), re.MULTILINE)
    alerts = {rule["alert"]: rule["annotations"]["runbook"] for rule in rules() if "alert" in rule}  # type: ignore[index]
    assert set(alerts) == set(headings)
    assert all(link == f"docs/runbooks.md#{alert.lower()}" for alert, link in alerts.items())


def test_every_alert_is_tried_by_promtool() -> None:
    tests = yaml.safe_load((PROMETHEUS / "rules.test.yaml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test.get("alert_rule_test", ()) if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules() if "alert" in rule}


@pytest.mark.parametrize(
    "arguments", [("check", "rules", "rules.yaml"), ("test", "rules", "rules.test.yaml")], ids=["check", "test"]
)
def test_prometheus_accepts_the_rules(arguments: tuple[str, ...]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; install it with `apt-get install prometheus`")
    checked = subprocess.run([promtool, *arguments], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
