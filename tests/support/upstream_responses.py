"""Scripted turns in the form of the Responses API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.support.upstream_framing import Action, pieces_of, sse
from tests.support.upstream_script import Calls, Cut, Pause, Raw, Reach, Say, ScriptedCall, Step, Think, Turn, Wait


class ResponsesFraming:
    """A turn as the event stream of the Responses API."""

    def __init__(self, turn: Turn, model: str) -> None:
        self._turn = turn
        self._id = turn.response_id or "resp_1"
        self._model = turn.model or model
        self._sequence = 0
        self._items: list[dict[str, Any]] = []

    def actions(self) -> Iterator[Action]:
        """Yield what to do, in order."""
        yield self._event("response.created", response=self._response("in_progress"))
        for step in self._turn.steps:
            yield from self._step(step)
        status = "incomplete" if self._turn.finish == "length" else "completed"
        if self._turn.wire.finish_chunk:
            yield self._event(f"response.{status}", response=self._response(status))

    def whole(self) -> dict[str, Any]:
        """Return the turn as one response object."""
        for _ in self.actions():
            pass
        return self._response("incomplete" if self._turn.finish == "length" else "completed")

    def _step(self, step: Step) -> Iterator[Action]:
        match step:
            case Say(pieces=pieces):
                yield from self._message(pieces)
            case Think(pieces=pieces):
                yield from self._reasoning(pieces)
            case Calls(calls=made):
                for call in made:
                    yield from self._call(call)
            case Raw(content=content):
                yield content
            case Wait() | Reach() | Pause() | Cut():
                yield step

    def _message(self, pieces: tuple[str, ...]) -> Iterator[bytes]:
        index, item_id = len(self._items), f"msg_{len(self._items)}"
        base = {"id": item_id, "type": "message", "role": "assistant"}
        yield self._event("response.output_item.added", output_index=index, item={**base, "content": []})
        for piece in pieces:
            yield self._event(
                "response.output_text.delta", output_index=index, item_id=item_id, content_index=0, delta=piece
            )
        content = [{"type": "output_text", "text": "".join(pieces), "annotations": []}]
        item = {**base, "status": "completed", "content": content}
        self._items.append(item)
        yield self._event("response.output_item.done", output_index=index, item=item)

    def _reasoning(self, pieces: tuple[str, ...]) -> Iterator[bytes]:
        index, item_id = len(self._items), f"rs_{len(self._items)}"
        for piece in pieces:
            yield self._event(
                "response.reasoning_summary_text.delta",
                output_index=index,
                item_id=item_id,
                summary_index=0,
                delta=piece,
            )
        summary = [{"type": "summary_text", "text": "".join(pieces)}]
        self._items.append({"id": item_id, "type": "reasoning", "summary": summary})

    def _call(self, call: ScriptedCall) -> Iterator[bytes]:
        index = len(self._items)
        base = {"id": f"fc_{index}", "type": "function_call", "call_id": call.call_id, "name": call.name}
        yield self._event("response.output_item.added", output_index=index, item={**base, "arguments": ""})
        for piece in pieces_of(call.arguments):
            yield self._event(
                "response.function_call_arguments.delta", output_index=index, item_id=base["id"], delta=piece
            )
        item = {**base, "arguments": call.arguments, "status": "completed"}
        self._items.append(item)
        yield self._event("response.output_item.done", output_index=index, item=item)

    def _response(self, status: str) -> dict[str, Any]:
        prompt, completion, cached, reasoning = self._turn.usage
        usage = {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": completion,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": prompt + completion,
        }
        return {
            "id": self._id,
            "object": "response",
            "created_at": 1,
            "model": self._model,
            "status": status,
            "output": self._items,
            "usage": None if status == "in_progress" else usage,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "error": None,
        }

    def _event(self, kind: str, **fields: Any) -> bytes:
        payload = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return sse(json.dumps(payload, ensure_ascii=False), self._turn.wire, event=kind)
