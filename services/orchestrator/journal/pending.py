"""What a run has to say and the writer has not yet taken: deltas merged as they come, facts in their place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from services.orchestrator.domain.events import (
    AnswerDelta,
    Delta,
    Event,
    PendingCall,
    ProgressStream,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallProgress,
)
from services.orchestrator.domain.messages import Usage
from services.orchestrator.domain.run import Checkpoint, RunState
from services.orchestrator.domain.text import well_formed
from services.orchestrator.journal.ports import Ending

Key = tuple[object, ...]


def merge_key(delta: Delta, step_id: str) -> Key:
    """Return what two deltas must share to become one."""
    if isinstance(delta, AnswerDelta | ThinkingDelta):
        return (type(delta), delta.model_call_id, step_id)
    if isinstance(delta, ToolCallDelta):
        return (ToolCallDelta, delta.call_id, delta.model_call_id, step_id)
    return (ToolCallProgress, delta.call_id, delta.stream, step_id)


class Text:
    """Neighbouring deltas of one text, joined when they are written."""

    __slots__ = ("_fraction", "_name", "_parts", "key", "step_id")

    def __init__(self, key: Key, step_id: str) -> None:
        self.key = key
        self.step_id = step_id
        self._parts: list[str] = []
        self._name = ""
        self._fraction: float | None = None

    def add(self, delta: Delta) -> int:
        """Append one delta and return its length."""
        if isinstance(delta, ToolCallDelta):
            piece = delta.arguments_fragment
            self._name = self._name or delta.name
        else:
            piece = delta.text
            if isinstance(delta, ToolCallProgress) and delta.fraction is not None:
                self._fraction = delta.fraction
        self._parts.append(piece)
        return len(piece)

    @property
    def ends_within_a_character(self) -> bool:
        """Whether it ends with the first half of a surrogate pair, as servers split them between chunks."""
        return "\ud800" <= self._parts[-1][-1:] <= "\udbff"

    def joined(self) -> Delta:
        """Return all of it as one delta."""
        text = well_formed("".join(self._parts))
        kind, which, other, *_ = self.key
        if kind is AnswerDelta:
            return AnswerDelta(text=text, model_call_id=str(which))
        if kind is ThinkingDelta:
            return ThinkingDelta(text=text, model_call_id=str(which))
        if kind is ToolCallDelta:
            return ToolCallDelta(call_id=str(which), name=self._name, arguments_fragment=text, model_call_id=str(other))
        assert isinstance(other, ProgressStream)
        return ToolCallProgress(call_id=str(which), stream=other, text=text, fraction=self._fraction)


@dataclass(slots=True, kw_only=True)
class Entry:
    """One atomic piece to be written: facts with what belongs to them. `done` is told the last sequence.

    `draw` returns a checkpoint that is still to be made.
    """

    events: tuple[Event, ...] = ()
    step_id: str = ""
    guarded: bool = False
    checkpoint: Checkpoint | None = None
    draw: Callable[[], Checkpoint] | None = None
    state: RunState | None = None
    pending: tuple[PendingCall, ...] | None = None
    usage: Usage | None = None
    ending: Ending | None = None
    release: bool = False
    done: asyncio.Future[int] | None = None

    def drawn(self) -> Checkpoint | None:
        """Return the checkpoint, made now if it was still to be made."""
        if self.draw is not None:
            draw, self.draw = self.draw, None
            self.checkpoint = draw()
        return self.checkpoint


@dataclass(slots=True)
class Queue:
    """Texts and entries in order. `size` counts the characters of texts that wait."""

    items: list[Text | Entry] = field(default_factory=list)
    size: int = 0

    def add_text(self, delta: Delta, step_id: str) -> Key:
        """Append a delta, to the last text when it continues it; return the text's key."""
        key = merge_key(delta, step_id)
        last = self.items[-1] if self.items else None
        if not isinstance(last, Text) or last.key != key:
            last = Text(key, step_id)
            self.items.append(last)
        self.size += last.add(delta)
        return key

    def take(self) -> list[Text | Entry]:
        """Return all that waits and start anew."""
        taken, self.items, self.size = self.items, [], 0
        return taken
