"""The inner port: what stands behind the traced model and shares its clock."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from services.orchestrator.models.ports import CallPiece, ModelEvent, ModelRequest, TextPiece, ThinkingPiece
from services.orchestrator.models.timing import CallClock

Events = AsyncGenerator[ModelEvent, None]
# What a model writes, as it writes it.
Piece = ThinkingPiece | TextPiece | CallPiece


class TimedModel(Protocol):
    """Like `ChatModel`, but the caller brings the clock of the logical call.

    The generator ends with exactly one ModelReply or raises a ModelError. Closing it stops the upstream call at once:
    whoever iterates holds it in `contextlib.aclosing`.
    """

    def stream(self, request: ModelRequest, call: CallClock) -> Events: ...
