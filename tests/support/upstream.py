"""A scripted OpenAI-compatible server over real HTTP on loopback, for tests.

    async with Upstream() as upstream:
        upstream.script(fail(429, retry_after="1"), say("Hello", " there"))
        ...                                     # talk to upstream.base_url
        assert upstream.requests[0].body["model"] == "scripted"

Each request for a completion takes the next scripted turn (a function makes one from the request); when none is left
the `default` answers. Waiting is by events (`Wait`, `Reach`, `Request.gone`, `next_request`), never by time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from tests.support.upstream_framing import Action, ChatFraming, embedding_of, whole_chat
from tests.support.upstream_responses import ResponsesFraming
from tests.support.upstream_script import Cut, Pause, Reach, Request, Script, Turn, Wait, fail, say

MAX_HEAD = 64 * 1024


class _Dropped(Exception):
    """The script breaks the connection."""


class Upstream:
    """The server. `requests` are all that came, in order; `models` what /models lists.

    With `ignore_stream` it answers streaming requests with one whole reply, as some servers do.
    """

    def __init__(self, *turns: Script, default: Script | None = None, models: tuple[str, ...] = ("scripted",)) -> None:
        self._turns: deque[Script] = deque(turns)
        self._arrived: asyncio.Queue[Request] = asyncio.Queue()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.default = default
        self.models = models
        self.requests: list[Request] = []
        self.ignore_stream = False
        self.connections_made = 0
        self.base_url = ""

    def script(self, *turns: Script) -> None:
        """Append turns to what the next requests get."""
        self._turns.extend(turns)

    def reset(self) -> None:
        """Forget turns that nobody took and requests that were seen, so that tests may share a server."""
        self._turns.clear()
        self._arrived = asyncio.Queue()
        self.requests.clear()

    async def next_request(self) -> Request:
        """Wait for the next request that no earlier call of this has returned."""
        return await self._arrived.get()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=MAX_HEAD)
        port = self._server.sockets[0].getsockname()[1]
        self.base_url = f"http://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.connections_made += 1
        try:
            while (request := await _read_request(reader)) is not None:
                await self._serve_watched(request, reader, writer)
        except (_Dropped, ConnectionError):
            writer.transport.abort()
        except asyncio.CancelledError:
            # Only `__aexit__` cancels: a task that ends as cancelled would be logged by the stream protocol.
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve_watched(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve one request; stop when the client leaves meanwhile."""
        serving = asyncio.ensure_future(self._serve(request, writer))
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                request.gone.set()
                raise ConnectionResetError("the client left")
            serving.result()
            request.served_at = time.perf_counter()
            request.served.set()
        finally:
            for task in (serving, leaving):
                task.cancel()
            await asyncio.gather(serving, leaving, return_exceptions=True)

    async def _serve(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self.requests.append(request)
        self._arrived.put_nowait(request)
        model = str(request.body.get("model", "scripted"))
        streaming = bool(request.body.get("stream")) and not self.ignore_stream
        if request.path.endswith("/models"):
            return _reply(writer, 200, {"object": "list", "data": [_model(name) for name in self.models]})
        if request.path.endswith("/embeddings"):
            return _reply(writer, 200, _embeddings(request.body))
        if not request.path.endswith(("/chat/completions", "/responses")):
            return _reply(writer, 404, {"error": {"message": f"no such path {request.path}"}})
        turn = self._turn_for(request)
        if turn.status != 200:
            return _reply(writer, turn.status, {"error": turn.error}, turn.headers)
        if request.path.endswith("/responses"):
            framing = ResponsesFraming(turn, model)
            return await _stream(writer, turn, framing.actions()) if streaming else _reply(writer, 200, framing.whole())
        if not streaming:
            return _reply(writer, 200, whole_chat(turn, model))
        wanted = bool((request.body.get("stream_options") or {}).get("include_usage"))
        return await _stream(writer, turn, ChatFraming(turn, model, usage_wanted=wanted).actions())

    def _turn_for(self, request: Request) -> Turn:
        script = self._turns.popleft() if self._turns else self.default
        if script is None:
            return fail(500, "the script has no turn left for this request")
        return script if isinstance(script, Turn) else script(request)


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(path=first.split(" ")[1], headers=headers, body=json.loads(body) if body else {})


def _reply(
    writer: asyncio.StreamWriter, status: int, content: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> None:
    body = json.dumps(content, ensure_ascii=False).encode()
    lines = [f"HTTP/1.1 {status} Scripted", "content-type: application/json", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


async def _stream(writer: asyncio.StreamWriter, turn: Turn, actions: Iterator[Action]) -> None:
    """Send a body in chunked encoding; every action's bytes leave before the next one is taken."""
    head = ["HTTP/1.1 200 OK", "content-type: text/event-stream; charset=utf-8", "transfer-encoding: chunked"]
    head += [f"{name}: {value}" for name, value in turn.headers.items()]
    writer.write("\r\n".join(head).encode() + b"\r\n\r\n")
    for action in actions:
        match action:
            case bytes():
                for piece in _sliced(action, turn.wire.slice_bytes):
                    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    await writer.drain()
                    if turn.wire.slice_bytes:
                        await asyncio.sleep(0)  # so that the pieces leave apart
            case Wait(event=event):
                await event.wait()
            case Reach(event=event):
                event.set()
            case Pause(seconds=seconds):
                await asyncio.sleep(seconds)
            case Cut():
                raise _Dropped
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _sliced(content: bytes, size: int) -> Iterator[bytes]:
    if not size:
        yield content
        return
    for start in range(0, len(content), size):
        yield content[start : start + size]


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 1, "owned_by": "scripted"}


def _embeddings(body: Mapping[str, Any]) -> dict[str, Any]:
    wanted = body["input"]
    texts = [wanted] if isinstance(wanted, str) else list(wanted)
    rows = [{"object": "embedding", "index": n, "embedding": embedding_of(str(t))} for n, t in enumerate(texts)]
    tokens = sum(len(str(text).split()) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": body.get("model", "scripted"), "data": rows, "usage": usage}


__all__ = ["Request", "Script", "Turn", "Upstream", "fail", "say"]
