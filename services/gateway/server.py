"""uvicorn as a part of a service: started and stopped by its owner, without signals or a loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp


class HttpServer:
    """Serves an ASGI application on `host:port` (port 0 picks one) or `unix:/path`."""

    def __init__(self, app: ASGIApp, listen: str, grace: timedelta) -> None:
        self._listen = listen
        self._socket: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="websockets-sansio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            # A proxy in front is not believed: it would let its callers pass as this machine.
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, round(grace.total_seconds())),
            ws_max_size=1024 * 1024,
        )
        self._server = _Server(config)

    @property
    def address(self) -> str:
        """Where it serves: an http URL, or `unix:/path`."""
        if self._listen.startswith("unix:") or self._socket is None:
            return self._listen
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def start(self) -> None:
        """Bind and serve; ready on return."""
        self._socket = bind(self._listen)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="http")
        while not self._server.started:
            if self._task.done():
                await self._task
                raise RuntimeError("the HTTP server ended before it started")
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Accept nothing more, let open responses end within the grace, and return when all is closed."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
            self._task = None
        if self._listen.startswith("unix:"):
            _unlink(self._listen)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the process."""
        yield


def _unlink(listen: str) -> Path:
    path = Path(listen.removeprefix("unix:"))
    path.unlink(missing_ok=True)
    return path


def bind(listen: str) -> socket.socket:
    """Return a socket bound to `host:port` or `unix:path`."""
    if listen.startswith("unix:"):
        path = _unlink(listen)
        bound = socket.socket(socket.AF_UNIX)
        bound.bind(str(path))
        path.chmod(0o600)  # peers on a socket need no key when local callers need none
    else:
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # The protocol is named because asyncio sends small pieces at once (TCP_NODELAY) only where it is; else each
        # event would wait up to 40 ms for the client's acknowledgement of the one before.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, int(port)))
    bound.setblocking(False)  # noqa: FBT003  # the standard library's signature
    return bound
