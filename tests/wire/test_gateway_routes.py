"""Sources, search, approvals, artifacts, catalogue, health and the page, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from proctor.agent.v1 import agent_pb2
from proctor.approval.v1 import approval_service_pb2
from services.gateway.settings import Settings
from tests.support.fake_backends import Suite, gateway_suite
from tests.support.sse_reader import all_events, events

Files = list[tuple[str, tuple[str | None, bytes | str, str | None]]]


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Suite]:
    async with gateway_suite() as running:
        yield running


@pytest.fixture
def suite(shared: Suite) -> Suite:
    return shared.forget()


async def test_uploaded_files_arrive_byte_for_byte_and_progress_comes_back(suite: Suite) -> None:
    big = bytes(range(256)) * 8192
    files: Files = [("file", ("rules/holidays.md", b"# Leave", "text/markdown")), ("file", ("big.bin", big, None))]
    async with suite.http.stream("POST", "/v1/sources/s1/documents", files=files) as response:
        got = await all_events(response)
    assert suite.retrieval.files == {"rules/holidays.md": b"# Leave", "big.bin": big}
    assert suite.retrieval.headers[0].source_id == "s1"
    assert [event.event for event in got] == ["progress"] * 4 + ["summary"]
    assert got[-1].json["done"] == 2


async def test_a_summary_is_returned_when_json_is_asked_for(suite: Suite) -> None:
    files: Files = [
        ("path", (None, "a/b.txt", None)),
        ("url", (None, "https://x.example/b", None)),
        ("file", ("b.txt", b"x", None)),
    ]
    response = await suite.http.post(
        "/v1/sources/s1/documents",
        files=[*files, ("file", ("empty.txt", b"", None))],
        headers={"Accept": "application/json"},
    )
    assert response.json() | {"files": []} == {"documents": 2, "done": 1, "unchanged": 0, "failed": 1, "files": []}
    assert [header.path for header in suite.retrieval.headers] == ["a/b.txt", "empty.txt"]
    assert [header.url for header in suite.retrieval.headers] == ["https://x.example/b", ""]


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (b"{}", "application/json"),
        (b"--b\r\n", "multipart/form-data; boundary=b"),
        (b"--b--\r\n", "multipart/form-data; boundary=b"),
        (b"nonsense", "multipart/form-data; boundary=b"),
        (
            b"--b\r\nContent-Disposition: form-data; name=file; filename=x\r\n\r\ncut of",
            "multipart/form-data; boundary=b",
        ),
    ],
)
async def test_a_body_that_is_no_upload_is_refused(suite: Suite, content: bytes, content_type: str) -> None:
    headers = {"Content-Type": content_type, "Accept": "application/json"}
    response = await suite.http.post("/v1/sources/s1/documents", content=content, headers=headers)
    assert (response.status_code, response.json()["reason"]) == (400, "INVALID_REQUEST")


async def test_sources_and_documents_are_created_listed_and_deleted(suite: Suite) -> None:
    created = await suite.http.post("/v1/sources", json={"name": "rules"})
    assert (created.status_code, created.json()["source_id"]) == (201, "s1")
    assert (await suite.http.get("/v1/sources")).json()["sources"][0]["name"] == "rules"
    assert (await suite.http.get("/v1/sources/s1/documents")).json()["documents"] == []
    read = (await suite.http.get("/v1/sources/s1/documents/d1", params={"offset": 7})).json()
    assert (read["document"]["document_id"], read["parts"][0]["start"], read["characters"]) == ("d1", 7, 99)
    assert (await suite.http.delete("/v1/sources/s1/documents/d1")).status_code == 204
    assert (await suite.http.delete("/v1/sources/s1")).json() == {"documents": 2}
    assert (await suite.http.delete("/v1/sources/s2")).json()["reason"] == "SOURCE_NOT_FOUND"


async def test_sites_are_synced_listed_and_given_up(suite: Suite) -> None:
    body = {"url": "https://docs.example/", "max_depth": 2, "every_hours": 24}
    async with suite.http.stream("POST", "/v1/sources/s1/sites", json=body) as response:
        events = [line async for line in response.aiter_lines() if line.startswith("event: ")]
    waited = await suite.http.post("/v1/sources/s1/sites", json=body, headers={"accept": "application/json"})
    broken = await suite.http.post("/v1/sources/s1/sites", json=body | {"url": "https://docs.example/broken"})

    assert events == ["event: site", "event: page", "event: site"]
    told = waited.json()
    assert (told["site"]["state"], told["site"]["max_depth"], told["site"]["every"]) == ("SITE_STATE_DONE", 2, "86400s")
    assert [page["passages"] for page in told["pages"]] in ([3], ["3"])
    assert (broken.status_code, broken.json()["reason"]) == (404, "SOURCE_NOT_FOUND")
    assert (await suite.http.get("/v1/sources/s1/sites")).json()["sites"][0]["site_id"] == "w1"
    assert int((await suite.http.delete("/v1/sources/s1/sites/w1")).json()["documents"]) == 2


async def test_search_and_passages_pass_through(suite: Suite) -> None:
    found = await suite.http.post("/v1/search", json={"query": "holidays", "top_k": 3})
    assert found.json()["hits"][0]["text"] == "holidays"
    assert (await suite.http.get("/v1/passages/p7")).json()["passage"]["passage_id"] == "p7"
    bad = await suite.http.post("/v1/search", json={"query": "x", "filter": "bad"})
    assert bad.json()["violations"] == [{"field": "filter", "description": "no"}]


async def test_approvals_are_listed_and_decided_as_who_is_authenticated(suite: Suite) -> None:
    suite.approvals.records["ap1"] = approval_service_pb2.Approval(
        approval_id="ap1", state=approval_service_pb2.ApprovalState.APPROVAL_STATE_PENDING, arguments_json=b'{"a":1}'
    )
    listing = (await suite.http.get("/v1/approvals?state=pending")).json()
    assert listing["approvals"][0]["arguments_json"] == {"a": 1}
    body = {"decision": "approve", "remember": "conversation", "run_id": "r1", "arguments_digest": "d"}
    decided = await suite.http.post("/v1/approvals/ap1/decision", json=body)
    assert decided.json()["decided_now"] is True
    principal, sent = suite.approvals.decisions[0]
    assert (principal.tenant, principal.user) == ("local", "local")
    assert sent.approve.remember == approval_service_pb2.RuleScope.RULE_SCOPE_CONVERSATION
    assert (sent.run_id, sent.arguments_digest) == ("r1", "d")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"decision": "maybe"},
        {"decision": "edit"},
        {"decision": "approve", "result": "x"},
        {"decision": "approve", "decided_by": "boss"},
        {"decision": "deny", "remember": "always"},
    ],
)
async def test_a_decision_of_the_wrong_form_decides_nothing(suite: Suite, body: dict[str, object]) -> None:
    response = await suite.http.post("/v1/approvals/ap1/decision", json=body)
    assert response.status_code == 400
    assert suite.approvals.decisions == []


async def test_changes_of_approvals_are_streamed(suite: Suite) -> None:
    async with suite.http.stream("GET", "/v1/approvals/stream") as response:
        stream = events(response)
        assert (await anext(stream)).comment == "watching"
        suite.approvals.changes.put_nowait(approval_service_pb2.Approval(approval_id="ap2"))
        assert (await anext(stream)).json["approval_id"] == "ap2"


async def test_rules_and_the_audit_log_have_routes(suite: Suite) -> None:
    made = await suite.http.post("/v1/allow-rules", json={"tool": "run_code", "lifetime": 60})
    assert (made.status_code, made.json()["rule_id"], made.json()["user"]) == (201, "rule1", "local")
    assert (await suite.http.get("/v1/allow-rules")).json()["rules"] == []
    assert (await suite.http.delete("/v1/allow-rules/rule1")).status_code == 204
    assert (await suite.http.get("/v1/audit")).json()["entries"] == []
    assert (await suite.http.get("/v1/audit/verify")).json()["intact"] is True
    assert (await suite.http.get("/v1/audit/export")).text == '{"sequence":0}\n{"sequence":1}\n'


async def test_a_link_shows_first_and_decides_by_its_button(suite: Suite) -> None:
    suite.approvals.records["tok"] = approval_service_pb2.Approval(
        tool="<b>rm</b>",
        reason="<script>1</script>",
        state=approval_service_pb2.ApprovalState.APPROVAL_STATE_PENDING,
        arguments_json=b'{"path":"</pre><script>"}',
        arguments_digest="d" * 64,
    )
    shown = await suite.http.get("/confirm/tok", headers={"X-Forwarded-For": "203.0.113.9"})
    assert shown.status_code == 200
    assert "<script>" not in shown.text
    assert "<b>" not in shown.text
    assert suite.approvals.links == []
    form = {"verdict": "deny", "comment": "no", "arguments_digest": "d" * 64}
    decided = await suite.http.post("/confirm/tok", data=form)
    assert "denied" in decided.text
    principal, sent = suite.approvals.links[0]
    assert (principal.scopes, sent.comment, sent.arguments_digest) == (frozenset(), "no", "d" * 64)
    assert (await suite.http.post("/confirm/tok", data={"verdict": "maybe"})).status_code == 400
    assert (await suite.http.get("/confirm/other")).status_code == 400


@pytest.mark.parametrize(
    ("media_type", "disposition", "content_type"),
    [
        ("image/png", "inline", "image/png"),
        ("text/html", "attachment", "application/octet-stream"),
        ("image/svg+xml", "attachment", "application/octet-stream"),
    ],
)
async def test_an_artifact_is_harmless(suite: Suite, media_type: str, disposition: str, content_type: str) -> None:
    data = b"<script>1</script>" * 10_000
    artifact = agent_pb2.Artifact(name='a"\r\nX: y.png', media_type=media_type, size=len(data), sha256="ab")
    suite.orchestrator.artifacts["a" * 32] = (artifact, data)
    response = await suite.http.get("/v1/artifacts/" + "a" * 32)
    assert response.content == data
    assert response.headers["content-type"] == content_type
    assert response.headers["content-disposition"].startswith(f"{disposition}; filename*=UTF-8''a%22%0D%0AX")
    assert response.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert response.headers["x-content-type-options"] == "nosniff"


async def test_an_attachment_is_stored(suite: Suite) -> None:
    response = await suite.http.post("/v1/attachments", files={"file": ("notes.txt", b"x" * 300_000)})
    assert response.status_code == 201
    assert (response.json()["name"], response.json()["size"]) == ("notes.txt", 300_000)
    two = [("file", ("a", b"1")), ("file", ("b", b"2"))]
    assert (await suite.http.post("/v1/attachments", files=two)).status_code == 400


async def test_models_and_agents_are_listed(suite: Suite) -> None:
    models = (await suite.http.get("/v1/models")).json()
    assert [model["id"] for model in models["data"]] == ["reader", "agent/handbook"]
    assert (await suite.http.get("/v1/models/agent/handbook")).json()["object"] == "model"
    missing = await suite.http.get("/v1/models/gpt-0")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    assert (await suite.http.get("/v1/agents")).json()["agents"][0]["name"] == "handbook"


async def test_health_says_what_serves(suite: Suite) -> None:
    assert (await suite.http.get("/healthz")).json() == {"status": "ok"}
    ready = await suite.http.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["services"] == {
        "orchestrator": "SERVING",
        "retrieval": "SERVING",
        "approval": "SERVING",
        "sandbox": "UNREACHABLE",
    }


async def test_not_ready_while_a_required_service_is_away() -> None:
    async with gateway_suite(approval_target="unix:/nonexistent/approval.sock") as suite:
        response = await suite.http.get("/readyz")
        assert (response.status_code, response.json()["status"]) == (503, "not ready")
        away = await suite.http.get("/v1/approvals")
        assert (away.status_code, away.json()["reason"]) == (503, "UNAVAILABLE")
        assert "nonexistent" not in away.text


async def test_the_docs_need_nothing_from_elsewhere(suite: Suite) -> None:
    page = await suite.http.get("/docs")
    assert "/v1/runs/{run_id}/resume" in page.text
    assert "<script" not in page.text
    assert "http" not in page.headers["content-security-policy"]
    document = (await suite.http.get("/openapi.json")).json()
    references = [
        part.split('"')[0] for part in (await suite.http.get("/openapi.json")).text.split("#/components/schemas/")[1:]
    ]
    assert set(references) <= set(document["components"]["schemas"])


async def test_every_response_is_hardened_and_named(suite: Suite) -> None:
    for path in ("/healthz", "/nothing/here", "/v1/runs/none"):
        response = await suite.http.get(path, headers={"X-Request-Id": "req-7"})
        assert response.headers["x-request-id"] == "req-7"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "'unsafe-inline'" not in response.headers["content-security-policy"].split("script-src")[1].split(";")[0]
    forged = await suite.http.get("/healthz", headers={"X-Request-Id": "a b"})
    assert forged.headers["x-request-id"] != "a b"


async def test_wrong_addresses_and_methods_are_problem_documents(suite: Suite) -> None:
    missing = await suite.http.get("/nothing/here")
    assert (missing.status_code, missing.json()["reason"]) == (404, "NOT_FOUND")
    wrong = await suite.http.put("/v1/runs")
    assert (wrong.status_code, wrong.headers["content-type"]) == (405, "application/problem+json")


async def test_a_body_beyond_the_limit_is_refused_declared_or_not() -> None:
    async with gateway_suite(max_body=1000) as suite:

        async def chunks() -> AsyncIterator[bytes]:
            yield b'{"input": "'
            for _ in range(40):
                yield b"x" * 100

        declared = await suite.http.post("/v1/runs", json={"input": "x" * 2000})
        undeclared = await suite.http.post("/v1/runs", content=chunks(), headers={"Content-Type": "application/json"})
        for response in (declared, undeclared):
            assert (response.status_code, response.json()["reason"]) == (413, "TOO_LARGE")


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "203.0.113.9"},
        {"Forwarded": "for=203.0.113.9"},
        {"Host": "rebound.example"},
    ],
)
async def test_only_this_machine_itself_needs_no_key(suite: Suite, headers: dict[str, str]) -> None:
    response = await suite.http.get("/v1/runs", headers=headers)
    assert (response.status_code, response.json()["reason"]) == (401, "UNAUTHENTICATED")
    assert response.headers["www-authenticate"].startswith("Bearer")


async def test_a_foreign_page_cannot_drive_a_local_browser(suite: Suite) -> None:
    response = await suite.http.get("/v1/runs", headers={"Origin": "https://evil.example"})
    assert response.status_code == 403
    assert (await suite.http.get("/v1/runs", headers={"Origin": suite.url})).status_code == 200


async def test_web_applications_of_named_origins_may_call_with_a_key() -> None:
    async with gateway_suite(cors_origins=("https://app.example",)) as suite:
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        allowed = await suite.http.options("/v1/runs", headers={"Origin": "https://app.example", **asked})
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        refused = await suite.http.options("/v1/runs", headers={"Origin": "https://evil.example", **asked})
        assert "access-control-allow-origin" not in refused.headers
        key = (await suite.http.post("/v1/keys", json={"name": "app"})).json()["key"]
        headers = {"Origin": "https://app.example", "Authorization": f"Bearer {key}"}
        assert (await suite.http.get("/v1/runs", headers=headers)).status_code == 200


async def test_the_rate_is_limited_and_told() -> None:
    async with gateway_suite(requests_per_minute=3) as suite:
        answers = [await suite.http.get("/v1/runs") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[0].headers["ratelimit-policy"] == '"requests";q=3;w=60'
    assert answers[0].headers["ratelimit"].startswith('"requests";r=2;t=')
    assert int(answers[3].headers["retry-after"]) <= 20
    assert answers[3].json()["reason"] == "RATE_LIMITED"


async def test_many_upload_while_others_ask(suite: Suite) -> None:
    files = [("file", (f"{n}.txt", b"x" * 1000)) for n in range(20)]
    uploads = [suite.http.post(f"/v1/sources/s{n}/documents", files=files) for n in range(5)]
    asks = [suite.http.post("/v1/runs", json={"input": "x"}) for _ in range(10)]
    answers: list[httpx.Response] = await asyncio.gather(*uploads, *asks)
    assert {answer.status_code for answer in answers} == {200}


async def test_a_caller_learns_who_it_is_and_what_it_may_do(suite: Suite) -> None:
    me = (await suite.http.get("/v1/me")).json()
    assert (me["tenant"], me["user"], me["identity"]) == ("local", "local", "local-no-key")
    assert (me["scopes"], me["agent"], me["trace_url"]) == (["*"], "", "")
    made = (await suite.http.post("/v1/keys", json={"name": "x", "user": "ann", "scopes": ["runs"]})).json()
    ann = (await suite.http.get("/v1/me", headers={"Authorization": f"Bearer {made['key']}"})).json()
    assert (ann["user"], ann["identity"], ann["scopes"]) == ("ann", "key", ["runs"])


@pytest.mark.parametrize("url", ["https://jaeger.example/trace/", "javascript:{trace_id}", "jaeger/{trace_id}"])
async def test_a_trace_address_without_a_place_for_the_id_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="TRACE_URL"):
        Settings(trace_url=url)
