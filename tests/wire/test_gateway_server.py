"""How the gateway listens."""

from __future__ import annotations

import asyncio
import socket

from services.gateway.server import bind


async def test_small_pieces_of_a_stream_are_sent_at_once() -> None:
    """Without it each event waits up to 40 ms for the acknowledgement of the one before."""
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ours = writer.get_extra_info("socket")
        accepted.set_result(ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listening = bind("127.0.0.1:0")
    async with await asyncio.start_server(connected, sock=listening):
        _, writer = await asyncio.open_connection(*listening.getsockname())
        assert await accepted
        writer.close()
