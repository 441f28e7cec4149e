"""The WebSocket over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.support.fake_backends import Suite, gateway_suite
from tests.support.run_events import answer, approval_requested, completed, paused, started

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Suite]:
    async with gateway_suite(key_check=timedelta(milliseconds=50)) as running:
        yield running


@pytest.fixture
def suite(shared: Suite) -> Suite:
    return shared.forget()


class Socket:
    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, **message: Any) -> None:
        await self.connection.send(json.dumps(message))

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(5):
            message: dict[str, Any] = json.loads(await self.connection.recv())
            return message

    async def until(self, kind: str) -> list[dict[str, Any]]:
        got = [await self.receive()]
        while got[-1]["type"] != kind:
            got.append(await self.receive())
        return got


@asynccontextmanager
async def opened(suite: Suite, **headers: str) -> AsyncIterator[Socket]:
    url = suite.url.replace("http", "ws") + "/v1/ws"
    async with connect(url, additional_headers=headers, proxy=None) as connection:
        yield Socket(connection)


async def test_a_run_streams_over_the_socket(suite: Suite) -> None:
    async with opened(suite) as socket:
        assert (await socket.receive()) == {"type": "ready", "id": "", "identity": "local-no-key"}
        await socket.send(type="start", id="a", body={"input": "How long?"})
        got = await socket.until("done")
        assert [message["event"]["sequence"] for message in got[:-1]] == list(range(1, 8))
        assert {message["id"] for message in got} == {"a"}
        await socket.send(type="watch", id="b", run_id="run1", after=5)
        assert [m["event"]["sequence"] for m in (await socket.until("done"))[:-1]] == [6, 7]


async def test_runs_interleave_and_can_be_left(suite: Suite) -> None:
    suite.orchestrator.script = [started()]
    async with opened(suite) as socket:
        await socket.receive()
        for name in ("a", "b"):
            await socket.send(type="start", id=name, body={"input": name})
        await socket.receive()
        await socket.receive()
        suite.orchestrator.runs["run2"].append(answer("x"), completed("x"))
        assert [message["id"] for message in await socket.until("done")] == ["b"] * 3
        await socket.send(type="leave", id="a")
        assert (await socket.receive())["type"] == "result"
        await socket.send(type="cancel", id="c", run_id="run1")
        assert (await socket.receive())["result"] == {"run_id": "run1"}
        await socket.send(type="ping", id="p")
        assert (await socket.receive()) == {"type": "pong", "id": "p", "pong": {}}


async def test_decisions_are_brought_over_the_socket(suite: Suite) -> None:
    suite.orchestrator.script = [started(), approval_requested(), paused("call_1")]
    suite.orchestrator.after_resume = [completed("ok")]
    async with opened(suite) as socket:
        await socket.receive()
        await socket.send(type="start", id="a", body={"input": "x", "hold": 0})
        await socket.until("done")
        await socket.send(type="decide", id="d", approval_id="ap_call_1", body={"decision": "approve"})
        assert (await socket.receive())["result"]["decided_now"] is True
        decision = {"call_id": "call_1", "approval": {"verdict": "approve"}}
        await socket.send(type="resume", id="r", run_id="run1", body={"decisions": [decision]})
        got = await socket.until("done")
        assert "run_completed" in got[-2]["event"]
    assert suite.approvals.decisions[0][1].approval_id == "ap_call_1"


async def test_mistakes_are_answered_and_the_socket_stays(suite: Suite) -> None:
    async with opened(suite) as socket:
        await socket.receive()
        for wrong in ("{", "[]", '{"type":"nope"}', '{"type":"start","id":"a","body":{"inptu":1}}', '{"type":"watch"}'):
            await socket.connection.send(wrong)
            assert (await socket.receive())["error"]["reason"] == "INVALID_REQUEST"
        await socket.send(type="watch", id="w", run_id="none")
        message = await socket.receive()
        assert (message["id"], message["error"]["reason"]) == ("w", "RUN_NOT_FOUND")


async def test_a_browser_authenticates_by_its_first_message(suite: Suite) -> None:
    made = (await suite.http.post("/v1/keys", json={"name": "page", "tenant": "acme"})).json()
    async with opened(suite, **{"X-Forwarded-For": "203.0.113.9"}) as socket:
        await socket.send(type="authenticate", key=made["key"])
        assert (await socket.receive())["identity"] == "key"
    async with opened(suite, **{"X-Forwarded-For": "203.0.113.9"}) as socket:
        await socket.send(type="start", id="a", body={"input": "x"})
        assert (await socket.receive())["error"]["reason"] == "UNAUTHENTICATED"
        with pytest.raises(ConnectionClosed) as closed:
            await socket.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401


async def test_a_foreign_page_is_refused(suite: Suite) -> None:
    async with opened(suite, Origin="https://evil.example") as socket:
        assert (await socket.receive())["error"]["reason"] == "PERMISSION_DENIED"


async def test_a_revoked_key_closes_the_socket(suite: Suite) -> None:
    made = (await suite.http.post("/v1/keys", json={"name": "ci"})).json()
    async with opened(suite, Authorization=f"Bearer {made['key']}") as socket:
        assert (await socket.receive())["identity"] == "key"
        await suite.http.delete(f"/v1/keys/{made['key_id']}")
        with pytest.raises(ConnectionClosed) as closed:
            await socket.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401
