"""The gateway behind the nginx configuration that is shipped: streams over HTTP/1.1 and HTTP/2, sockets, uploads."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser
from websockets.asyncio.client import connect

from services.gateway.pages import WEB
from tests.support.fake_backends import Suite, gateway_suite
from tests.support.nginx import nginx_before
from tests.support.run_events import answer, completed, started
from tests.support.sse_reader import events

pytestmark = pytest.mark.asyncio(loop_scope="session")

PIECES = 20
# Asks for a run and hands the events of its stream to `next()`, one at a time.
READER = """async (headers) => {
  const response = await fetch("/v1/runs", {
    method: "POST", headers: { "Content-Type": "application/json", ...headers }, body: '{"input": "slow"}',
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  window.next = async () => {
    while (!text.includes("\\n\\n")) text += (await reader.read()).value;
    const end = text.indexOf("\\n\\n");
    const event = text.slice(0, end);
    text = text.slice(end + 2);
    return event.startsWith(":") ? window.next() : event;
  };
  return { status: response.status, encoding: response.headers.get("Content-Encoding") };
}"""


class Front(NamedTuple):
    """A gateway over fakes, nginx before it, a key, and a client that trusts nginx."""

    suite: Suite
    url: str
    trust: ssl.SSLContext
    key: dict[str, str]
    http: httpx.AsyncClient


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    folder: Path = tmp_path_factory.mktemp("nginx")
    async with gateway_suite(keepalive=timedelta(milliseconds=50)) as suite, nginx_before(suite.url, folder) as front:
        url, trust = front
        made = (await suite.http.post("/v1/keys", json={"name": "front", "scopes": ["runs", "sources:write"]})).json()
        key = {"Authorization": f"Bearer {made['key']}"}
        async with httpx.AsyncClient(base_url=url, verify=trust, headers=key, timeout=20, trust_env=False) as http:
            yield Front(suite, url, trust, key, http)


@pytest.fixture
def front(shared: Front) -> Front:
    shared.suite.forget()
    return shared


async def test_http_1_streams_pass_each_event_before_the_next_exists(front: Front) -> None:
    front.suite.orchestrator.script = [started()]
    async with front.http.stream("POST", "/v1/runs", json={"input": "slow"}) as response:
        assert response.http_version == "HTTP/1.1"
        stream = (event async for event in events(response) if not event.comment)
        assert (await anext(stream)).event == "run_started"
        for number in range(PIECES):
            front.suite.orchestrator.runs["run1"].append(answer(str(number)))
            assert (await anext(stream)).json["answer_delta"]["text"] == str(number)
        front.suite.orchestrator.runs["run1"].append(completed("all"))
        assert [event.event async for event in stream] == ["run_completed"]


async def test_http_2_streams_do_too_and_many_share_one_connection(front: Front, browser: Browser) -> None:
    context = await browser.new_context(ignore_https_errors=True)
    pages = [await context.new_page() for _ in range(8)]  # HTTP/1.1 would stop at six streams to one host
    for page in pages:
        await page.goto(f"{front.url}/healthz")
        front.suite.orchestrator.script = [started()]
        assert await page.evaluate(READER, front.key) == {"status": 200, "encoding": None}
        assert "event: run_started" in await page.evaluate("next()")
    used = await pages[0].evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol")
    assert used == "h2"
    runs = list(front.suite.orchestrator.runs.values())
    assert len(runs) == len(pages)
    for number in range(PIECES):
        for run, page in zip(runs, pages, strict=True):
            run.append(answer(f"{run.run_id}-{number}"))
            assert f'"{run.run_id}-{number}"' in await page.evaluate("next()")
    await context.close()


async def test_a_quiet_stream_is_kept_warm_through_the_proxy_and_never_compressed(front: Front) -> None:
    front.suite.orchestrator.script = [started()]
    asked = {"Accept-Encoding": "gzip", "Accept": "text/event-stream"}
    async with front.http.stream("POST", "/v1/runs", json={"input": "slow"}, headers=asked) as response:
        assert "content-encoding" not in response.headers
        assert response.headers["cache-control"] == "no-cache, no-transform"
        assert response.headers["content-type"].startswith("text/event-stream")
        stream = events(response)
        await anext(stream)
        assert [(await anext(stream)).comment for _ in range(3)] == ["keep-alive"] * 3


@pytest.mark.parametrize("wire", ["/v1/chat/completions", "/v1/responses", "/v1/ui/chat", "/v1/ag-ui"])
async def test_no_wire_is_compressed(front: Front, wire: str) -> None:
    question = {"id": "m1", "role": "user", "content": "x", "parts": [{"type": "text", "text": "x"}]}
    body = {"id": "c1", "threadId": "t", "runId": "r", "model": "agent/handbook", "input": "x", "stream": True}
    keys = {
        "/v1/chat/completions": ("model", "stream"),
        "/v1/responses": ("model", "stream", "input"),
        "/v1/ui/chat": ("id",),
        "/v1/ag-ui": ("threadId", "runId"),
    }[wire]
    sent: dict[str, Any] = {name: body[name] for name in keys}
    if wire != "/v1/responses":
        sent["messages"] = [question]
    if wire == "/v1/chat/completions":
        sent["messages"] = [{"role": "user", "content": "x"}]
    async with front.http.stream("POST", wire, json=sent, headers={"Accept-Encoding": "gzip"}) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in response.headers
        assert "data:" in (await response.aread()).decode()


async def test_the_world_behind_the_proxy_is_not_this_machine(front: Front) -> None:
    async with httpx.AsyncClient(base_url=front.url, verify=front.trust, trust_env=False) as stranger:
        assert (await stranger.get("/v1/runs")).status_code == 401
    assert (await front.suite.http.get("/v1/runs")).status_code == 200


async def test_the_web_socket_passes(front: Front) -> None:
    url = front.url.replace("https", "wss") + "/v1/ws"
    async with connect(url, ssl=front.trust, additional_headers=front.key, proxy=None) as socket:
        await socket.send('{"type": "start", "id": "a", "body": {"input": "hi"}}')
        kinds = [message["type"] async for message in _until_done(socket)]
    assert kinds == ["ready", *["event"] * 7, "done"]


async def test_uploads_larger_than_nginx_allows_by_itself_pass(front: Front) -> None:
    content = b"x" * 3_000_000
    response = await front.http.post("/v1/sources/s1/documents", files={"file": ("a.txt", content)})
    assert response.status_code == 200, response.text
    assert front.suite.retrieval.files["a.txt"] == content


async def test_files_of_the_page_are_compressed(front: Front) -> None:
    response = await front.http.get("/assets/vendor/markdown-it.js", headers={"Accept-Encoding": "gzip"})
    assert response.headers["content-encoding"] == "gzip"
    assert response.content == (WEB / "vendor" / "markdown-it.js").read_bytes()


async def _until_done(socket: Any) -> AsyncIterator[dict[str, Any]]:
    async for text in socket:
        message: dict[str, Any] = json.loads(text)
        yield message
        if message["type"] == "done":
            return
