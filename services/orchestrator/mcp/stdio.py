"""A server as a process of ours. The library's own transport bounds neither a message nor the time to read one.

Shutdown follows the protocol: standard input is closed, then the process group is terminated, then killed, each within
a bounded time.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

# The longest message; a server that sends a longer one is cut off.
MOST_MESSAGE_BYTES = 32 * 1024 * 1024
# What is kept of standard error, for the operator.
COMPLAINT_BYTES = 4096
# How long a process may take to leave after its input closed, and again after SIGTERM.
GRACE_SECONDS = 2.0


@dataclass(slots=True)
class Complaints:
    """The end of what a process wrote to its standard error."""

    kept: bytearray = field(default_factory=bytearray)

    def add(self, piece: bytes) -> None:
        """Append, and forget what is too old."""
        self.kept += piece
        del self.kept[:-COMPLAINT_BYTES]


@asynccontextmanager
async def run_server(
    command: str, args: Sequence[str], variables: Mapping[str, str], cwd: str, complaints: Complaints
) -> AsyncIterator[TransportStreams]:
    """Run a server and yield its streams. Raises OSError.

    Its environment is PATH, HOME, USER, LOGNAME, SHELL and TERM of ours, and `variables`.
    """
    process = await asyncio.create_subprocess_exec(
        command,
        *args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**get_default_environment(), **variables},
        cwd=cwd,
        start_new_session=True,
        limit=MOST_MESSAGE_BYTES,
    )
    found, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    pumps = [
        asyncio.create_task(_read(process.stdout, found)),
        asyncio.create_task(_write(process.stdin, sent, found)),
        asyncio.create_task(_overhear(process.stderr, complaints)),
    ]
    try:
        yield incoming, outgoing
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(process)
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)
            for stream in (found, incoming, outgoing, sent):
                stream.close()


async def _read(stdout: asyncio.StreamReader, found: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    """Pass messages on; the end, a message too long or a broken pipe closes the stream."""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ValueError, OSError):
        async with found:
            while line := await stdout.readline():
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    await found.send(ValueError("the server wrote something that is no message"))
                else:
                    await found.send(SessionMessage(message))


async def _write(
    stdin: asyncio.StreamWriter,
    sent: MemoryObjectReceiveStream[SessionMessage],
    found: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    try:
        async for message in sent:
            stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()
    except (OSError, anyio.ClosedResourceError):
        # The server may still live: without this a request would wait for an answer to what was never sent.
        found.close()


async def _overhear(stderr: asyncio.StreamReader, complaints: Complaints) -> None:
    with suppress(OSError):
        while piece := await stderr.read(65_536):
            complaints.add(piece)


async def _stop(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await process.wait()
                break
    # What it started itself must not outlive it.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
