"""The suite's own tools through every service: documents, databases, HTTP services, memories."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from tests.support.http_site import Site, site
from tests.support.platform import Recorded, recorded_telemetry, test_platform
from tests.support.suite import Suite, suite
from tests.support.suite_steps import ask, follow, ingest_handbook, of
from tests.support.upstream import Upstream
from tests.support.upstream_script import Request, Turn, call, calls, say

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOKEN = "tok-s3cret-4711"
PASSWORD = "pw-s3cret-0815"
DOCUMENT = {
    "openapi": "3.1.0",
    "paths": {
        "/tickets": {
            "get": {"operationId": "list", "summary": "List tickets"},
            "post": {
                "operationId": "open",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"type": "object", "required": ["title"]}}},
                },
            },
        }
    },
}
CONFIG = """
[databases.shop]
url_env = "SHOP_DATABASE_URL"
description = "Orders of the shop"

[http_tools.tickets]
document = "tickets.json"
base_url = "{tickets}"
operations = ["*"]
read = ["list"]
bearer_env = "TICKETS_TOKEN"
networks = ["127.0.0.0/8"]
"""


async def tickets_answer(request: web.Request) -> web.StreamResponse:
    return web.json_response({"method": request.method, "said": request.headers.get("Authorization", "")})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recorded() -> Recorded:
    return recorded_telemetry(content=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tickets() -> AsyncIterator[Site]:
    async with site(tickets_answer) as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    upstream: Upstream, recorded: Recorded, tickets: Site, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Suite]:
    """All services but the sandbox, the handbook, a database and a service of tickets."""
    folder = tmp_path_factory.mktemp("tools")
    with closing(sqlite3.connect(folder / f"{PASSWORD}.sqlite3")) as shop:
        shop.executescript("CREATE TABLE orders (id integer, total real); INSERT INTO orders VALUES (1, 2.5), (2, 40);")
    (folder / "tickets.json").write_text(json.dumps(DOCUMENT))
    config = CONFIG.format(tickets=tickets.url).replace("tickets.json", str(folder / "tickets.json"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOP_DATABASE_URL", f"sqlite:///{folder}/{PASSWORD}.sqlite3")
        patch.setenv("TICKETS_TOKEN", TOKEN)
        platform = test_platform(telemetry=recorded.telemetry)
        services = ("approval", "retrieval", "orchestrator")
        async with suite(model=upstream.base_url, config=config, platform=platform, services=services) as started:
            await ingest_handbook(started)
            yield started


def using(name: str, **arguments: Any) -> Turn:
    return call(name, json.dumps({**arguments, "reason": "to know"}))


def offered(request: Request) -> dict[str, Any]:
    return {tool["function"]["name"]: tool["function"] for tool in request.body["tools"]}


async def approved(running: Suite, question: str) -> list[dict[str, Any]]:
    """Ask, allow what is asked for, and return every event."""
    events = []
    async for event in follow(running, "POST", "/v1/runs", body={"input": question}):
        events.append(event)
        if event["kind"] == "approval_requested":
            approval_id = event["approval_requested"]["approval_id"]
            path = f"/v1/approvals/{approval_id}/decision"
            (await running.http.post(path, json={"decision": "approve"})).raise_for_status()
    return events


async def test_documents_are_listed_read_and_summarised_under_one_numbering(running: Suite, upstream: Upstream) -> None:
    def read_first(request: Request) -> Turn:
        listed = request.messages[-1]["content"]
        document_id = re.search(r"expenses\S* \(source handbook, id (\S+?)\)", listed)
        assert document_id, listed
        return calls(
            ("read_document", json.dumps({"document": document_id[1]})),
            ("summarize_document", json.dumps({"document": "remote-access.md"})),
        )

    upstream.script(using("list_files"), read_first, say("Remote access in short."), say("Both say it [1]."))
    events = await ask(running, "What do the rules on expenses and remote access say?")
    finished = {one["name"]: one["status"] for one in of(events, "tool_call_finished")}
    assert set(finished.values()) == {"TOOL_STATUS_COMPLETED"}
    evidence = [one["evidence"] for one in of(events, "evidence_added")]
    assert [one["number"] for one in evidence] == list(range(1, len(evidence) + 1))
    assert evidence[-1]["kind"] == "EVIDENCE_KIND_SUMMARY"
    (completed,) = of(events, "run_completed")
    assert [one["number"] for one in completed["citations"] if one.get("cited")] == [1]
    assert [one["purpose"] for one in of(events, "model_call_finished")].count("compact") == 1


async def test_a_database_and_a_service_are_asked_without_telling_their_secrets(
    running: Suite, upstream: Upstream, tickets: Site, recorded: Recorded
) -> None:
    asking = calls(
        ("query_sql", json.dumps({"query": "SELECT sum(total) AS total FROM orders"})), ("tickets__list", "{}")
    )
    upstream.script(asking, using("tickets__open", body={"title": "Printer"}), say("42.5, and the ticket is open."))
    events = await approved(running, "What are the orders worth? Open a ticket about the printer.")

    results = {m["tool_call_id"]: m["content"] for m in upstream.requests[-1].messages if m["role"] == "tool"}
    told = "\n".join(results.values())
    assert "total\n42.5" in told
    assert told.count("[secret]") == 2
    assert [request["tool"] for request in of(events, "approval_requested")] == ["tickets__open"]
    assert [(method, headers["authorization"]) for method, _, headers, _ in tickets.seen] == [
        ("GET", f"Bearer {TOKEN}"),
        ("POST", f"Bearer {TOKEN}"),
    ]
    tools = offered(upstream.requests[0])
    assert "orders(id integer, total real)" in tools["query_sql"]["description"]

    spans = "".join(span.to_json() for span in recorded.exporter.get_finished_spans())
    assert "Printer" in spans
    stored = b"".join(path.read_bytes() for path in Path(running.folder).rglob("*") if path.is_file())
    sent = json.dumps([request.body for request in upstream.requests])
    for secret in (TOKEN, PASSWORD):
        assert secret not in spans
        assert secret.encode() not in stored
        assert secret not in sent
        assert secret not in json.dumps(events)


async def test_a_memory_is_kept_by_consent_recalled_listed_and_erased(running: Suite, upstream: Upstream) -> None:
    upstream.script(using("remember", text="Prefers short answers."), say("I will."))
    events = await approved(running, "Remember that I like short answers.")
    assert [request["tool"] for request in of(events, "approval_requested")] == ["remember"]

    upstream.script(using("recall", query="answers"), say("Short ones."))
    await ask(running, "Which answers do I like?")
    assert "- Prefers short answers. (kept " in upstream.requests[-1].messages[-1]["content"]

    (kept,) = (await running.http.get("/v1/memories")).json()["memories"]
    assert kept["text"] == "Prefers short answers."
    assert kept["run_id"] == events[0]["run_id"]
    assert (await running.http.delete("/v1/memories/mem-none")).json()["reason"] == "MEMORY_NOT_FOUND"
    (await running.http.delete(f"/v1/memories/{kept['memory_id']}")).raise_for_status()
    assert (await running.http.get("/v1/memories")).json()["memories"] == []
    assert (await running.http.delete("/v1/memories")).json()["deleted"] == 0


async def test_what_is_not_configured_is_not_offered(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("Hello."))
    await ask(running, "Hello")
    tools = offered(upstream.requests[0])
    assert {"search", "list_files", "read_document", "summarize_document", "fetch_page", "recall"} <= set(tools)
    assert "search_web" not in tools
    assert "run_code" not in tools
