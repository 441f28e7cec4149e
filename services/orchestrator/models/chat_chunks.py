"""Chat Completions chunks, as raw JSON, into a reply. The forms that servers really send are all read here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from services.orchestrator.domain.messages import Usage
from services.orchestrator.models.reply import ReplyBuilder

DONE = b"[DONE]"
# Only a chunk shorter than this is taken for a pattern: it is compared with every chunk that follows.
MAX_LEARNED = 2048
# No model has a window near this: a larger count is no count, and would not fit where sums of counts are kept.
MAX_COUNT = 1_000_000_000
_CONTENT = b'"content":'


class BadChunk(Exception):
    """A chunk that is no JSON object."""


class ChunkError(Exception):
    """The server reported a failure inside its stream."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTemplate:
    """A chunk that differed from the one after it in its text only, as the chunks of most streams do.

    What begins and ends like it, with text in between that needs no unescaping, is read without parsing it as JSON.
    """

    head: bytes
    tail: bytes

    @classmethod
    def of(cls, payload: bytes, chunk: dict[str, Any]) -> TextTemplate | None:
        """Return the template of a chunk that carries text and nothing else, None for any other chunk."""
        match chunk:
            case {"choices": [{"delta": {"content": str(text), **more}, "finish_reason": None}]} if (
                text and more.keys() <= {"role"}
            ):
                written = text.encode("utf-8", errors="replace")
            case _:
                return None
        if chunk.get("usage") or chunk.get("error") or payload.count(_CONTENT) != 1:
            return None
        start = payload.index(b'"', payload.index(_CONTENT) + len(_CONTENT)) + 1
        end = start + len(written)
        if payload[start:end] != written or payload[end : end + 1] != b'"':
            return None  # the text was written with escapes
        return cls(head=payload[:start], tail=payload[end:])

    def text_of(self, payload: bytes) -> str:
        """Return the text of a chunk of this form, empty for any other."""
        if not payload.startswith(self.head) or not payload.endswith(self.tail):
            return ""
        written = payload[len(self.head) : len(payload) - len(self.tail)]
        if b'"' in written or b"\\" in written:
            return ""
        try:
            text = written.decode()
        except UnicodeDecodeError:
            return ""
        return text if text.isprintable() else ""


class ChatChunks:
    """Reads one stream of chunks into `reply`."""

    def __init__(self, reply: ReplyBuilder) -> None:
        self._reply = reply
        self._template: TextTemplate | None = None
        self.done = False

    @property
    def complete(self) -> bool:
        """Whether the server said that the reply is over, in one way or another; a stream that just ends was cut."""
        return self.done or self._reply.has_finish or self._reply.usage is not None

    def take(self, payload: bytes) -> None:
        """Read the data of one event. Raises BadChunk or ChunkError."""
        if self._template is not None and (text := self._template.text_of(payload)):
            self._reply.add_text(text)
            return
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
        if len(payload) < MAX_LEARNED:
            self._template = TextTemplate.of(payload, chunk) or self._template

    def take_chunk(self, chunk: dict[str, Any]) -> None:
        """Read one chunk, or a whole reply, which has a `message` where a chunk has a `delta`."""
        choices = chunk.get("choices")
        if choices:
            if not isinstance(choices, list):
                raise BadChunk("the choices are a list")
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
    """Return the usage object of Chat Completions or Responses; what it leaves out, or says wrongly, is 0."""
    prompt = _details(usage, "prompt_tokens_details", "input_tokens_details")
    completion = _details(usage, "completion_tokens_details", "output_tokens_details")
    read = _count(usage.get("prompt_tokens", usage.get("input_tokens")))
    return Usage(
        input_tokens=read,
        output_tokens=_count(usage.get("completion_tokens", usage.get("output_tokens"))),
        # Part of the input: more would make the rest, and its price, negative.
        cached_input_tokens=min(read, _count(prompt.get("cached_tokens") or usage.get("prompt_cache_hit_tokens"))),
        reasoning_tokens=_count(completion.get("reasoning_tokens")),
    )


def _details(usage: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((usage[name] for name in names if isinstance(usage.get(name), Mapping)), {})


def _count(value: object) -> int:
    return value if type(value) is int and 0 < value <= MAX_COUNT else 0
