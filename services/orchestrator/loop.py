"""The loop: one model call a round that both decides and answers, until it answers, pauses, or a cap closes it."""

from __future__ import annotations

from enum import Enum

from services.orchestrator.budget import reason_kind
from services.orchestrator.checks import stop_asked
from services.orchestrator.context.compaction import Compactor
from services.orchestrator.domain.events import AnswerDelta, Notice, PauseKind, Stage, StageChanged, ToolCallProposed
from services.orchestrator.domain.messages import Message, Role, TextPart, text_message
from services.orchestrator.domain.state import Pending, Phase
from services.orchestrator.gate import Gate
from services.orchestrator.leg import Leg
from services.orchestrator.metrics import RunMetrics
from services.orchestrator.models.ports import ModelReply
from services.orchestrator.speak import Speaker, Spoken

_ASK_AGAIN = "Your last reply had no answer and no tool call. Answer the question now."
_CLOSE = "Answer now from what you have, without tools: {reason}. Say plainly what was cut short by that."


class LoopEnd(Enum):
    """Why the loop returned."""

    ANSWERED = "answered"
    WAITING = "waiting"
    CALLER_TOOLS = "caller_tools"


class Loop:
    """Rounds of one run."""

    def __init__(self, speaker: Speaker, gate: Gate, compactor: Compactor, metrics: RunMetrics) -> None:
        self._speaker = speaker
        self._gate = gate
        self._compactor = compactor
        self._metrics = metrics

    async def run(self, leg: Leg) -> tuple[LoopEnd, ModelReply | None]:
        """Go on from where the leg stands; return why it stopped, and the last reply when it answered."""
        progress = leg.progress
        while True:
            match progress.phase:
                case Phase.ROUND_START:
                    spoken = await self._round(leg)
                    if spoken is not None:
                        return LoopEnd.ANSWERED, spoken.reply
                case Phase.CALLS:
                    end = await self._calls(leg)
                    if end is not None:
                        return end, None
                case Phase.CLOSING:
                    spoken = await self._close(leg)
                    return LoopEnd.ANSWERED, spoken.reply
                case Phase.PREPARE:
                    raise AssertionError("the prompt must be prepared before the first round")

    async def _round(self, leg: Leg) -> Spoken | None:
        """Make one round; return the reply when it is the answer."""
        progress = leg.progress
        leg.count_time()
        if reason := leg.cap_reached(tool_calls=bool(leg.spec.tools)):
            self._metrics.cut(reason_kind(reason))
            await self._begin_closing(leg, reason, tell=True)
            return None
        if stop_asked(progress.unknown_tools):
            await self._begin_closing(leg, "tools that do not exist were called again and again", tell=False)
            return None
        await self._compactor.keep_within(leg)
        messages = tuple(progress.messages)
        if progress.asked_again:
            messages += (text_message(Role.USER, _ASK_AGAIN),)
        spoken = await self._speaker.call(leg, messages, leg.spec.tools, leg.purpose)
        leg.spend(rounds=1)
        reply = spoken.reply
        if not reply.tool_calls and not reply.text.strip():
            await self._silent(leg, spoken)
            return None
        progress.messages.append(_assistant(reply))
        if not reply.tool_calls:
            leg.journal.delta(spoken.finished, step_id=leg.step_id)
            return spoken
        progress.asked_again = False
        progress.pending = tuple(Pending(call=call) for call in reply.tool_calls)
        progress.phase = Phase.CALLS
        # The whole reply is saved before any of its calls runs, so call ids survive a crash: whatever the first of them
        # does or asks is committed behind it, and until then nothing has happened that must be remembered.
        calling = StageChanged(stage=Stage.CALLING_TOOLS, text=_calling(reply))
        proposed = [ToolCallProposed(call=call, round=progress.round) for call in reply.tool_calls]
        leg.save_soon(calling, spoken.finished, *proposed)
        return None

    async def _silent(self, leg: Leg, spoken: Spoken) -> None:
        """Ask once more after a reply without text and calls; after the second, close without tools."""
        leg.journal.delta(spoken.finished, step_id=leg.step_id)
        if leg.progress.asked_again:
            await self._begin_closing(leg, "the model gave no answer", tell=False)
        else:
            leg.progress.asked_again = True
            await leg.commit()

    async def _begin_closing(self, leg: Leg, reason: str, *, tell: bool) -> None:
        leg.progress.phase = Phase.CLOSING
        leg.progress.closing_reason = reason
        notices = [Notice(code="budget_cut", text=f"Answering early: {reason}.")] if tell else []
        await leg.commit(*notices)

    async def _close(self, leg: Leg) -> Spoken:
        """Make the last answer, without tools."""
        instruction = text_message(Role.USER, _CLOSE.format(reason=leg.progress.closing_reason))
        spoken = await self._speaker.call(leg, (*leg.progress.messages, instruction), (), leg.purpose)
        leg.spend(rounds=1)
        leg.progress.messages.append(_assistant(spoken.reply))
        leg.journal.delta(spoken.finished, step_id=leg.step_id)
        return spoken

    async def _calls(self, leg: Leg) -> LoopEnd | None:
        """Work off the round's calls; return why the loop must stop, or None to go on with the next round."""
        progress = leg.progress
        await self._gate.work_off(leg)
        if open_calls := [p for p in progress.pending if p.result is None]:
            # The run ends for the caller's tools only when nothing else is open: an approval must be waited for.
            callers = all(p.pause_kind is PauseKind.CLIENT_TOOL for p in open_calls)
            return LoopEnd.CALLER_TOOLS if callers and leg.spec.client_tools_end_run else LoopEnd.WAITING
        direct = await self._gate.direct_output(leg)
        # Results stand in the order of their calls, whatever finished first.
        progress.messages += [p.result for p in progress.pending if p.result is not None]
        progress.pending = ()
        if direct is not None:
            _answer_with(leg, direct)
            return LoopEnd.ANSWERED
        progress.round += 1
        progress.phase = Phase.ROUND_START
        # Effects were saved when they happened; what this adds is read again after a crash. The next call's first event
        # takes it along.
        leg.save_soon()
        return None


def _answer_with(leg: Leg, text: str) -> None:
    """Give a tool's result as the answer, under the id that was announced for the next model call."""
    progress = leg.progress
    progress.phase = Phase.CLOSING
    leg.save(StageChanged(stage=Stage.THINKING, text="Putting the answer together"))
    shown = f"\n\n{text}" if progress.answer.strip() else text
    progress.answer += shown
    progress.messages.append(text_message(Role.ASSISTANT, text))
    leg.journal.delta(AnswerDelta(text=shown, model_call_id=progress.next_call_id), step_id=leg.step_id)
    leg.journal.delta(StageChanged(stage=Stage.ANSWERING, text="Answering"), step_id=leg.step_id)


def _assistant(reply: ModelReply) -> Message:
    return Message(
        role=Role.ASSISTANT,
        parts=(TextPart(text=reply.text),) if reply.text else (),
        tool_calls=reply.tool_calls,
        reasoning=reply.reasoning,
        response_id=reply.response_id,
    )


def _calling(reply: ModelReply) -> str:
    called = ", ".join(dict.fromkeys(call.name for call in reply.tool_calls))
    return f"Using {called}"
