"""A scripted OpenAI-compatible server for measuring: one process, no framework, so that it is never what is measured.

    python -m benchmarks.streaming.upstream PORT

What it does stands in the request, anywhere in its text, as `[[n=200 gap=20 tool=1 id=abc]]`, so it works through any
server in between: `n` chunks of one token, `gap` milliseconds between them on an absolute schedule, with `tool=1` first
a call of the first tool (`tool=NAME`: of that one) and the text once its result is there; `id` keys GET /stats?id=… for
the times of each request. Usage is told to who asks for it, and who does not stream gets the whole text at once.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from typing import Any, cast

import httptools
import uvloop

DIRECTIVE = re.compile(rb"\[\[([^\]]*)\]\]")
STREAMS = re.compile(rb'"stream"\s*:\s*true')
WANTS_USAGE = re.compile(rb'"include_usage"\s*:\s*true')
TOOL_RESULT = re.compile(rb'"role"\s*:\s*"tool"')
HEAD = (
    '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"scripted",'
    '"choices":[{"index":0,"delta":%s,"finish_reason":%s}]}'
)


def _chunk(payload: str) -> bytes:
    content = b"data: " + payload.encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(content), content)


TOKEN = _chunk(HEAD % ('{"content":"tok "}', "null"))
ROLE = _chunk(HEAD % ('{"role":"assistant","content":""}', "null"))
STOP = _chunk(HEAD % ("{}", '"stop"'))
# LiteLLM ends a stream of a hundred equal chunks as a model that repeats itself.
OTHER_TOKEN = _chunk(HEAD % ('{"content":"tok  "}', "null"))
OTHER_EVERY = 50
USAGE = (
    '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"scripted","choices":[],'
    '"usage":{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}}'
)
DONE = _chunk("[DONE]") + b"0\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _whole(count: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": "tok " * count}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": count, "total_tokens": count + 10},
    }


class Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self, stats: dict[str, list[dict[str, float]]]) -> None:
        self._stats = stats
        self._writable = asyncio.Event()
        self._writable.set()
        self._parser = httptools.HttpRequestParser(self)
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._body: list[bytes] = []
        self._url = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body, self._url = [], b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._answer(self._url.decode(), b"".join(self._body)))

    async def _answer(self, url: str, body: bytes) -> None:
        if url.startswith("/stats"):
            self._reply(self._stats.get(url.partition("id=")[2], []))
            return
        if not url.endswith("/chat/completions"):
            self._reply({"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "x"}]})
            return
        found = DIRECTIVE.findall(body)
        wanted = dict(pair.partition("=")[::2] for pair in found[-1].decode().split()) if found else {}
        times = {"received": time.monotonic(), "ended": 0.0}
        if "id" in wanted:
            self._stats.setdefault(wanted["id"], []).append(times)
        count = int(wanted.get("n", 200))
        if not STREAMS.search(body):
            times["ended"] = time.monotonic()
            self._reply(_whole(count))
            return
        self._write(STREAM_HEAD + ROLE)
        if "tool" in wanted and not TOOL_RESULT.search(body):
            self._call(json.loads(body), wanted["tool"])
        else:
            await self._tokens(count, float(wanted.get("gap", 0)) / 1000)
        times["ended"] = time.monotonic()
        if WANTS_USAGE.search(body):
            self._write(_chunk(USAGE % (count, count + 10)))
        self._write(DONE)

    def _call(self, request: dict[str, Any], wanted: str) -> None:
        name = request["tools"][0]["function"]["name"] if wanted == "1" else wanted
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": "{}"}}
        self._write(_chunk(HEAD % (json.dumps({"tool_calls": [call]}), "null")))
        self._write(_chunk(HEAD % ("{}", '"tool_calls"')))

    async def _tokens(self, count: int, gap: float) -> None:
        start = time.monotonic()
        for number in range(1, count + 1):
            self._write(OTHER_TOKEN if number % OTHER_EVERY == 0 else TOKEN)
            await self._writable.wait()
            # Without a gap too, each chunk is a write of its own: that is how models send them.
            await asyncio.sleep(max(0.0, start + number * gap - time.monotonic()) if gap else 0)
        self._write(STOP)

    def _write(self, content: bytes) -> None:
        assert self._transport is not None
        self._transport.write(content)

    def _reply(self, content: Any) -> None:
        body = json.dumps(content).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self._write(head + body)


async def serve(port: int) -> None:
    """Serve on loopback for ever."""
    stats: dict[str, list[dict[str, float]]] = {}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(stats), "127.0.0.1", port, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
