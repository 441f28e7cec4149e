"""MCP servers that die, hang, are not there, or are another tenant's."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from services.orchestrator.mcp.connection import Unreachable
from services.orchestrator.mcp.ports import Link
from services.orchestrator.tools.ports import Consent
from tests.support.clock import FakeClock
from tests.support.mcp_kit import (
    ANN,
    ROOT,
    STDIO,
    desk,
    http_server,
    local_server,
    questions,
    serving,
    start_http,
)
from tests.support.mcp_server import server as desk_server
from tests.support.waiting import until

BOB = replace(ANN, tenant="t2", user="bob")
EVE = replace(ANN, tenant="t3", user="eve")


def at(url: str, more: str = "", name: str = "desk") -> str:
    """Return a server's table."""
    return f'[mcp.servers.{name}]\nurl = "{url}"\n{more}\n'


async def test_a_process_that_dies_in_a_call_is_told_and_started_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = f'[mcp.servers.desk]\n{STDIO}env = {{ MCP_SERVER_LOG = "{log}" }}\n'
    async with desk(tmp_path, config) as mine:
        died = await mine.call("desk__die")
        again = await mine.call("desk__read_ticket", number=2)

    assert (died.failed, died.unknown) == (True, True)
    assert "whether it took effect is unknown" in died.text
    assert again.text == "Ticket 2: the lift is stuck."
    assert log.read_text().splitlines() == ["die", "read_ticket 2"]


async def test_a_server_that_restarts_is_reconnected_and_nothing_runs_twice(tmp_path: Path) -> None:
    log, clock = tmp_path / "log", FakeClock()
    first = await start_http(log=log)
    try:
        async with desk(tmp_path, at(first.url, 'protocol = "legacy"'), clock=clock) as mine:
            assert (await mine.call("desk__read_ticket", number=1)).text
            working = asyncio.create_task(mine.call("desk__slow", seconds=60))
            await until(lambda: bool(mine.progress))
            await first.kill()
            broken = await working
            with pytest.raises(Unreachable, match="tool server 'desk' cannot be reached"):
                await mine.call("desk__read_ticket", number=3)
            with pytest.raises(Unreachable, match="tried again in"):
                await mine.call("desk__read_ticket", number=3)
            clock.advance(61)
            async with http_server(port=first.port, log=log):
                back = await mine.call("desk__read_ticket", number=4)
    finally:
        await first.kill()

    assert broken.unknown
    assert back.text.startswith("Ticket 4")
    assert log.read_text().splitlines() == ["read_ticket 1", "slow begins", "read_ticket 4"]


async def test_a_session_that_the_server_forgot_is_opened_again_for_the_same_call(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = await start_http(log=log)
    async with desk(tmp_path, at(first.url, 'protocol = "legacy"')) as mine:
        await mine.call("desk__read_ticket", number=1)
        await first.kill()
        async with http_server(port=first.port, log=log):
            result = await mine.call("desk__create_ticket", title="lift", reporter={"name": "Ann"})

    assert result.text == "Created ticket 8 (lift) for Ann."
    assert log.read_text().splitlines() == ["read_ticket 1", "create_ticket lift"]


async def test_a_server_that_is_not_there_leaves_the_rest_working(tmp_path: Path) -> None:
    gone = '[mcp.servers.gone]\ncommand = "/no/such/program"\n'
    async with local_server() as url, desk(tmp_path, at(url) + gone) as mine:
        provided = await mine.servers.tools(ANN, ())
        states = {state.name: state for state in await mine.servers.states("t1", connect=False)}

    assert "desk__read_ticket" in {tool.definition.name for tool in provided.tools}
    ((code, notice),) = provided.notices
    assert code == "tool_server_unreachable"
    assert notice == "The tools of 'gone' are missing: there is no program '/no/such/program'."
    assert (states["gone"].link, states["desk"].link) == (Link.BROKEN, Link.CONNECTED)


async def test_a_server_that_never_answers_costs_a_run_its_patience_only(tmp_path: Path) -> None:
    hanging = (
        f'command = "{sys.executable}"\nargs = ["-c", "import time; time.sleep(60)"]\nconnect_timeout_seconds = 0.3\n'
    )
    async with desk(tmp_path, f"[mcp.servers.hang]\n{hanging}", patience=0.05) as mine:
        provided = await mine.servers.tools(ANN, ())
        with pytest.raises(Unreachable, match=r"no session within 0\.3 s"):
            await mine.servers.find(ANN, "hang__anything")

    assert provided.tools == ()
    assert provided.withheld == {"hang__*": "no answer within 0.05 s"}


async def test_an_agent_without_a_servers_tools_does_not_connect_it(tmp_path: Path) -> None:
    async with desk(tmp_path, f"[mcp.servers.desk]\n{STDIO}") as mine:
        provided = await mine.servers.tools(ANN, ("search", "other__*"))
        (state,) = await mine.servers.states("t1", connect=False)

    assert (provided.tools, state.link) == ((), Link.IDLE)


async def test_credentials_of_a_tenant_serve_no_other(tmp_path: Path) -> None:
    tenants = """
[mcp.servers.desk.tenants.t1]
headers_env = { Authorization = "KEY_1" }
[mcp.servers.desk.tenants.t2]
headers_env = { Authorization = "KEY_2" }
"""
    async with (
        local_server() as url,
        desk(tmp_path, at(url, tenants), KEY_1="Bearer one", KEY_2="Bearer two") as mine,
    ):
        texts = [(await mine.call("desk__whoami", principal)).text for principal in (ANN, BOB, ANN)]

        assert texts == ["Bearer one", "Bearer two", "Bearer one"]
        assert await mine.servers.find(EVE, "desk__whoami") is None
        assert (await mine.servers.tools(EVE, ())).tools == ()
        assert "Bearer" not in repr(await mine.servers.states("t1", connect=False))


async def test_a_process_sees_no_environment_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "hidden")
    async with desk(tmp_path, f'[mcp.servers.desk]\n{STDIO}env_from = {{ DESK_KEY = "KEY" }}\n', KEY="k1") as mine:
        names = (await mine.call("desk__environment")).text.split(",")
        key = (await mine.call("desk__whoami")).text

    assert key == "k1"
    assert set(names) <= {"DESK_KEY", "HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE", "PWD"}


async def test_a_changed_file_changes_the_servers_and_a_wrong_one_nothing(tmp_path: Path) -> None:
    async with local_server() as url, desk(tmp_path, at(url)) as mine:
        before = await mine.call("desk__read_ticket", number=1)
        (tmp_path / "proctor.toml").write_text("[mcp.servers.desk]\nnonsense = 1\n")
        wrong = mine.servers.reload()
        kept = await mine.tool("desk__read_ticket")
        (tmp_path / "proctor.toml").write_text(at(url, 'suppress = ["read_*"]', "till"))
        changed = mine.servers.reload()
        stale = await mine.servers.find(ANN, "desk__read_ticket")
        await mine.servers.tidy()
        with pytest.raises(Unreachable, match="its settings have changed"):
            await kept.run({"number": 1}, mine.context())
        found = {tool.definition.name for tool in (await mine.servers.tools(ANN, ())).tools}
        (state,) = await mine.servers.states("t1", connect=False)

    assert before.text
    assert (wrong, stale, changed) == (False, None, True)
    assert "till__create_ticket" in found
    assert not any(name.startswith("desk__") or name == "till__read_ticket" for name in found)
    assert ("read_ticket", "the operator suppresses it") in state.left_out


async def test_an_idle_session_is_closed_and_opened_when_it_is_needed(tmp_path: Path) -> None:
    clock = FakeClock()
    async with local_server() as url, desk(tmp_path, at(url, "idle_seconds = 60"), clock=clock) as mine:
        await mine.call("desk__read_ticket", number=1)
        clock.advance(61)
        await mine.servers.rest()
        (resting,) = await mine.servers.states("t1", connect=False)
        again = await mine.call("desk__read_ticket", number=2)

    assert resting.link is Link.IDLE
    assert "desk__read_ticket" in resting.tools
    assert again.text.startswith("Ticket 2")


class Guarded:
    """A server that wants a token, and the authorization server that gives one for client credentials."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.base = ""
        self.grants: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http" and not headers.get(b"authorization", b"").startswith(b"Bearer token-of-"):
            metadata = f'Bearer resource_metadata="{self.base}/.well-known/oauth-protected-resource/mcp"'
            await Response(status_code=401, headers={"WWW-Authenticate": metadata})(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def resource(self, request: Request) -> Response:
        return JSONResponse({"resource": f"{self.base}/mcp", "authorization_servers": [self.base]})

    async def issuer(self, request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.base,
                "authorization_endpoint": f"{self.base}/authorize",
                "token_endpoint": f"{self.base}/token",
                "response_types_supported": ["code"],
                "grant_types_supported": ["client_credentials"],
                "token_endpoint_auth_methods_supported": ["client_secret_post"],
            }
        )

    async def token(self, request: Request) -> Response:
        form = await request.form()
        user = request.headers.get("authorization", "") or str(form.get("client_id"))
        self.grants.append(user)
        return JSONResponse(
            {"access_token": f"token-of-{len(self.grants)}", "token_type": "Bearer", "expires_in": 3600}
        )


@asynccontextmanager
async def guarded_server() -> AsyncIterator[Guarded]:
    """Serve the desk behind OAuth, in this process."""
    app = desk_server.streamable_http_app(stateless_http=True)
    guarded = Guarded(app)
    routes = [
        Route("/.well-known/oauth-protected-resource/mcp", guarded.resource),
        Route("/.well-known/oauth-authorization-server", guarded.issuer),
        Route("/token", guarded.token, methods=["POST"]),
        Mount("/", guarded),
    ]
    async with serving(Starlette(routes=routes), app) as guarded.base:
        yield guarded


async def test_each_tenant_gets_a_token_for_its_own_client(tmp_path: Path) -> None:
    async with guarded_server() as guarded:
        tenants = "".join(
            f'[mcp.servers.desk.tenants.{tenant}.oauth]\nissuer = "{guarded.base}"\nclient_id = "client-{tenant}"\n'
            f'client_secret_env = "SECRET"\n'
            for tenant in ("t1", "t2")
        )
        async with desk(tmp_path, at(f"{guarded.base}/mcp", tenants), SECRET="s3cret") as mine:
            texts = [(await mine.call("desk__whoami", principal)).text for principal in (ANN, BOB, ANN)]

    assert len(guarded.grants) == 2
    assert texts == ["Bearer token-of-1", "Bearer token-of-2", "Bearer token-of-1"]


async def test_servers_of_known_tenants_are_listed_before_any_run(tmp_path: Path) -> None:
    async with local_server() as url, desk(tmp_path, at(url), greeted=("t1",)) as mine:
        watching = asyncio.create_task(mine.servers.watch())
        try:
            await until(lambda: mine.servers.listed("t1") == {"desk"})
        finally:
            watching.cancel()
            await asyncio.wait({watching})

        assert mine.servers.listed("t2") == set()


async def test_the_first_server_of_the_docs_runs_as_it_is_told(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")
    config = page.split("```toml\n", 2)[1].split("```")[0]
    config = config.replace('"python"', f'"{sys.executable}"').replace('"examples/', f'"{ROOT}/examples/')
    async with desk(tmp_path, config) as mine:
        reading = (await mine.tool("desk__read_ticket")).definition
        paused = await mine.call("desk__make_ticket", title="The door squeaks")
        assert paused.questions is not None
        made = await mine.answer("desk__make_ticket", paused.questions, {"priority": "high"}, title="The door squeaks")
        read = await mine.call("desk__read_ticket", number=2)

    assert reading.consent is Consent.ALLOW
    assert questions(paused.questions)[0]["options"] == ["low", "high"]
    assert made.text == "Ticket 2 is made."
    assert "open, high priority" in read.text
