"""HOLD: nothing is shown before the whole reply is safe."""

from __future__ import annotations

from contextlib import aclosing

from services.orchestrator.domain.run import OnRetraction
from services.orchestrator.models.layers import Events, TimedModel
from services.orchestrator.models.ports import ModelEvent, ModelNotice, ModelReply, ModelRequest, Retraction
from services.orchestrator.models.timing import CallClock


class Holding:
    """Keeps the pieces of a reply back until it is complete, when the request asks for that; what is withdrawn is lost.

    The reply is bounded by the model's output limit, so what is held is too.
    """

    def __init__(self, inner: TimedModel) -> None:
        self._inner = inner

    def stream(self, request: ModelRequest, call: CallClock) -> Events:
        """Return the inner stream as it is, or its pieces all at once before the reply."""
        if request.on_retraction is not OnRetraction.HOLD:
            return self._inner.stream(request, call)
        return self._held(request, call)

    async def _held(self, request: ModelRequest, call: CallClock) -> Events:
        held: list[ModelEvent] = []
        async with aclosing(self._inner.stream(request, call)) as events:
            async for event in events:
                match event:
                    case Retraction():
                        held.clear()
                    case ModelReply():
                        for piece in held:
                            yield piece
                        yield event
                    case ModelNotice():
                        yield event
                    case _:
                        held.append(event)
