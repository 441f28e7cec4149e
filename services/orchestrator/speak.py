"""One model call of a run: its pieces flow into the journal as they come, its reply comes back whole."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

from services.chassis.clock import Ids
from services.orchestrator.domain.events import (
    AnswerDelta,
    AnswerRetracted,
    ModelCallFinished,
    Notice,
    Stage,
    StageChanged,
    ThinkingDelta,
    ToolCallDelta,
)
from services.orchestrator.domain.messages import Message, ToolSpec
from services.orchestrator.leg import Leg
from services.orchestrator.models.errors import ModelError
from services.orchestrator.models.ports import (
    CallPiece,
    ChatModel,
    ModelNotice,
    ModelReply,
    ModelRequest,
    Purpose,
    Retraction,
    TextPiece,
    ThinkingPiece,
)

_SEPARATOR = "\n\n"
# What tells that a model call begins.
THINKING = StageChanged(stage=Stage.THINKING, text="Thinking")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """A whole reply and the event that tells its clock, still to be recorded."""

    reply: ModelReply
    finished: ModelCallFinished
    shown: str


class Speaker:
    """Calls the model for a run."""

    def __init__(self, model: ChatModel, ids: Ids) -> None:
        self._model = model
        self._ids = ids

    async def call(
        self,
        leg: Leg,
        messages: tuple[Message, ...],
        tools: tuple[ToolSpec, ...],
        purpose: Purpose = Purpose.ANSWER,
    ) -> Spoken:
        """Stream one reply into the journal and return it; raise ModelError, its clock recorded, when it fails."""
        spec = leg.spec
        # Until the call ends its id stays the announced one: other steps' checkpoints may be written meanwhile.
        call_id = leg.progress.next_call_id = leg.progress.next_call_id or self._ids.new()
        if not leg.journal.announced:
            leg.journal.delta(THINKING, step_id=leg.step_id)
        request = ModelRequest(
            call_id=call_id,
            model=spec.model,
            purpose=purpose,
            messages=messages,
            tools=tools,
            tool_choice=spec.tool_choice if tools else "none",
            sampling=spec.sampling,
            output=spec.output,
            on_retraction=spec.on_retraction,
            tenant=spec.principal.tenant,
            user=spec.principal.user,
            conversation_id=spec.conversation_id,
        )
        utterance = _Utterance(leg, request.call_id)
        reply: ModelReply | None = None
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    match event:
                        case TextPiece(text=text):
                            await utterance.text(text)
                        case ThinkingPiece(text=text):
                            utterance.thinking(text)
                        case CallPiece():
                            utterance.call(event)
                        case Retraction(reason=reason):
                            await utterance.retract(reason)
                        case ModelNotice(code=code, text=text):
                            leg.journal.delta(Notice(code=code, text=text), step_id=leg.step_id)
                        case ModelReply():
                            reply = event
                    if leg.journal.congested:
                        # The database lags: the model waits, instead of its text filling the memory.
                        await leg.journal.settle()
        except ModelError as error:
            if error.timing is not None:
                leg.journal.delta(call_failed(request, spec.model, error), step_id=leg.step_id)
            raise
        finally:
            # Also when the run is stopped: what was shown is the partial answer.
            leg.progress.answer = utterance.before + utterance.shown
            leg.progress.next_call_id = self._ids.new()
            leg.journal.announced = False
        assert reply is not None
        leg.spend(usage=reply.usage)
        return Spoken(reply=reply, finished=call_finished(request, reply), shown=utterance.shown)


class _Utterance:
    """What one call has shown so far."""

    def __init__(self, leg: Leg, call_id: str) -> None:
        self._leg = leg
        self._call_id = call_id
        self._pieces: list[str] = []
        self.before = leg.progress.answer

    @property
    def shown(self) -> str:
        """The text that stands."""
        return "".join(self._pieces)

    async def text(self, text: str) -> None:
        is_first = not self._pieces
        if is_first and self.before and not self.before.endswith(_SEPARATOR):
            text = _SEPARATOR + text
        self._pieces.append(text)
        self._delta(AnswerDelta(text=text, model_call_id=self._call_id))
        if is_first:
            # Behind the text: a stage is committed before it is shown, and the first token must not wait for that.
            self._delta(StageChanged(stage=Stage.ANSWERING, text="Answering"))
            # Whoever reads has it before anything else is done.
            await asyncio.sleep(0)

    def thinking(self, text: str) -> None:
        self._delta(ThinkingDelta(text=text, model_call_id=self._call_id))

    def call(self, piece: CallPiece) -> None:
        self._delta(
            ToolCallDelta(
                call_id=piece.call_id,
                name=piece.name,
                arguments_fragment=piece.arguments_fragment,
                model_call_id=self._call_id,
            )
        )

    async def retract(self, reason: str) -> None:
        self._pieces.clear()
        await self._leg.record(AnswerRetracted(model_call_id=self._call_id, reason=reason))

    def _delta(self, event: StageChanged | AnswerDelta | ThinkingDelta | ToolCallDelta) -> None:
        self._leg.journal.delta(event, step_id=self._leg.step_id)


def call_finished(request: ModelRequest, reply: ModelReply) -> ModelCallFinished:
    """Return the event that tells how a call went."""
    timing = reply.timing
    return ModelCallFinished(
        model_call_id=request.call_id,
        purpose=request.purpose.value,
        model=reply.model,
        fallback_from=reply.fallback_from,
        queued=timing.queued,
        time_to_first_token=timing.time_to_first_token,
        total=timing.total,
        longest_stall=timing.longest_stall,
        attempts=timing.attempts,
        usage=reply.usage,
        finish_reason=reply.finish_reason,
        started_at=timing.started_at,
    )


def call_failed(request: ModelRequest, model: str, error: ModelError) -> ModelCallFinished:
    """Return the event that tells of a call that failed after it was measured."""
    timing = error.timing
    assert timing is not None
    return ModelCallFinished(
        model_call_id=request.call_id,
        purpose=request.purpose.value,
        model=model,
        queued=timing.queued,
        time_to_first_token=timing.time_to_first_token,
        total=timing.total,
        longest_stall=timing.longest_stall,
        attempts=timing.attempts,
        finish_reason="error",
        error=error.reason,
        started_at=timing.started_at,
    )
