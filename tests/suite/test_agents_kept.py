"""Agents and prompts kept over HTTP and used by runs: checked by the services that know, recorded, asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import agent_service_pb2 as pb
from proctor.orchestrator.v1 import run_service_pb2 as run_pb
from proctor.orchestrator.v1.agent_service_pb2_grpc import AgentServiceStub
from proctor.orchestrator.v1.run_service_pb2_grpc import RunServiceStub
from services.chassis.identity import Principal
from tests.support.suite import Suite, suite
from tests.support.suite_steps import ask, ingest_handbook, of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import call, say

pytestmark = pytest.mark.asyncio(loop_scope="module")
STRANGER = Principal(tenant="other", user="local", scopes=frozenset({"*"}))
QUESTION = "What is the mileage rate for cars?"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(upstream: Upstream) -> AsyncIterator[Suite]:
    """All services but the sandbox, the handbook ingested; models of one's own may be on this machine."""
    async with suite(
        model=upstream.base_url,
        services=("approval", "retrieval", "orchestrator"),
        PROCTOR_ORCHESTRATOR_MODEL_NETWORKS="127.0.0.0/8",
    ) as started:
        await ingest_handbook(started)
        yield started


async def keep(running: Suite, **agent: Any) -> dict[str, Any]:
    reply = await running.http.post("/v1/agents", json={"agent": agent})
    assert reply.status_code == 201, reply.text
    made: dict[str, Any] = reply.json()["agent"]
    return made


def system(upstream: Upstream) -> str:
    return str(upstream.requests[-1].body["messages"][0]["content"])


async def test_a_run_follows_a_kept_agent_and_records_its_version(running: Suite, upstream: Upstream) -> None:
    made = await keep(running, name="finance", type="classic", prompt="You are {{ agent }}.", sources=["handbook"])
    changed = made | {"prompt": "You are {{ agent }}, and brief.", "language": "de"}
    second = (await running.http.put("/v1/agents/finance", json={"agent": changed})).json()["agent"]
    assert (second["agent_id"], second["version"]) == (made["agent_id"], 2)
    upstream.script(say("EUR 0.38 [1]."))
    events = await ask(running, QUESTION, agent_id="finance")
    (started,) = of(events, "run_started")
    assert (started["agent_id"], started["agent_name"], started["agent_version"]) == (made["agent_id"], "finance", 2)
    told = system(upstream)
    assert told.startswith("You are finance, and brief.")
    assert told.endswith("Answer in the language with the tag de, and think in it too.")
    run = (await running.http.get(f"/v1/runs/{events[0]['run_id']}")).json()
    assert (run["agent_id"], run["agent_version"]) == (made["agent_id"], 2)
    versions = (await running.http.get("/v1/agents/finance/versions")).json()["versions"]
    assert [version["version"] for version in versions] == [2, 1]
    first = (await running.http.get("/v1/agents/finance", params={"version": 1})).json()["agent"]
    assert first["prompt"] == "You are {{ agent }}."
    lost = await running.http.put("/v1/agents/finance", json={"agent": changed})
    assert (lost.status_code, lost.json()["reason"]) == (409, "CONFLICT")


async def test_what_other_services_know_is_checked_when_it_is_saved(running: Suite) -> None:
    wrong = {
        "name": "wrong",
        "sources": ["handbok"],
        "tools": [
            {"tool": "search", "policy": "ask", "when": "argz.query == ''"},
            {"tool": "search", "policy": "quorum"},
        ],
        "model": "gpt-0",
    }
    reply = await running.http.post("/v1/agents", json={"agent": wrong, "validate_only": True})
    assert reply.status_code == 400
    problems = {violation["field"]: violation["description"] for violation in reply.json()["violations"]}
    assert set(problems) == {
        "agent.sources[0].source",
        "agent.tools[0].when",
        "agent.tools[1].quorum",
        "agent.model",
    }
    assert "there are: handbook" in problems["agent.sources[0].source"]
    assert "argz" in problems["agent.tools[0].when"]


async def test_tools_that_a_template_names_run_before_the_first_call(running: Suite, upstream: Upstream) -> None:
    await keep(
        running,
        name="prepared",
        prompt='Today: {{ tool("current_time") }}\nFound: {{ tool("search", query=question) }}',
        sources=["handbook"],
    )
    upstream.script(say("EUR 0.38 [1]."))
    events = await ask(running, QUESTION, agent_id="prepared")
    kinds = [event["kind"] for event in events]
    assert kinds.index("tool_call_finished") < kinds.index("evidence_added") < kinds.index("answer_delta")
    assert [call["name"] for call in of(events, "tool_call_started")] == ["current_time", "search"]
    assert len(upstream.requests) == 1
    told = system(upstream)
    assert '<tool_result tool="search">' in told
    assert "EUR 0.38 per kilometre" in told
    (completed,) = of(events, "run_completed")
    assert [c["number"] for c in completed["citations"] if c["cited"]] == [1]
    assert completed["spent"]["tool_calls"] == 2


async def test_a_named_tool_asks_like_every_other(running: Suite, upstream: Upstream) -> None:
    await keep(
        running,
        name="careful",
        prompt='{{ tool("search", query="mileage") }}',
        tools=[{"tool": "search", "policy": "ask"}],
    )
    upstream.script(say("I was not allowed to search."))
    events = await ask(running, QUESTION, agent_id="careful", hold=0)
    assert events[-1]["kind"] == "run_paused"
    assert not upstream.requests
    assert not of(events, "tool_call_started")
    (asked,) = of(events, "approval_requested")
    decided = await running.http.post(f"/v1/approvals/{asked['approval_id']}/decision", json={"decision": "deny"})
    assert decided.status_code == 200, decided.text
    rest = await watch(running, events[0]["run_id"], events[-1]["sequence"])
    assert rest[-1]["kind"] == "run_completed"
    assert not of(rest, "tool_call_started")
    assert [call["status"] for call in of(rest, "tool_call_finished")] == ["TOOL_STATUS_DENIED"]
    assert '<tool_result tool="search">' in system(upstream)
    assert "EUR 0.38" not in system(upstream)


async def test_a_run_reads_the_prompt_that_its_agent_refers_to(running: Suite, upstream: Upstream) -> None:
    body = {"name": "polite", "template": "Be polite to {{ user }}.", "shared": True}
    made = await running.http.post("/v1/prompts", json={"prompt": body})
    assert made.status_code == 201, made.text
    await keep(running, name="host", prompt_name="polite", shared=True)
    changed = made.json()["prompt"] | {"template": "Be kind to {{ user }}."}
    assert (await running.http.put("/v1/prompts/polite", json={"prompt": changed})).status_code == 200
    upstream.script(say("Hello."))
    events = await ask(running, "Hello?", agent_id="host")
    (started,) = of(events, "run_started")
    assert (started["prompt_name"], started["prompt_version"]) == ("polite", 2)
    assert system(upstream).startswith("Be kind to local.")
    refused = await running.http.delete("/v1/prompts/polite")
    assert (refused.status_code, refused.json()["reason"]) == (409, "IN_USE")


async def test_a_key_of_a_kept_agent_serves_it_alone_and_another_tenant_sees_nothing(
    running: Suite, upstream: Upstream
) -> None:
    await keep(running, name="shop", prompt="You sell.", shared=True)
    bound = await running.http.post(
        "/v1/keys", json={"name": "site", "user": "site", "scopes": ["runs"], "agent": "shop"}
    )
    upstream.script(say("Sold."))
    headers = {"Authorization": f"Bearer {bound.json()['key']}"}
    sold = await running.http.post("/v1/runs", json={"input": "Hi"}, headers=headers | {"accept": "application/json"})
    assert sold.status_code == 200, sold.text
    assert system(upstream).startswith("You sell.")
    other = await running.http.post("/v1/keys", json={"name": "rival", "tenant": "rival", "scopes": ["*"]})
    rival = {"Authorization": f"Bearer {other.json()['key']}"}
    for path in ("/v1/agents/shop", "/v1/agents/shop/versions", "/v1/prompts/polite"):
        assert (await running.http.get(path, headers=rival)).status_code == 404, path
    listed = (await running.http.get("/v1/agents", headers=rival)).json()["agents"]
    assert {agent["name"] for agent in listed} == {"assistant", "classic", "research"}
    stolen = await running.http.delete("/v1/agents/shop", headers=rival)
    assert (stolen.status_code, stolen.json()["reason"]) == (404, "AGENT_NOT_FOUND")


async def test_a_shared_agent_brings_its_owners_model_and_nobody_sees_the_key(
    running: Suite, upstream: Upstream
) -> None:
    own = {"name": "mine", "base_url": upstream.base_url, "upstream_name": "big", "api_key": "sk-of-local"}
    made = await running.http.post("/v1/models/own", json=own)
    assert made.status_code == 201, made.text
    model = made.json()["model_id"]
    await keep(running, name="bring", model=model, shared=True)
    key = (await running.http.post("/v1/keys", json={"name": "bob", "user": "bob", "scopes": ["*"]})).json()["key"]
    bob = {"Authorization": f"Bearer {key}", "accept": "application/json"}
    upstream.script(say("From the big one."))
    answered = await running.http.post("/v1/runs", json={"input": "Hi", "agent_id": "bring"}, headers=bob)
    assert answered.status_code == 200, answered.text
    assert upstream.requests[-1].body["model"] == "big"
    assert upstream.requests[-1].headers["authorization"] == "Bearer sk-of-local"
    for path, body in (
        ("/v1/runs", {"input": "Hi", "model": model}),
        ("/v1/agents", {"agent": {"name": "thief", "model": model}}),
    ):
        refused = await running.http.post(path, json=body, headers=bob)
        assert refused.status_code in {400, 404}, refused.text
    shown = [await running.http.get(f"/v1/{path}") for path in ("models/own", "models", "agents/bring")]
    assert all("sk-of-local" not in reply.text for reply in shown)
    assert (await running.http.get("/v1/models/own", headers=bob)).json()["models"] == []
    assert (await running.http.delete(f"/v1/models/own/{model}", headers=bob)).status_code == 404
    assert (await running.http.delete(f"/v1/models/own/{model}")).status_code == 204
    gone = await running.http.post("/v1/runs", json={"input": "Hi", "agent_id": "bring"}, headers=bob)
    assert (gone.status_code, gone.json()["reason"]) == (404, "MODEL_NOT_FOUND")


async def test_no_rpc_of_another_tenant_finds_an_agent_or_a_prompt(running: Suite) -> None:
    made = await keep(running, name="ours", prompt="Secret of ours.", shared=True)
    body = {"prompt": {"name": "our words", "template": "Secret of ours.", "shared": True}}
    prompt_id = (await running.http.post("/v1/prompts", json=body)).json()["prompt"]["prompt_id"]
    channel, who = running.channels["orchestrator"], running.metadata(STRANGER)
    agents, runs = AgentServiceStub(channel), RunServiceStub(channel)
    part = agent_pb2.Part(text="Hi")
    attempts: dict[str, Any] = {}
    for name in (made["agent_id"], "ours"):
        changed = agent_pb2.Agent(name="stolen")
        attempts |= {
            f"GetAgent {name}": agents.GetAgent(pb.GetAgentRequest(agent_id=name), metadata=who),
            f"UpdateAgent {name}": agents.UpdateAgent(
                pb.UpdateAgentRequest(agent_id=name, agent=changed), metadata=who
            ),
            f"DeleteAgent {name}": agents.DeleteAgent(pb.DeleteAgentRequest(agent_id=name), metadata=who),
            f"ListAgentVersions {name}": agents.ListAgentVersions(
                pb.ListAgentVersionsRequest(agent_id=name), metadata=who
            ),
            f"StartRun {name}": runs.StartRun(run_pb.StartRunRequest(input=[part], agent_id=name), metadata=who),
        }
    for name in (prompt_id, "our words"):
        words = agent_pb2.Prompt(name="stolen", template="x")
        inline = agent_pb2.Agent(prompt_name=name)
        attempts |= {
            f"GetPrompt {name}": agents.GetPrompt(pb.GetPromptRequest(prompt_id=name), metadata=who),
            f"UpdatePrompt {name}": agents.UpdatePrompt(
                pb.UpdatePromptRequest(prompt_id=name, prompt=words), metadata=who
            ),
            f"DeletePrompt {name}": agents.DeletePrompt(pb.DeletePromptRequest(prompt_id=name), metadata=who),
            f"ListPromptVersions {name}": agents.ListPromptVersions(
                pb.ListPromptVersionsRequest(prompt_id=name), metadata=who
            ),
            f"StartRun with {name}": runs.StartRun(
                run_pb.StartRunRequest(input=[part], inline_agent=inline), metadata=who
            ),
        }
    told = {name: await _outcome(attempt) for name, attempt in attempts.items()}
    assert {name: code for name, code in told.items() if code is not grpc.StatusCode.NOT_FOUND} == {}
    listed = await agents.ListAgents(pb.ListAgentsRequest(), metadata=who)
    words_listed = await agents.ListPrompts(pb.ListPromptsRequest(), metadata=who)
    assert "Secret" not in f"{listed}{words_listed}"
    # The same names are free there.
    request = pb.CreateAgentRequest(agent=agent_pb2.Agent(name="ours"))
    assert (await agents.CreateAgent(request, metadata=who)).agent.version == 1


async def _outcome(attempt: Any) -> grpc.StatusCode | str:
    """Return how an attempt was refused, or what it gave."""
    try:
        if hasattr(attempt, "__aiter__"):
            return str([str(message) async for message in attempt])
        return str(await attempt)
    except grpc.aio.AioRpcError as error:
        return error.code()


async def test_sources_from_prefetch_and_search_are_merged_once(running: Suite, upstream: Upstream) -> None:
    """Mixed exposure: the same source by both ways, by its name and by its id."""
    (source,) = [s for s in (await running.http.get("/v1/sources")).json()["sources"] if s["name"] == "handbook"]
    sources = [{"source": "handbook", "exposure": "prefetch"}, {"source": source["source_id"], "exposure": "agentic"}]
    await keep(running, name="mixed", sources=sources)
    upstream.script(
        call("search", f'{{"query": "{QUESTION}", "reason": "to be sure"}}'),
        call("search", '{"query": "quantum chromodynamics lattice", "reason": "to be thorough"}'),
        say("EUR 0.38 [1]."),
    )
    events = await ask(running, QUESTION, agent_id="mixed")
    found = [item["evidence"] for item in of(events, "evidence_added")]
    assert [item["number"] for item in found] == list(range(1, len(found) + 1))
    assert len({item["identity"] for item in found}) == len(found)
    prefetched, searched, nothing = (request.last_text for request in upstream.requests)
    assert "EUR 0.38" in prefetched
    assert '<document number="1"' in prefetched
    assert '<document number="1"' in searched
    # A search that found nothing says so to the client and to the model.
    assert [notice["code"] for notice in of(events, "notice")] == ["no_results"]
    assert "found nothing" in nothing
