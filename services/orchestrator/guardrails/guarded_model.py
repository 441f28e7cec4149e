"""A model whose answers pass the guardrails: hidden piece by piece, checked as they come, withdrawn when refused.

What a refusal does follows the rule of every break behind the first token: EMIT withdraws what was shown and puts the
refusal in its place, FAIL fails the run with what was shown, HOLD shows nothing before all of it is judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from services.orchestrator.domain.run import OnRetraction
from services.orchestrator.guardrails.guards import NOTICE, Guards
from services.orchestrator.guardrails.ports import Guardrail, OutputRefused, Stage
from services.orchestrator.guardrails.recognisers import Kind
from services.orchestrator.guardrails.redaction import Redaction, StreamRedactor, redact, redact_json, told
from services.orchestrator.models.ports import (
    CallPiece,
    ChatModel,
    ModelEvent,
    ModelNotice,
    ModelReply,
    ModelRequest,
    Purpose,
    Retraction,
    TextPiece,
    ThinkingPiece,
)

# Answers that people read; plans, routes and summaries are not shown.
SHOWN = frozenset({Purpose.ANSWER, Purpose.SYNTHESIZE})
# Quick checks look again when so many characters came since the last look.
LOOK_EVERY = 120
REFUSAL = "This answer was withheld: {reason}"


@dataclass(slots=True, kw_only=True)
class _Answer:
    """One answer under way. `text` is what passed redaction, `looked` how much of it the quick checks have seen."""

    request: ModelRequest
    kinds: tuple[Kind, ...]
    quick: tuple[Guardrail, ...]
    hidden: Counter[Kind] = field(default_factory=Counter)
    text: str = ""
    looked: int = 0
    redactor: StreamRedactor = field(init=False)
    thoughts: StreamRedactor = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget a text that was withdrawn."""
        self.redactor = StreamRedactor(self.kinds, self.hidden)
        self.thoughts = StreamRedactor(self.kinds, Counter())
        self.text, self.looked = "", 0

    def say(self, text: str) -> list[ModelEvent]:
        """Return a piece of the answer that passed redaction, if there is one."""
        self.text += text
        return [TextPiece(text=text)] if text else []

    def end_thoughts(self) -> list[ModelEvent]:
        """Return what is held back of the thoughts: they end where something else begins."""
        rest = self.thoughts.end()
        return [ThinkingPiece(text=rest)] if rest else []

    @property
    def due(self) -> bool:
        """Whether enough came since the quick checks looked."""
        return bool(self.quick) and len(self.text) - self.looked >= LOOK_EVERY


class GuardedModel:
    """Implements ChatModel around another one."""

    def __init__(self, inner: ChatModel, guards: Guards) -> None:
        self._inner = inner
        self._guards = guards

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Return the inner stream, guarded where people read it."""
        guardrails = self._guards.of(Stage.OUTPUT, request.tenant)
        if not guardrails or request.purpose not in SHOWN:
            return self._inner.stream(request)
        return self._guarded(request, guardrails)

    async def _guarded(
        self, request: ModelRequest, guardrails: tuple[Guardrail, ...]
    ) -> AsyncGenerator[ModelEvent, None]:
        redactions = [each for each in guardrails if isinstance(each.check, Redaction)]
        checks = tuple(each for each in guardrails if not isinstance(each.check, Redaction))
        kinds = tuple({k for each in redactions if isinstance(each.check, Redaction) for k in each.check.kinds})
        quick = tuple(each for each in checks if each.quick)
        answer = _Answer(request=request, kinds=tuple(sorted(kinds, key=lambda k: k.value)), quick=quick)
        held: list[ModelEvent] | None = [] if request.on_retraction is OnRetraction.HOLD else None
        refusal = ""
        async with aclosing(self._inner.stream(request)) as events:
            async for event in events:
                if isinstance(event, ModelReply):
                    async for last in self._finish(event, answer, checks, redactions, held, refusal):
                        yield last
                    return
                if refusal:
                    continue  # the reply's clock and tokens are still wanted
                for passed in self._pass(event, answer):
                    if held is not None and not isinstance(passed, ModelNotice):
                        held.append(passed)
                    else:
                        yield passed
                if held is None and answer.due:
                    refusal = await self._look(answer)
                    if refusal and request.on_retraction is OnRetraction.EMIT:
                        yield Retraction(reason=refusal)

    def _pass(self, event: ModelEvent, answer: _Answer) -> list[ModelEvent]:
        """Return an event as it may be shown now."""
        match event:
            case TextPiece(text=text):
                return [*answer.end_thoughts(), *answer.say(answer.redactor.feed(text))]
            case ThinkingPiece(text=text):
                shown = answer.thoughts.feed(text)
                return [ThinkingPiece(text=shown)] if shown else []
            case CallPiece():
                return [*answer.end_thoughts(), *answer.say(answer.redactor.end()), event]
            case Retraction():
                answer.begin()
                return [event]
            case _:
                return [event]

    async def _look(self, answer: _Answer) -> str:
        answer.looked = len(answer.text)
        judged = await self._guards.judge(answer.text, Stage.OUTPUT, answer.request.tenant, answer.quick)
        return judged.refusal

    async def _finish(
        self,
        reply: ModelReply,
        answer: _Answer,
        checks: tuple[Guardrail, ...],
        redactions: list[Guardrail],
        held: list[ModelEvent] | None,
        refusal: str,
    ) -> AsyncGenerator[ModelEvent, None]:
        """Judge the whole answer and give the rest of it, or what stands in its place."""
        if held is None:
            for event in answer.end_thoughts():
                yield event
        else:
            held += answer.end_thoughts()
        rest = answer.redactor.end()
        answer.text += rest
        retracted = bool(refusal)
        text = answer.text
        if not refusal:
            judged = await self._guards.judge(text, Stage.OUTPUT, answer.request.tenant, checks)
            refusal, text = judged.refusal, judged.text
            for notice in judged.notices:
                yield ModelNotice(code=NOTICE, text=notice)
        if refusal:
            async for event in self._refuse(reply, answer, refusal, retracted=retracted):
                yield event
            return
        for event in _rest(answer.text, text, rest, held):
            yield event
        if answer.hidden:
            for guardrail in redactions:
                self._guards.count(guardrail, Stage.OUTPUT, "changed")
            notice = self._guards.changed(redactions[0], Stage.OUTPUT, told(answer.hidden))
            yield ModelNotice(code=NOTICE, text=notice)
        yield self._redacted(reply, answer, text)

    def _redacted(self, reply: ModelReply, answer: _Answer, text: str) -> ModelReply:
        """Return the reply as it may be kept: `text` when a service changed it, else its own with masks."""
        if text != answer.text:
            return replace(reply, text=text, reasoning="", value_json=b"")
        if not answer.kinds:
            return reply
        return replace(
            reply,
            text=redact(reply.text, answer.kinds, Counter()),
            reasoning=redact(reply.reasoning, answer.kinds, Counter()),
            value_json=redact_json(reply.value_json, answer.kinds, Counter()),
        )

    async def _refuse(
        self, reply: ModelReply, answer: _Answer, refusal: str, *, retracted: bool
    ) -> AsyncGenerator[ModelEvent, None]:
        """Put the refusal in the answer's place, or fail where nothing can be withdrawn."""
        mode = answer.request.on_retraction
        yield ModelNotice(code=NOTICE, text=f"The answer was withheld: {refusal}")
        if mode is OnRetraction.FAIL:
            error = OutputRefused(reply.model, f"gave an answer that was refused: {refusal}", after_first_token=True)
            error.timing = reply.timing
            raise error
        if mode is OnRetraction.EMIT and not retracted:
            yield Retraction(reason=refusal)
        said = REFUSAL.format(reason=refusal)
        yield TextPiece(text=said)
        yield replace(
            reply,
            text=said,
            reasoning="",
            tool_calls=(),
            finish_reason="content_filter",
            value_json=b"",
            response_id="",
        )


def _rest(shown: str, text: str, rest: str, held: list[ModelEvent] | None) -> list[ModelEvent]:
    """Return what must still be shown of an answer that may pass: all of it when a service changed it."""
    if text != shown:
        withdrawn: list[ModelEvent] = [] if held is not None else [Retraction(reason="a guardrail changed the answer")]
        return [*withdrawn, TextPiece(text=text)]
    return [*(held or ()), *([TextPiece(text=rest)] if rest else [])]
