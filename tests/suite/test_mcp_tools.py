"""A tool of an MCP server in a run: asked for, allowed, its own question answered, its picture shown to the model."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from opentelemetry.trace import SpanKind

from services.chassis import names
from tests.support.mcp_kit import local_server
from tests.support.mcp_server import PNG
from tests.support.platform import Recorded, test_platform
from tests.support.suite import Suite, suite
from tests.support.suite_steps import ask, follow, of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import call, say

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIG = """
[mcp.servers.desk]
url = "{url}"
headers_env = {{ Authorization = "PROCTOR_TEST_DESK_KEY" }}
trust_read_only = true

[mcp.servers.old]
url = "{url}"
protocol = "legacy"
suppress = ["read_*"]

[mcp.servers.gone]
url = "http://127.0.0.1:9/mcp"

[models.seeing]
upstream_name = "seeing"
base_url = "{model}"
capabilities = ["tools", "vision"]

[agents.clerk]
tools = ["desk__*", "old__order"]
"""
KEY = "Bearer desk-s3cret-9f"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(upstream: Upstream, recorded: Recorded) -> AsyncIterator[Suite]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROCTOR_TEST_DESK_KEY", KEY)
        services = ("approval", "retrieval", "orchestrator")
        async with (
            local_server() as url,
            suite(
                model=upstream.base_url,
                config=CONFIG.format(url=url, model=upstream.base_url),
                services=services,
                platform=test_platform(telemetry=recorded.telemetry),
            ) as started,
        ):
            yield started


async def decide(running: Suite, run_id: str, **decision: Any) -> list[dict[str, Any]]:
    """Decide the one call that waits and return the run's events up to its next pause or end."""
    (pending,) = (await running.http.get(f"/v1/runs/{run_id}")).json()["pending"]
    body = {"decisions": [{"call_id": pending["call_id"], **decision}], "hold": 0}
    return [event async for event in follow(running, "POST", f"/v1/runs/{run_id}/resume", body=body)]


@pytest.mark.parametrize("server", ["desk", "old"])
async def test_a_tool_is_asked_for_allowed_and_its_question_answered(
    running: Suite, upstream: Upstream, server: str
) -> None:
    name = f"{server}__order"
    upstream.script(call(name, json.dumps({"thing": "cup", "reason": "they want one"})), say("A red cup is ordered."))
    events = await ask(running, "Order a cup.", agent_id="clerk", hold=0)
    run_id = events[0]["run_id"]
    assert of(events, "approval_requested")[0]["tool"] == name

    events = await decide(running, run_id, approval={"verdict": "approve"})
    (asked,) = of(events, "questions_asked")
    assert "The tool server" in asked["questions_json"][0]["text"]
    await decide(running, run_id, answers={"answers": {"colour": "red", "pieces": 2}})
    events = await watch(running, run_id)

    assert events[-1]["kind"] == "run_completed"
    (finished,) = of(events, "tool_call_finished")
    assert finished["preview"].count("Ordered 2 red cup, gift: False.") == 1
    assert len(of(events, "tool_call_started")) == 1
    assert "Ordered 2 red cup" in upstream.requests[-1].last_text


async def test_what_a_server_calls_read_only_runs_unasked_where_the_operator_trusts_it(
    running: Suite, upstream: Upstream
) -> None:
    upstream.script(call("desk__read_ticket", json.dumps({"number": 3, "reason": "to read"})), say("It is stuck."))

    events = await ask(running, "What is ticket 3?", agent_id="clerk")

    assert of(events, "approval_requested") == []
    assert "Ticket 3: the lift is stuck." in upstream.requests[-1].last_text
    offered = {tool["function"]["name"] for tool in upstream.requests[-1].body["tools"]}
    assert "old__order" in offered
    assert "old__create_ticket" not in offered
    assert not any(name.startswith("gone__") for name in offered)
    system = str(upstream.requests[-1].messages[0]["content"])
    assert "The tool server 'desk' says of its tools (its word, not the operator's):\nTickets are numbered" in system


async def test_a_picture_is_kept_for_the_user_and_seen_by_the_model(running: Suite, upstream: Upstream) -> None:
    upstream.script(call("desk__picture", json.dumps({"reason": "to see"})), say("One pixel."))
    events = await ask(running, "Show it.", agent_id="clerk", model="seeing", hold=0)
    events = await decide(running, events[0]["run_id"], approval={"verdict": "approve"})

    picture = of(events, "artifact_created")[0]["artifact"]
    assert (await running.http.get(f"/v1/artifacts/{picture['artifact_id']}")).content == PNG
    seen = upstream.requests[-1].messages[-1]
    assert seen["content"][0]["text"] == "Pictures that desk__picture returned:"
    assert base64.b64encode(PNG).decode() in seen["content"][1]["image_url"]["url"]


async def test_a_call_is_a_client_span_and_no_secret_is_kept_anywhere(
    running: Suite, upstream: Upstream, recorded: Recorded
) -> None:
    upstream.script(call("desk__create_ticket", json.dumps({"title": "x", "reporter": {"name": "a"}})), say("Done."))
    events = await ask(running, "Create a ticket.", agent_id="clerk", hold=0)
    await decide(running, events[0]["run_id"], approval={"verdict": "approve"})
    await watch(running, events[0]["run_id"])

    for path in Path(running.folder).rglob("*"):
        if path.is_file():
            assert b"desk-s3cret" not in path.read_bytes(), path
    (span,) = recorded.spans("tools/call create_ticket")
    assert span.kind is SpanKind.CLIENT
    told = dict(span.attributes or {})
    assert (told[names.MCP_METHOD_NAME], told[names.MCP_SERVER]) == ("tools/call", "desk")
    assert "desk-s3cret" not in "".join(each.to_json() for each in recorded.spans())


async def test_the_state_of_servers_and_tools_is_told(running: Suite) -> None:
    servers = (await running.http.get("/v1/tools/servers", params={"connect": True})).json()["servers"]
    tools: dict[str, Any] = {t["name"]: t for t in (await running.http.get("/v1/tools?page_size=500")).json()["tools"]}

    states = {server["name"]: (server["state"], server["transport"]) for server in servers}
    assert states["desk"] == ("TOOL_SERVER_STATE_CONNECTED", "http")
    assert states["gone"] == ("TOOL_SERVER_STATE_BROKEN", "http")
    (old,) = [server for server in servers if server["name"] == "old"]
    assert {"name": "read_ticket", "reason": "the operator suppresses it"} in old["withheld"]
    assert tools["desk__read_ticket"]["consent"] == "TOOL_CONSENT_ALLOW"
    assert (tools["old__order"]["consent"], tools["old__order"]["server"]) == ("TOOL_CONSENT_ASK", "old")
