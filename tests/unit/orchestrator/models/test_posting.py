"""What is posted after the first request is what the client would post, and fails as it would fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx2
import openai
import pytest

from services.chassis.clock import SystemClock
from services.orchestrator.models.openai_errors import from_client
from services.orchestrator.models.posting import Poster
from services.orchestrator.models.transport import ModelTransport

ERRORS = [
    (302, b""),
    (400, b'{"error": {"message": "no", "code": "context_length_exceeded"}}'),
    (401, b'{"error": {"message": "who?"}}'),
    (403, b'{"message": "not you"}'),
    (404, b'{"error": "nothing here"}'),
    (409, b"[1]"),
    (418, b"\xff no json"),
    (422, b'"short"'),
    (429, b'{"error": {"message": "slower", "code": "insufficient_quota"}}'),
    (429, b'{"error": {"message": "slower"}}'),
    (500, b"<html>broken</html>"),
    (503, b""),
]


class Server:
    """Answers every request with `status` and `body`, and keeps what was asked."""

    def __init__(self) -> None:
        self.status, self.body = 200, b"data: [DONE]\n\n"
        self.asked: list[tuple[list[str], bytes]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                length = next(int(line[15:]) for line in head if line.lower().startswith("content-length:"))
                self.asked.append((sorted(head), await reader.readexactly(length)))
                retry = "Retry-After: 3\r\n" if self.status == 429 else ""
                said = f"HTTP/1.1 {self.status} Said\r\n{retry}Content-Length: {len(self.body)}\r\n\r\n"
                writer.write(said.encode() + self.body)
        except asyncio.IncompleteReadError:
            writer.close()


@asynccontextmanager
async def posting(server: Server) -> AsyncIterator[Poster]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    transport = ModelTransport()
    http = httpx2.AsyncClient(transport=transport, timeout=None)
    client = openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{port}/v1/",
        api_key="key",
        organization="org",
        default_headers={"x-own": "1"},
        default_query={"api-version": "7"},
        max_retries=0,
        http_client=http,
    )
    yield Poster(client, transport, "/chat/completions")
    await client.close()
    listening.close()
    await listening.wait_closed()


async def test_the_next_requests_are_those_of_the_client() -> None:
    server = Server()
    async with posting(server) as poster:
        for content in (b'{"a": 1}', b'{"a": 2}'):
            response = await poster.post(content)
            assert await response.aread() == server.body
        await (await poster.by_the_client(b'{"a": 2}')).aread()
    (_, first_body), (quick, quick_body), (plain, plain_body) = server.asked
    assert quick == plain
    assert quick_body == plain_body == b'{"a": 2}'
    assert first_body == b'{"a": 1}'
    assert any(line.startswith("POST /v1/chat/completions?api-version=7 ") for line in quick)
    assert {"authorization: bearer key", "openai-organization: org", "x-own: 1"} <= {line.lower() for line in quick}


@pytest.mark.parametrize(("status", "body"), ERRORS)
async def test_a_refusal_is_the_clients_error(status: int, body: bytes) -> None:
    server = Server()
    async with posting(server) as poster:
        await (await poster.post(b"{}")).aread()
        server.status, server.body = status, body
        with pytest.raises(openai.APIStatusError) as plain:
            await poster.by_the_client(b"{}")
        with pytest.raises(openai.APIStatusError) as quick:
            await poster.post(b"{}")
    for error in (plain.value, quick.value):
        assert error.status_code == status
    assert type(quick.value) is type(plain.value)
    assert (quick.value.code, quick.value.body, str(quick.value)) == (
        plain.value.code,
        plain.value.body,
        str(plain.value),
    )
    clock = SystemClock()
    ours, theirs = from_client("m", quick.value, clock), from_client("m", plain.value, clock)
    assert (type(ours), ours.message, ours.retryable) == (type(theirs), theirs.message, theirs.retryable)


async def test_a_server_that_is_gone_is_told_as_the_client_tells_it() -> None:
    server = Server()
    async with posting(server) as poster:
        await (await poster.post(b"{}")).aread()
        assert poster._said is not None
        poster._said = replace(poster._said, url="http://127.0.0.1:1/v1/chat/completions")
        with pytest.raises(httpx2.ConnectError) as quick:
            await poster.post(b"{}")
        poster._client.base_url = httpx2.URL("http://127.0.0.1:1/v1/")
        with pytest.raises(openai.APIConnectionError) as plain:
            await poster.by_the_client(b"{}")
    clock = SystemClock()
    ours, theirs = from_client("m", quick.value, clock), from_client("m", plain.value, clock)
    assert (type(ours), ours.message) == (type(theirs), theirs.message)


async def test_nothing_is_kept_of_a_first_request_that_failed() -> None:
    server = Server()
    server.status, server.body = 500, b""
    async with posting(server) as poster:
        with pytest.raises(openai.InternalServerError):
            await poster.post(b"{}")
        assert poster._said is None
