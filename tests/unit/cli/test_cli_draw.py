"""`proctor agents draw`: workflows of the operator, of a file, or from the gateway; and the suite itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.draw import NothingToDraw, workflow_chart
from services.cli.gateway import GatewayError
from services.cli.suite_chart import GATE, suite_chart
from services.orchestrator.domain.agent import AgentType
from services.orchestrator.domain.events import ToolStatus

ROUTING = Path(__file__).parents[3] / "docs" / "routing.md"
FLOW = """
nodes:
  begin: {type: start, next: ask}
  ask: {type: approval, title: 'Is "it" <good>?', message: Go, denied: no, next: call}
  call: {type: tool, tool: look, next: done, on_error: no}
  done: {type: end}
  no: {type: end, fail: refused}
  why: {type: note, text: Because.}
"""
CHART = """\
flowchart TD
    n_begin(["begin<br/>start"])
    n_ask[/"Is #quot;it#quot; #lt;good#gt;?<br/>approval"/]
    n_call[["call<br/>tool: look"]]
    n_done(["done<br/>end"])
    n_no(["no<br/>end: failed"])
    n_why>"why<br/>note: Because."]
    n_begin --> n_ask
    n_ask -->|"approved"| n_call
    n_ask -->|"denied"| n_no
    n_call --> n_done
    n_call -.->|"error"| n_no
"""


def unreachable(name: str) -> dict[str, Any]:
    raise GatewayError("the gateway cannot be reached")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "flow.yaml").write_text(FLOW, encoding="utf-8")
    file = tmp_path / "proctor.toml"
    file.write_text('[agents.flow]\nworkflow = "flow.yaml"\n[agents.other]\ntype = "classic"\n', encoding="utf-8")
    return file


def test_a_workflow_of_the_operators_file_is_drawn_without_a_server(config: Path) -> None:
    done = CliRunner().invoke(app, ["agents", "draw", "flow", "--config", str(config)])
    assert (done.exit_code, done.stdout) == (0, CHART)


def test_a_file_is_drawn_before_it_is_saved(config: Path) -> None:
    assert workflow_chart(str(config.parent / "flow.yaml"), Path("none.toml"), unreachable) == CHART


def test_a_kept_workflow_is_drawn_as_the_gateway_has_it(config: Path) -> None:
    assert workflow_chart("kept", config, lambda name: {"name": name, "workflow_yaml": FLOW}) == CHART


@pytest.mark.parametrize(
    ("name", "fetched", "said"),
    [
        ("other", {}, "is no workflow; its type is classic"),
        ("kept", {"workflow_yaml": ""}, "agent 'kept' is no workflow"),
        ("kept", {"workflow_yaml": "nodes: {a: {type: nothing}}"}, "'nothing' is not one of"),
        ("missing.yaml", {}, "cannot be read"),
    ],
)
def test_what_cannot_be_drawn_is_said(config: Path, name: str, fetched: dict[str, Any], said: str) -> None:
    with pytest.raises(NothingToDraw, match=re.escape(said)):
        workflow_chart(name, config, lambda _: fetched)


def test_one_of_a_name_and_the_suite_is_drawn(config: Path) -> None:
    assert CliRunner().invoke(app, ["agents", "draw"]).exit_code == 2
    assert CliRunner().invoke(app, ["agents", "draw", "flow", "--suite"]).exit_code == 2


def test_the_documented_way_of_a_request_is_the_one_that_the_code_has() -> None:
    (documented,) = re.findall(r"```mermaid\n(.*?)```", ROUTING.read_text(encoding="utf-8"), re.DOTALL)
    assert documented == suite_chart(), "write the output of `proctor agents draw --suite` into docs/routing.md"
    assert CliRunner().invoke(app, ["agents", "draw", "--suite"]).stdout == documented


def test_the_way_of_a_request_has_every_kind_of_agent_and_every_end_of_a_call() -> None:
    chart = suite_chart()
    for kind in AgentType:
        assert f"agent --> {kind.name.lower()}\n" in chart
    assert {status for _, statuses in GATE for status in statuses} == set(ToolStatus)
    defined = set(re.findall(r"^    (\w+)[\[({>]", chart, re.MULTILINE))
    used = {end for edge in re.findall(r"^    (\w+) -->(?:\|[^|]*\|)? (\w+)$", chart, re.MULTILINE) for end in edge}
    assert used == defined
