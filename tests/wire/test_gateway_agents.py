"""Agents, prompts and models of one's own over HTTP: what is sent reaches the service, and keys bind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from proctor.agent.v1 import agent_pb2
from services.gateway.protojson import to_json
from tests.support.fake_backends import Suite, gateway_suite

pytestmark = pytest.mark.asyncio(loop_scope="module")
AGENT: dict[str, Any] = {
    "name": "finance",
    "type": "classic",
    "prompt": "You are {{ agent }}.",
    "sources": ["handbook", {"source": "ledger", "exposure": "agentic"}],
    "tools": ["search", {"tool": "run_code", "policy": "ask", "deadline": 90, "four_eyes": True}],
    "budget": {"rounds": 3, "wall_time": 60},
    "output": {"json_schema": {"type": "object"}},
    "sampling": {"temperature": 0.5},
    "router_json": {"labels": {"topic": ["Why?"]}},
    "shared": True,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def suite() -> AsyncIterator[Suite]:
    async with gateway_suite(requests_per_minute=0) as running:
        yield running


async def test_an_agent_in_short_form_reaches_the_service_whole(suite: Suite) -> None:
    reply = await suite.http.post("/v1/agents", json={"agent": AGENT})
    assert reply.status_code == 201, reply.text
    saved = suite.orchestrator.saved[-1]
    assert saved.type == agent_pb2.AGENT_TYPE_CLASSIC
    assert [(s.source, s.exposure) for s in saved.sources] == [("handbook", 0), ("ledger", 2)]
    assert [(t.tool, t.policy, t.four_eyes) for t in saved.tools] == [("search", 0, False), ("run_code", 2, True)]
    assert (saved.tools[1].deadline.seconds, saved.budget.wall_time.seconds, saved.budget.rounds) == (90, 60, 3)
    assert saved.output.json_schema == b'{"type":"object"}'
    assert saved.router_json == b'{"labels":{"topic":["Why?"]}}'


async def test_what_was_read_can_be_sent_back(suite: Suite) -> None:
    await suite.http.post("/v1/agents", json={"agent": AGENT})
    first = suite.orchestrator.saved[-1]
    shown = to_json(first) | {"agent_id": "agent-1", "owner": "ann", "updated_at": "2026-01-01T00:00:00Z"}
    reply = await suite.http.put("/v1/agents/agent-1", json={"agent": shown})
    assert reply.status_code == 200, reply.text
    assert suite.orchestrator.saved[-1] == first
    plain = to_json(agent_pb2.Agent(name="plain"))
    assert (await suite.http.put("/v1/agents/plain", json={"agent": plain})).status_code == 200


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"colour": "blue"}, "agent.colour"),
        ({"type": "psychic"}, "agent.type"),
        ({"tools": [{"tool": "x", "policy": "perhaps"}]}, "agent.tools.0.policy"),
        ({"budget": {"wall_time": "soon"}}, "agent.budget.wall_time"),
    ],
)
async def test_a_wrong_member_is_named(suite: Suite, change: dict[str, Any], named: str) -> None:
    reply = await suite.http.post("/v1/agents", json={"agent": AGENT | change})
    assert reply.status_code == 400
    assert [violation["field"] for violation in reply.json()["violations"]] == [named]


async def test_keeping_agents_needs_its_scope(suite: Suite) -> None:
    reader = await suite.http.post("/v1/keys", json={"name": "reader", "scopes": ["runs"]})
    headers = {"Authorization": f"Bearer {reader.json()['key']}"}
    assert (await suite.http.get("/v1/agents", headers=headers)).status_code == 200
    for method, path, body in (
        ("POST", "/v1/agents", {"agent": AGENT}),
        ("PUT", "/v1/agents/finance", {"agent": AGENT}),
        ("DELETE", "/v1/agents/finance", None),
        ("GET", "/v1/prompts", None),
        ("POST", "/v1/prompts", {"prompt": {"name": "polite", "template": "Please."}}),
    ):
        refused = await suite.http.request(method, path, json=body, headers=headers)
        assert (refused.status_code, refused.json()["metadata"]) == (403, {"scope": "agents:write"}), path


async def test_a_key_of_one_agent_sees_and_keeps_no_other(suite: Suite) -> None:
    made = await suite.http.post("/v1/keys", json={"name": "shop", "scopes": ["*"], "agent": "handbook"})
    headers = {"Authorization": f"Bearer {made.json()['key']}"}
    listed = (await suite.http.get("/v1/agents", headers=headers)).json()["agents"]
    assert [agent["agent_id"] for agent in listed] == ["handbook"]
    assert (await suite.http.get("/v1/agents/handbook", headers=headers)).status_code == 200
    for method, path in (
        ("GET", "/v1/agents/other"),
        ("GET", "/v1/agents/handbook/versions"),
        ("DELETE", "/v1/agents/handbook"),
        ("GET", "/v1/prompts"),
        ("GET", "/v1/models/own"),
        ("DELETE", "/v1/models/own/own-1"),
    ):
        assert (await suite.http.request(method, path, headers=headers)).status_code == 403, path


async def test_prompts_are_kept_listed_and_deleted(suite: Suite) -> None:
    body = {"prompt": {"name": "polite", "template": "Be polite to {{ user }}."}}
    made = await suite.http.post("/v1/prompts", json=body)
    assert (made.status_code, made.json()["prompt"]["template"]) == (201, "Be polite to {{ user }}.")
    sent_back = {"prompt": made.json()["prompt"]}
    assert (await suite.http.put("/v1/prompts/polite", json=sent_back)).status_code == 200
    assert (await suite.http.get("/v1/prompts")).json()["prompts"][0]["name"] == "polite"
    assert (await suite.http.get("/v1/prompts/polite")).json()["prompt"]["name"] == "polite"
    assert (await suite.http.get("/v1/prompts/polite/versions")).json()["versions"]
    assert (await suite.http.delete("/v1/prompts/polite")).status_code == 204


async def test_a_model_of_ones_own_never_shows_its_key(suite: Suite) -> None:
    body = {"name": "mine", "base_url": "https://models.example.org/v1", "api_key": "sk-secret"}
    made = await suite.http.post("/v1/models/own", json=body)
    assert made.status_code == 201
    assert (made.json()["name"], made.json()["has_key"]) == ("mine", True)
    assert "sk-secret" not in made.text
    changed = await suite.http.put("/v1/models/own/own-1", json=body | {"api_key": ""})
    assert changed.json()["has_key"] is False
    assert (await suite.http.delete("/v1/models/own/own-1")).status_code == 204
    assert (await suite.http.get("/v1/models/own")).json()["models"] == []
    wrong = await suite.http.post("/v1/models/own", json={"name": "mine", "url": "https://x"})
    assert (wrong.status_code, wrong.json()["violations"][0]["field"]) == (400, "base_url")
