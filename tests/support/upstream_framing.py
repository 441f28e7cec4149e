"""Scripted turns as bytes: Chat Completions chunks, Responses events, and whole replies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from tests.support.upstream_script import (
    CallFraming,
    Calls,
    Cut,
    Pause,
    Raw,
    Reach,
    Reasoning,
    Say,
    Step,
    Think,
    Turn,
    Wait,
    Wire,
)

# What the server does next: bytes to send, or a step that is no bytes.
Action = bytes | Wait | Reach | Pause | Cut


def sse(payload: str, wire: Wire, event: str = "") -> bytes:
    """Return one server-sent event."""
    head = b"event: " + event.encode() + wire.newline if event else b""
    return head + b"data: " + payload.encode() + wire.newline * 2


def pieces_of(text: str, count: int = 3) -> list[str]:
    """Cut `text` into at most `count` pieces."""
    size = max(1, -(-len(text) // count))
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]


class ChatFraming:
    """A turn as a Chat Completions stream."""

    def __init__(self, turn: Turn, model: str, *, usage_wanted: bool) -> None:
        self._turn = turn
        self._usage_wanted = usage_wanted
        self._head = {"id": turn.response_id or "chatcmpl-1", "object": "chat.completion.chunk", "created": 1}
        self._head["model"] = turn.model or model
        self._thinking = False

    def actions(self) -> Iterator[Action]:
        """Yield what to do, in order, from the first byte of the body to the last."""
        wire = self._turn.wire
        if wire.comments:
            yield b": keep-alive" + wire.newline * 2
        if wire.role_chunk:
            yield self._delta({"role": "assistant", "content": ""})
        if wire.empty_chunks:
            yield self._chunk([])
            yield self._delta({})
            yield self._delta({"content": None})
        for step in self._turn.steps:
            yield from self._step(step)
        yield from self._close_think()
        if wire.finish_chunk:
            yield self._chunk([{"index": 0, "delta": {}, "finish_reason": self._turn.finish_reason}])
        if wire.usage_chunk and self._usage_wanted:
            yield self._chunk([], usage=usage_of(self._turn))
        if wire.done:
            yield sse("[DONE]", wire)

    def _step(self, step: Step) -> Iterator[Action]:
        match step:
            case Say(pieces=pieces):
                yield from self._close_think()
                yield from (self._delta({"content": piece}) for piece in pieces)
            case Think(pieces=pieces, form=Reasoning.THINK_TAG):
                if not self._thinking:
                    self._thinking = True
                    yield self._delta({"content": "<think>"})
                yield from (self._delta({"content": piece}) for piece in pieces)
            case Think(pieces=pieces, form=form):
                yield from (self._delta({form.value: piece}) for piece in pieces)
            case Calls():
                yield from self._close_think()
                yield from (self._delta({"tool_calls": deltas}) for deltas in call_deltas(step))
            case Raw(content=content):
                yield content
            case Wait() | Reach() | Pause() | Cut():
                yield step

    def _close_think(self) -> Iterator[bytes]:
        if self._thinking:
            self._thinking = False
            yield self._delta({"content": "</think>"})

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return self._chunk([{"index": 0, "delta": delta, "finish_reason": None}])

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        return sse(json.dumps({**self._head, "choices": choices, **more}, ensure_ascii=False), self._turn.wire)


def call_deltas(step: Calls) -> list[list[dict[str, Any]]]:
    """Return the `tool_calls` arrays, one per chunk, in which `step.framing` sends the calls."""
    chunks: list[list[dict[str, Any]]] = []
    for index, made in enumerate(step.calls):
        call_id = "call_0" if step.framing is CallFraming.SAME_ID else made.call_id or f"call_{index}"
        parts = pieces_of(made.arguments)
        function = {"name": made.name, "arguments": made.arguments}
        whole = {"index": index, "id": call_id, "type": "function", "function": function}
        match step.framing:
            case CallFraming.FRAGMENTED | CallFraming.ONE_CHUNK | CallFraming.SAME_ID:
                chunks.append([whole | {"function": {"name": made.name, "arguments": ""}}])
                chunks += [[{"index": index, "function": {"arguments": part}}] for part in parts]
            case CallFraming.WHOLE:
                chunks.append([whole])
            case CallFraming.NO_INDEX:
                chunks.append([_without(whole, "index")])
            case CallFraming.NO_INDEX_FRAGMENTED:
                chunks.append([{"id": call_id, "function": {"name": made.name, "arguments": ""}}])
                chunks += [[{"id": call_id, "function": {"arguments": part}}] for part in parts]
            case CallFraming.NO_ID:
                chunks.append([{"index": index, "function": {"name": made.name, "arguments": ""}}])
                chunks += [[{"index": index, "function": {"arguments": part}}] for part in parts]
            case CallFraming.REPEATED_ID:
                chunks += [[whole | {"function": {"name": made.name, "arguments": part}}] for part in parts]
            case CallFraming.INDEX_ZERO:
                chunks.append([whole | {"index": 0}])
            case CallFraming.CUMULATIVE:
                so_far = ["".join(parts[: n + 1]) for n in range(len(parts))]
                chunks += [[whole | {"function": {"name": made.name, "arguments": text}}] for text in so_far]
            case CallFraming.REPEATED_WHOLE:
                chunks += [[whole], [whole]]
            case CallFraming.OBJECT:
                chunks.append([whole | {"function": {"name": made.name, "arguments": json.loads(made.arguments)}}])
    if step.framing is CallFraming.ONE_CHUNK:
        return [[delta for chunk in chunks for delta in chunk]]
    return chunks


def _without(delta: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in delta.items() if name != key}


def usage_of(turn: Turn) -> dict[str, Any]:
    """Return the usage object of Chat Completions."""
    prompt, completion, cached, reasoning = turn.usage
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def whole_chat(turn: Turn, model: str) -> dict[str, Any]:
    """Return the turn as one Chat Completions reply."""
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.calls:
        message["tool_calls"] = [
            {"id": made.call_id, "type": "function", "function": {"name": made.name, "arguments": made.arguments}}
            for made in turn.calls
        ]
    return {
        "id": turn.response_id or "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": turn.model or model,
        "choices": [{"index": 0, "message": message, "finish_reason": turn.finish_reason}],
        "usage": usage_of(turn),
    }


def embedding_of(text: str, size: int = 8) -> list[float]:
    """Return a vector that depends on the words of `text` only: texts that share words are near each other."""
    vector = [0.0] * size
    for word in text.lower().split():
        vector[hashlib.sha256(word.encode()).digest()[0] % size] += 1.0
    length = sum(value * value for value in vector) ** 0.5 or 1.0
    return [value / length for value in vector]
