"""The ordered list of models that may serve a call, and what a break in mid-stream means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from services.orchestrator.domain.messages import MediaPart
from services.orchestrator.domain.run import OnRetraction
from services.orchestrator.models.errors import ContextOverflow, ModelError, ModelTimeout, OutputInvalid
from services.orchestrator.models.layers import Events, TimedModel
from services.orchestrator.models.model_settings import VISION
from services.orchestrator.models.ports import ModelInfo, ModelReply, ModelRequest, Retraction
from services.orchestrator.models.timing import CallClock
from services.orchestrator.models.tokens import message_tokens, tool_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model that may serve a call."""

    info: ModelInfo
    model: TimedModel


# Returns the model that a request names and then its fallbacks; raises ModelNotFound for an unknown name.
Candidates = Callable[[ModelRequest], Awaitable[Sequence[Candidate]]]


class Fallback:
    """Serves a call by the first candidate that fits and answers.

    A candidate is passed over when the prompt does not fit its window, or when it cannot see the pictures and another
    can. After a break behind the first token the call starts again only where the request allows a retraction: on the
    next candidate, or once more on the same one when there is none.
    """

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates

    async def stream(self, request: ModelRequest, call: CallClock) -> Events:
        """Yield one candidate's reply, with Retractions where an earlier one had begun."""
        fitting = _fitting(await self._candidates(request), request)
        first = fitting[0]
        queue = [*fitting]
        restarted = False
        while True:
            candidate = queue.pop(0)
            try:
                async with aclosing(candidate.model.stream(_for(request, candidate), call)) as events:
                    async for event in events:
                        if isinstance(event, ModelReply) and candidate is not first:
                            yield replace(event, fallback_from=first.info.model_id)
                        else:
                            yield event
            except ModelError as error:
                if error.after_first_token and not queue and not restarted and error.retryable:
                    restarted = True
                    queue.append(candidate)
                if not queue or not _may_go_on(error, request):
                    raise
                withdrawn = error.reason if error.after_first_token else ""
            else:
                return
            if withdrawn:
                yield Retraction(reason=withdrawn)


def _for(request: ModelRequest, candidate: Candidate) -> ModelRequest:
    return replace(request, model=candidate.info.model_id)


def _may_go_on(error: ModelError, request: ModelRequest) -> bool:
    """Tell whether another model may take over; the cap on the whole call and a wrong form are final."""
    if isinstance(error, ModelTimeout | OutputInvalid):
        return False
    return not error.after_first_token or request.on_retraction is not OnRetraction.FAIL


def _fitting(candidates: Sequence[Candidate], request: ModelRequest) -> list[Candidate]:
    """Return the candidates that can serve the request. Raises ContextOverflow when its prompt fits no window."""
    needed = message_tokens(request.messages) + tool_tokens(request.tools)
    roomy = [c for c in candidates if not c.info.window or needed < c.info.window]
    if not roomy:
        largest = max(candidates, key=lambda c: c.info.window).info
        raise ContextOverflow(
            largest.model_id, f"holds {largest.window} tokens, the prompt has about {needed}; shorten it"
        )
    if any(isinstance(part, MediaPart) and part.is_image for m in request.messages for part in m.parts):
        seeing = [c for c in roomy if VISION in c.info.capabilities]
        return seeing or roomy
    return roomy
