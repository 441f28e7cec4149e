"""Chat Completions chunks, as raw JSON, into a reply. The forms that servers really send are all read here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from services.orchestrator.domain.messages import Usage
from services.orchestrator.models.reply import ReplyBuilder

DONE = b"[DONE]"


class BadChunk(Exception):
    """A chunk that is no JSON object."""


class ChunkError(Exception):
    """The server reported a failure inside its stream."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class ChatChunks:
    """Reads one stream of chunks into `reply`."""

    def __init__(self, reply: ReplyBuilder) -> None:
        self._reply = reply
        self.done = False

    @property
    def complete(self) -> bool:
        """Whether the server said that the reply is over, in one way or another; a stream that just ends was cut."""
        return self.done or self._reply.has_finish or self._reply.usage is not None

    def take(self, payload: bytes) -> None:
        """Read the data of one event. Raises BadChunk or ChunkError."""
        if payload.startswith(DONE):
            self.done = True
            return
        try:
            chunk = orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            raise BadChunk(str(error)) from error
        if not isinstance(chunk, dict):
            raise BadChunk("a chunk is an object")
        self.take_chunk(chunk)

    def take_chunk(self, chunk: dict[str, Any]) -> None:
        """Read one chunk, or a whole reply, which has a `message` where a chunk has a `delta`."""
        choices = chunk.get("choices")
        if choices:
            self._take_choice(choices[0])
        if chunk.get("error"):
            raise chunk_error(chunk["error"])
        if not self._reply.response_id:
            self._reply.response_id = str(chunk.get("id") or "")
            self._reply.model = str(chunk.get("model") or "")
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._reply.usage = read_usage(usage)

    def _take_choice(self, choice: Any) -> None:
        if not isinstance(choice, dict):
            raise BadChunk("a choice is an object")
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            self._take_delta(delta)
        finish = choice.get("finish_reason")
        if finish:
            self._reply.finished(str(finish))

    def _take_delta(self, delta: dict[str, Any]) -> None:
        thinking = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thinking, str):
            self._reply.add_thinking(thinking)
        content = delta.get("content") or delta.get("refusal")
        if content:
            self._reply.add_text(content if isinstance(content, str) else _joined(content))
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            self._reply.add_calls(calls)
        legacy = delta.get("function_call")
        if isinstance(legacy, dict):
            self._reply.add_calls([{"index": 0, "function": legacy}])


def _joined(content: Any) -> str:
    """Return the text of content that came as a list of parts."""
    parts = content if isinstance(content, list) else ()
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))


def chunk_error(error: Any) -> ChunkError:
    """Return the failure that an `error` object or text in a stream reports."""
    if isinstance(error, Mapping):
        return ChunkError(str(error.get("message") or "failed"), str(error.get("code") or error.get("type") or ""))
    return ChunkError(str(error), "")


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Return the usage object of Chat Completions or Responses; what it leaves out is 0."""
    prompt = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    completion = usage.get("completion_tokens_details") or usage.get("output_tokens_details") or {}
    return Usage(
        input_tokens=_count(usage.get("prompt_tokens", usage.get("input_tokens"))),
        output_tokens=_count(usage.get("completion_tokens", usage.get("output_tokens"))),
        cached_input_tokens=_count(prompt.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")),
        reasoning_tokens=_count(completion.get("reasoning_tokens")),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
