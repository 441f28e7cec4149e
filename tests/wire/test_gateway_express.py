"""The short way to the routes that start runs answers everything as the framework does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from opentelemetry.trace import SpanKind
from starlette.types import ASGIApp

from services.chassis import names
from services.chassis.errors import Overloaded
from services.chassis.telemetry import Telemetry
from services.gateway.access import Asker, Reader
from services.gateway.app import EXPRESS, enclosed
from services.gateway.bodies.runs import StartRun
from services.gateway.dependencies import PartsDep
from services.gateway.express import Express
from services.gateway.routes import chat as chat_routes
from tests.support.fake_backends import Suite, gateway_suite
from tests.support.platform import Recorded, recorded_telemetry, test_platform
from tests.support.run_events import approval_requested, paused, started

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT, RESPONSES, RUNS = "/v1/chat/completions", "/v1/responses", "/v1/runs"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"model": "reader", "messages": [{"role": "user", "content": "How long?"}]},
    RESPONSES: {"model": "reader", "input": "How long?"},
    RUNS: {"input": "How long?"},
}
STREAMED = {path: body if path == RUNS else {**body, "stream": True} for path, body in BODIES.items()}
KIND = {"Content-Type": "application/json"}


class Same:
    """Ids that tell nothing apart."""

    def new(self) -> str:
        return "made"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Suite]:
    async with gateway_suite(test_platform(ids=Same()), max_body=100_000, requests_per_minute=100_000) as running:
        yield running


@pytest.fixture
def suite(shared: Suite) -> Suite:
    return shared.forget()


def ways(suite: Suite, telemetry: Telemetry) -> tuple[ASGIApp, ASGIApp]:
    """Return the gateway with the short way and without it."""
    app, parts = suite.gateway.app, suite.gateway.parts
    return enclosed(app, parts, telemetry), enclosed(app, parts, telemetry, express=())


async def told(suite: Suite, app: ASGIApp, path: str, content: bytes, headers: dict[str, str]) -> tuple[Any, ...]:
    """Return all that a request brings about: the answer, and what reached the orchestrator."""
    suite.orchestrator.runs, suite.orchestrator.by_request = {}, {}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.post(path, content=content, headers={"X-Request-Id": "r1", **headers})
    kept = {name: value for name, value in response.headers.items() if name != "ratelimit"}
    started_runs = [(run.owner, run.request) for run in suite.orchestrator.runs.values()]
    return response.status_code, kept, response.content, started_runs


async def compare(suite: Suite, path: str, content: bytes, headers: dict[str, str]) -> tuple[Any, ...]:
    short, plain = ways(suite, suite.platform.telemetry)
    ours, theirs = [await told(suite, app, path, content, headers) for app in (short, plain)]
    assert ours == theirs
    return ours


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("extra", [{"stream": True}, {}, {"stream": "yes"}, {"stream": []}, {"unheard_of": 1}])
async def test_a_request_is_answered_alike(suite: Suite, path: str, extra: dict[str, Any]) -> None:
    status, *_ = await compare(suite, path, json.dumps({**BODIES[path], **extra}).encode(), KIND)
    assert status in {200, 400}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "application/json; charset=utf-8"},
        {"Content-Type": "application/problem+json"},
        {"Content-Type": "APPLICATION/JSON"},
        {"Content-Type": "application/jsonlines"},
        {"Content-Type": "text/plain"},
        {**KIND, "Accept": "application/json"},
        {**KIND, "Idempotency-Key": ""},
        {**KIND, "Idempotency-Key": "k" * 100},
        {**KIND, "Idempotency-Key": "k" * 101},
        {**KIND, "Origin": "https://evil.example"},
        {**KIND, "Host": "rebound.example"},
        {**KIND, "X-Forwarded-For": "203.0.113.9"},
        {**KIND, "Authorization": "Bearer whatever"},
        {**KIND, "X-Request-Id": "not one of ours!"},
    ],
)
@pytest.mark.parametrize("path", BODIES)
async def test_headers_mean_the_same(suite: Suite, path: str, headers: dict[str, str]) -> None:
    await compare(suite, path, json.dumps(STREAMED[path]).encode(), headers)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b'{"input": "\xff"}',
        '{"input": "x"}'.encode("utf-16"),
        b"\xef\xbb\xbf" + b'{"input": "x"}',
        b'{"input": "\\ud800"}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": 1e999}',
        b'{"messages": [{"role": "user", "content": "x"}], "seed": ' + b"9" * 5000 + b"}",
        b'{"messages": [{"role": "user", "content": "x"}], "messages": []}',
        b'{"messages": [{"role": "user", "content": "x"}], "n": 2}',
        b'{"messages": [{"role": "system", "content": "x"}]}',
        b'{"input": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"input": "' + b"x" * 100_001 + b'"}',
    ],
    ids=lambda content: repr(content[:40]),
)
@pytest.mark.parametrize("path", BODIES)
async def test_odd_bodies_are_refused_alike(suite: Suite, path: str, content: bytes) -> None:
    await compare(suite, path, content, KIND)


@pytest.mark.parametrize("path", BODIES)
async def test_failures_behind_the_gateway_are_told_alike(suite: Suite, path: str) -> None:
    suite.orchestrator.refuse = Overloaded("all slots are busy", metadata={"slots": "3"}, retry_after=2.5)
    status, headers, *_ = await compare(suite, path, json.dumps(STREAMED[path]).encode(), KIND)
    assert (status, headers["retry-after"]) == (503, "3")


@pytest.mark.parametrize("path", BODIES)
async def test_a_pause_ends_alike(suite: Suite, path: str) -> None:
    suite.orchestrator.script = [started(), approval_requested(), paused()]
    if path != RUNS:  # on the native wire the stream stays open
        await compare(suite, path, json.dumps(STREAMED[path]).encode(), KIND)


@pytest.mark.parametrize("scopes", [["runs"], ["sources:read"]])
async def test_a_key_lets_in_alike(suite: Suite, scopes: list[str]) -> None:
    made = (await suite.http.post("/v1/keys", json={"name": "ci", "user": "ann", "scopes": scopes})).json()
    headers = {**KIND, "Authorization": f"Bearer {made['key']}"}
    status, sent, _, runs = await compare(suite, CHAT, json.dumps(BODIES[CHAT]).encode(), headers)
    assert (status, sent["proctor-identity"]) == (200 if scopes == ["runs"] else 403, "key")
    assert [owner.user for owner, _ in runs] == ["ann"] * (status == 200)


async def test_a_fault_of_ours_is_told_alike(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("hunter2")

    monkeypatch.setattr(chat_routes, "to_run", broken)
    status, headers, content, _ = await compare(suite, CHAT, json.dumps(BODIES[CHAT]).encode(), KIND)
    assert status == 500
    assert b"hunter2" not in content
    assert headers["x-request-id"] == "r1"


def server_spans(recorded: Recorded) -> list[Any]:
    spans = [span for span in recorded.spans() if span.kind is SpanKind.SERVER]
    return [(span.name, dict(span.attributes or {}), span.parent and span.parent.span_id) for span in spans]


async def test_both_ways_are_traced_and_measured_alike(suite: Suite) -> None:
    seen = []
    for index in (0, 1):
        recorded = recorded_telemetry()
        app = ways(suite, recorded.telemetry)[index]
        headers = {**KIND, "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
        await told(suite, app, CHAT, json.dumps(BODIES[CHAT]).encode(), headers)
        await told(suite, app, CHAT, b"{}", headers)
        points: list[Any] = recorded.points(names.HTTP_SERVER_DURATION.name)
        seen.append((server_spans(recorded), sorted(str(sorted(point.attributes.items())) for point in points)))
    assert seen[0] == seen[1]
    assert [name for name, _, _ in seen[0][0]] == [f"POST {CHAT}"] * 2
    assert {parent for _, _, parent in seen[0][0]} == {0x00F067AA0BA902B7}


async def test_what_is_read_before_the_framework_takes_over_is_not_lost(suite: Suite) -> None:
    pieces = [b'{"input": ', b"nonsense", b"}"]
    received = iter(pieces)
    sent: list[Any] = []

    async def receive() -> Any:
        piece = next(received, None)
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": piece != b"}"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": RUNS, "raw_path": RUNS.encode(), "query_string": b""}
    scope |= {"headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "scheme": "http"}
    scope |= {"root_path": "", "http_version": "1.1"}
    await ways(suite, suite.platform.telemetry)[0](scope, receive, send)
    assert sent[0]["status"] == 400
    assert b"JSON decode error" in sent[1]["body"]


async def test_the_routes_of_the_short_way_are_those_that_start_runs() -> None:
    assert sorted(route.path for route in EXPRESS) == sorted(BODIES)


async def test_a_route_that_takes_something_else_is_not_on_the_short_way(suite: Suite) -> None:
    router = APIRouter()

    @router.post("/more")
    async def more(
        body: StartRun, request: Request, parts: PartsDep, caller: Asker, idempotency_key: str = "", page: int = 0
    ) -> Response:
        raise NotImplementedError

    @router.post("/others")
    async def others(
        body: StartRun, request: Request, parts: PartsDep, caller: Reader, idempotency_key: str = ""
    ) -> Response:
        raise NotImplementedError

    for route in router.routes:
        assert isinstance(route, APIRoute)
        with pytest.raises(TypeError, match="other parameters"):
            Express(suite.gateway.app, suite.gateway.parts, suite.gateway.app.state.failed, [route])


async def test_the_gateway_reads_an_ended_run_to_its_end() -> None:
    """To give up a stream that has nothing more to say would count as a failure, and cost both sides more."""
    recorded = recorded_telemetry()
    async with gateway_suite(test_platform(telemetry=recorded.telemetry)) as suite:
        for path, body in STREAMED.items():
            response = await suite.http.post(path, json=body)
            assert response.status_code == 200
    spans = [s for s in recorded.spans("proctor.orchestrator.v1.RunService/StartRun") if s.kind is SpanKind.CLIENT]
    assert [dict(s.attributes or {})[names.RPC_RESPONSE_STATUS_CODE] for s in spans] == ["OK"] * len(BODIES)
