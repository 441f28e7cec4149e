"""A reply under construction, whichever interface its pieces come through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from services.orchestrator.domain.messages import ToolCall, Usage
from services.orchestrator.models.fragments import CallAssembler
from services.orchestrator.models.layers import Piece
from services.orchestrator.models.ports import CallPiece, TextPiece, ThinkingPiece
from services.orchestrator.models.think import ThinkSplitter

_FINISH = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


class ReplyBuilder:
    """Collects what the model says and hands it on in pieces: text that arrives together leaves as one piece.

    `size` is how many characters have been handed on, `taken_chunks` in how many chunks the server sent what was handed
    on last.
    """

    def __init__(self, model_call_id: str, attempt: int, reason_names: Mapping[str, str]) -> None:
        self._assembler = CallAssembler(model_call_id, attempt, reason_names)
        self._think = ThinkSplitter()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._fresh: list[Piece] = []
        self._fresh_text: list[str] = []
        self._finish = ""
        self.usage: Usage | None = None
        self.response_id = ""
        self.model = ""
        self.any_piece = False
        self.size = 0
        self.taken_chunks = 0
        self._chunks = 0

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """The thinking so far."""
        return "".join(self._reasoning)

    def add_text(self, piece: str) -> None:
        """Take answer text, in which thinking may stand between tags."""
        if not self._think.transparent:
            thinking, piece = self._think.feed(piece)
            self.add_thinking(thinking)
        if piece:
            self._fresh_text.append(piece)

    def add_thinking(self, piece: str) -> None:
        """Take reasoning."""
        if piece:
            self._flush_text()
            self._chunks += 1
            self._reasoning.append(piece)
            self._fresh.append(ThinkingPiece(text=piece))

    def add_calls(self, deltas: Sequence[Any]) -> None:
        """Take call fragments in the form of Chat Completions."""
        pieces = self._assembler.feed(deltas)
        if pieces:
            self._flush_text()
            self._chunks += 1
            self._fresh.extend(pieces)

    def finished(self, reason: str) -> None:
        """Take the provider's finish reason; an unknown one is a stop."""
        self._finish = _FINISH.get(reason, "stop")

    @property
    def has_finish(self) -> bool:
        """Whether the provider said why it stopped."""
        return bool(self._finish)

    def close(self) -> None:
        """No more will come: what was held back for a tag that never came is handed on too."""
        thinking, text = self._think.finish()
        self.add_thinking(thinking)
        if text:
            self._fresh_text.append(text)

    def take(self) -> list[Piece]:
        """Return the pieces that are new since the last time."""
        self._flush_text()
        fresh, self._fresh = self._fresh, []
        self.taken_chunks, self._chunks = self._chunks, 0
        if fresh:
            self.any_piece = True
            self.size += sum(map(_length, fresh))
        return _merged(fresh) if len(fresh) > 1 else fresh

    def calls(self) -> tuple[ToolCall, ...]:
        """Return the finished calls."""
        return self._assembler.finish()

    def finish_reason(self, calls: Sequence[ToolCall]) -> str:
        """Return why the reply ended; a stop with calls is `tool_calls`, and calls that never came are a stop."""
        if calls:
            return "tool_calls" if self._finish in ("", "stop") else self._finish
        return "stop" if self._finish in ("", "tool_calls") else self._finish

    def _flush_text(self) -> None:
        if self._fresh_text:
            joined = "".join(self._fresh_text)
            self._chunks += len(self._fresh_text)
            self._fresh_text.clear()
            self._text.append(joined)
            self._fresh.append(TextPiece(text=joined))


def _length(piece: Piece) -> int:
    return len(piece.arguments_fragment) if isinstance(piece, CallPiece) else len(piece.text)


def _merged(pieces: list[Piece]) -> list[Piece]:
    """Join neighbours of one kind."""
    out: list[Piece] = []
    for piece in pieces:
        last = out[-1] if out else None
        if isinstance(piece, ThinkingPiece) and isinstance(last, ThinkingPiece):
            out[-1] = ThinkingPiece(text=last.text + piece.text)
        elif isinstance(piece, CallPiece) and isinstance(last, CallPiece) and last.call_id == piece.call_id:
            joined = last.arguments_fragment + piece.arguments_fragment
            out[-1] = CallPiece(call_id=piece.call_id, name=piece.name, arguments_fragment=joined)
        else:
            out.append(piece)
    return out
