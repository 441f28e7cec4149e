"""A wire between a client and a service's unix socket that a test may cut, mend, or let go silent."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

CHUNK = 64 * 1024


class WireCutter:
    """Listens at `path` and carries bytes to `target`, both unix sockets.

    `cut` breaks every connection and refuses new ones; `hush` leaves them open and carries nothing, as a network that
    drops packets does; `mend` ends both. `connections` counts those that were made.
    """

    def __init__(self, path: str, target: str) -> None:
        self.path = path
        self.target = target
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._carrying: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._is_cut = False

    @property
    def address(self) -> str:
        """Where clients connect to."""
        return f"unix:{self.path}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._accept, self.path)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in tuple(self._carrying):
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    def cut(self) -> None:
        """Break all connections."""
        self._is_cut = True
        for writer in tuple(self._writers):
            writer.transport.abort()

    def hush(self) -> None:
        """Carry nothing any more."""
        self._open.clear()

    def mend(self) -> None:
        """Carry again."""
        self._is_cut = False
        self._open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        self.connections += 1
        try:
            there, back = await asyncio.open_unix_connection(self.target)
        except OSError:
            writer.transport.abort()
            return
        for source, sink in ((reader, back), (there, writer)):
            self._writers.add(sink)
            task = asyncio.create_task(self._carry(source, sink))
            self._carrying.add(task)
            task.add_done_callback(self._carrying.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(CHUNK):
                await self._open.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            self._writers.discard(sink)
            sink.close()
