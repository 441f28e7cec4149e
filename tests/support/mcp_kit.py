"""What tests of MCP need: the server as a process, and Proctor's side with files in memory."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvicorn
from opentelemetry.trace import NoOpTracer
from starlette.applications import Starlette
from starlette.types import ASGIApp

from services.chassis.clock import Clock, SystemClock
from services.chassis.identity import Principal
from services.orchestrator.artifacts import media_type, safe_name
from services.orchestrator.domain.events import ProgressStream
from services.orchestrator.domain.messages import Artifact
from services.orchestrator.mcp.servers import McpServers
from services.orchestrator.tools.ports import Resumed, Tool, ToolContext, ToolQuestions, ToolResult
from tests.support.clock import SequentialIds
from tests.support.mcp_server import server as desk_server

ROOT = Path(__file__).parents[2]
ANN = Principal(tenant="t1", user="ann", scopes=frozenset({"*"}))
# The program under a name of its own, so that its environment needs nothing but PATH and this.
STDIO = f"""
command = "{sys.executable}"
args = ["-m", "tests.support.mcp_server", "stdio"]
cwd = "{ROOT}"
"""


@dataclass
class MemoryFiles:
    """Keeps files in memory."""

    kept: dict[str, bytes] = field(default_factory=dict)

    async def keep(self, principal: Principal, name: str, chunks: AsyncIterator[bytes], run_id: str = "") -> Artifact:
        content = b"".join([chunk async for chunk in chunks])
        name = safe_name(name)
        artifact_id = f"a{len(self.kept) + 1}"
        self.kept[artifact_id] = content
        kind = media_type(name, content[:512])
        return Artifact(artifact_id=artifact_id, name=name, media_type=kind, size=len(content), sha256="")


@dataclass
class HttpServer:
    """A server process over HTTP."""

    process: asyncio.subprocess.Process
    port: int

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self.port}/mcp"

    async def kill(self) -> None:
        """End it at once."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


async def start_http(*options: str, port: int = 0, log: Path | None = None) -> HttpServer:
    """Start the server and return it once it listens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.mcp_server",
        "http",
        str(port),
        *options,
        cwd=ROOT,
        env={**os.environ, **({"MCP_SERVER_LOG": str(log)} if log else {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    return HttpServer(process=process, port=int(await process.stdout.readline()))


@asynccontextmanager
async def http_server(*options: str, port: int = 0, log: Path | None = None) -> AsyncIterator[HttpServer]:
    """Run the server over HTTP."""
    running = await start_http(*options, port=port, log=log)
    try:
        yield running
    finally:
        await running.kill()


@asynccontextmanager
async def serving(app: ASGIApp, inner: Starlette | None = None) -> AsyncIterator[str]:
    """Serve an application in this process and yield its address; `inner` has the lifespan when `app` has none."""
    config = uvicorn.Config(app, log_level="error", lifespan="on" if inner is None else "off")
    running = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with AsyncExitStack() as stack:
            if inner is not None:
                await stack.enter_async_context(inner.router.lifespan_context(inner))
            task = asyncio.create_task(running.serve(sockets=[listening]))
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                running.should_exit = True
                await task


@asynccontextmanager
async def local_server() -> AsyncIterator[str]:
    """Run the server over HTTP in this process, which is cheaper than one of its own, and yield its endpoint."""
    async with serving(desk_server.streamable_http_app()) as base:
        yield f"{base}/mcp"


@dataclass
class Desk:
    """Proctor's side: `tool` finds one, `call` runs it as the gate would."""

    servers: McpServers
    files: MemoryFiles
    progress: list[tuple[str, float | None]] = field(default_factory=list)

    async def tool(self, name: str, principal: Principal = ANN) -> Tool:
        """Return a tool by the name that a model calls it by."""
        found = await self.servers.find(principal, name)
        assert found is not None, f"there is no tool {name}"
        return found

    async def call(
        self,
        tool_name: str,
        principal: Principal = ANN,
        *,
        resumed: Resumed | None = None,
        answerable: bool = True,
        **arguments: Any,
    ) -> ToolResult:
        """Run a tool once."""
        tool = await self.tool(tool_name, principal)
        context = self.context(principal, resumed, answerable=answerable)
        return await tool.run(arguments, context)

    def context(
        self, principal: Principal = ANN, resumed: Resumed | None = None, *, answerable: bool = True
    ) -> ToolContext:
        """Return what the gate gives a tool; progress goes to `self.progress`."""

        def show(stream: ProgressStream, text: str, fraction: float | None = None) -> None:
            self.progress.append((text, fraction))

        return ToolContext(
            run_id="r1",
            call_id="c1",
            key="r1/1/c1",
            principal=principal,
            conversation_id="",
            sources=(),
            progress=show,
            answerable=answerable,
            resumed=resumed,
        )

    async def answer(
        self, tool_name: str, asked: ToolQuestions, answers: Mapping[str, Any] | None, **arguments: Any
    ) -> ToolResult:
        """Run a tool again with the answers to its questions."""
        return await self.call(tool_name, resumed=Resumed(state=asked.state, answers=answers), **arguments)


@asynccontextmanager
async def desk(
    folder: Path,
    config: str,
    *,
    patience: float = 20.0,
    clock: Clock | None = None,
    greeted: tuple[str, ...] = (),
    **environ: str,
) -> AsyncIterator[Desk]:
    """Open Proctor's side with `config` as its proctor.toml."""
    path = folder / "proctor.toml"
    path.write_text(config, encoding="utf-8")
    files = MemoryFiles()
    servers = McpServers(
        path,
        environ,
        files=files,
        clock=clock or SystemClock(),
        ids=SequentialIds(),
        tracer=NoOpTracer(),
        patience=timedelta(seconds=patience),
        greeted=greeted,
    )
    try:
        yield Desk(servers=servers, files=files)
    finally:
        await servers.close()


def questions(asked: ToolQuestions) -> list[dict[str, Any]]:
    """Return what is asked."""
    found: list[dict[str, Any]] = json.loads(asked.questions_json)
    return found
