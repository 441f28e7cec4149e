"""Agents and models on the command line: files that are applied, what is shown reads back, keys are never arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console
from typer.testing import CliRunner

from services.cli.agents import apply
from services.cli.definitions import Definition, DefinitionInvalid, read_definitions, write_definition
from services.cli.gateway import Gateway
from services.cli.models import models

TOML = """
[prompts.polite]
template = "Be polite."

[agents.finance]
type = "classic"
prompt_name = "polite"
sources = ["handbook", {source = "ledger", exposure = "agentic"}]
tools = ["search", {tool = "run_code", policy = "ask", deadline_seconds = 90}]
budget = {rounds = 3, wall_time_seconds = 60}
version = 7

[agents.finance.router.labels]
topic = ["Why?"]
"""
YAML = """
name: flow
type: workflow
workflow:
  nodes:
    begin: {type: start, next: done}
    done: {type: end}
"""


def in_file(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_a_piece_of_the_operators_file_can_be_applied(tmp_path: Path) -> None:
    prompt, agent = read_definitions(in_file(tmp_path, "some.toml", TOML))
    assert (prompt.kind, prompt.body) == ("prompt", {"name": "polite", "template": "Be polite."})
    assert (agent.kind, agent.name) == ("agent", "finance")
    assert agent.body["tools"][1] == {"tool": "run_code", "policy": "ask", "deadline": 90}
    assert agent.body["budget"] == {"rounds": 3, "wall_time": 60}
    assert agent.body["router_json"] == {"labels": {"topic": ["Why?"]}}
    assert "version" not in agent.body


def test_a_workflow_may_be_written_as_yaml_itself(tmp_path: Path) -> None:
    (flow,) = read_definitions(in_file(tmp_path, "flow.yaml", YAML))
    assert flow.body["workflow_yaml"].startswith("nodes:\n  begin:")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.yaml", "type: classic", "has no agent"),
        ("a.yaml", "- 1", "has no agent"),
        ("a.yaml", "a: [", "neither YAML nor TOML"),
        ("a.toml", "a = ", "neither YAML nor TOML"),
        ("a.toml", "agents = {x = 1}", "agent 'x' must be a table"),
    ],
)
def test_a_file_without_an_agent_is_refused(tmp_path: Path, name: str, text: str, why: str) -> None:
    with pytest.raises(DefinitionInvalid, match=why):
        read_definitions(in_file(tmp_path, name, text))
    with pytest.raises(DefinitionInvalid, match="cannot be read"):
        read_definitions(tmp_path / "missing.yaml")


def test_what_is_shown_reads_back(tmp_path: Path) -> None:
    shown = {
        "agent_id": "agent-1",
        "name": "finance",
        "description": "",
        "type": "AGENT_TYPE_CLASSIC",
        "model": "m1",
        "prompt": "You are {{ agent }}.\nBe brief.\n",
        "sources": [{"source": "handbook", "exposure": "EXPOSURE_UNSPECIFIED"}],
        "tools": [
            {"tool": "search", "policy": "TOOL_POLICY_UNSPECIFIED", "when": "", "quorum": 0, "four_eyes": False},
            {"tool": "run_code", "policy": "TOOL_POLICY_ASK", "when": "", "quorum": 0, "four_eyes": True},
        ],
        "budget": {"wall_time": "90s"},
        "output": {"name": ""},
        "version": 3,
        "read_only": False,
        "router_json": None,
        "owner": "ann",
        "shared": True,
        "updated_at": "2026-01-01T00:00:00Z",
    }
    text = write_definition(shown)
    assert "prompt: |\n  You are" in text
    (read,) = read_definitions(in_file(tmp_path, "a.yaml", text))
    assert read.body == {
        "name": "finance",
        "type": "classic",
        "model": "m1",
        "prompt": shown["prompt"],
        "sources": ["handbook"],
        "tools": ["search", {"tool": "run_code", "policy": "ask", "four_eyes": True}],
        "budget": {"wall_time": "90s"},
        "shared": True,
    }


def told() -> Console:
    return Console(file=StringIO(), width=200)


def answering(*replies: tuple[int, Any]) -> tuple[Gateway, list[tuple[str, str, Any]]]:
    """Return a gateway that gives one reply after another, and what it was sent."""
    left, sent = list(replies), []

    def handle(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        sent.append((request.method, request.url.raw_path.decode(), body))
        status, reply = left.pop(0)
        return httpx.Response(status, json=reply)

    return Gateway("http://gateway", "k1", httpx.MockTransport(handle)), sent


AGENT = Definition(kind="agent", name="财务", body={"name": "财务", "type": "classic"})
MISSING = (404, {"detail": "agent '财务' does not exist", "reason": "AGENT_NOT_FOUND"})


def test_a_new_agent_is_made_and_a_known_one_changed_from_the_version_that_was_read() -> None:
    console = told()
    gateway, sent = answering(MISSING, (201, {"agent": {"version": 1}}))
    assert apply(gateway, AGENT, console)
    assert sent[1] == ("POST", "/v1/agents", {"agent": {**AGENT.body, "version": 0}, "validate_only": False})
    gateway, sent = answering((200, {"agent": {"version": 4}}), (200, {"agent": {"version": 5}}))
    assert apply(gateway, AGENT, console)
    assert sent[1][:2] == ("PUT", "/v1/agents/%E8%B4%A2%E5%8A%A1")
    assert sent[1][2]["agent"]["version"] == 4
    gateway, _ = answering((200, {"agent": {"version": 5}}), (200, {"agent": {"version": 5}}))
    assert apply(gateway, AGENT, console)
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().splitlines() == [
        "agent 财务: made",
        "agent 财务: version 5",
        "agent 财务: unchanged",
    ]


def test_what_is_wrong_is_told_by_field(capsys: pytest.CaptureFixture[str]) -> None:
    problem = {
        "detail": "the agent is not kept: …",
        "reason": "INVALID_REQUEST",
        "violations": [{"field": "agent.sources[0].source", "description": "there is no source 'x'"}],
    }
    gateway, sent = answering(MISSING, (400, problem))
    assert not apply(gateway, AGENT, told(), check=True)
    assert sent[1][2]["validate_only"] is True
    shown = capsys.readouterr().err
    assert "agent '财务' is not kept" in shown
    assert "agent.sources[0].source  there is no source 'x'" in shown


def test_the_key_of_an_own_model_comes_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, sent = answering((201, {"name": "mine", "model_id": "own-1"}))
    opened: Callable[[], Gateway] = lambda: gateway  # noqa: E731
    monkeypatch.setattr("services.cli.models.open_gateway", opened)
    monkeypatch.setenv("MY_KEY", "sk-1")
    arguments = ["add", "mine", "https://models.example.org/v1", "--key-env", "MY_KEY", "--can", "tools"]
    result = CliRunner().invoke(models, arguments)
    assert result.exit_code == 0, result.output
    assert "own-1" in result.output
    assert "sk-1" not in result.output
    ((method, path, body),) = sent
    assert (method, path, body["api_key"], body["capabilities"]) == ("POST", "/v1/models/own", "sk-1", ["tools"])
