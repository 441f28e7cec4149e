"""A small HTTP server on the loopback whose answers are a function of the request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Site:
    """A running site; `seen` holds (method, path with query, headers, body) of every request."""

    port: int = 0
    seen: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def site(answer: Answer) -> AsyncIterator[Site]:
    """Serve `answer` on a free port of the loopback."""
    running = Site()

    async def handle(request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        running.seen.append((request.method, request.path_qs, headers, await request.read()))
        return await answer(request)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    listener = web.TCPSite(runner, "127.0.0.1", 0)
    await listener.start()
    running.port = runner.addresses[0][1]
    try:
        yield running
    finally:
        await runner.cleanup()
