"""Small talk: a short friendly reply from a prompt of its own, which leads back to what the agent is there for."""

from __future__ import annotations

from dataclasses import replace

from services.orchestrator.domain.messages import Message, OutputFormat, Role, TextPart, text_message
from services.orchestrator.domain.state import Phase
from services.orchestrator.leg import Leg
from services.orchestrator.loop import Loop, LoopEnd
from services.orchestrator.models.ports import ModelReply

OUTPUT_TOKENS = 600
MESSAGES = 4
_PROMPT = (
    "You are {agent}.{subject} The user makes small talk. Reply in their language, warmly, in one or two sentences; "
    "claim no facts and promise nothing. Then lead back to what you are there for."
)


class SmallTalk:
    """A strategy: one call without tools, with the last four messages in view."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    async def run(self, leg: Leg) -> tuple[LoopEnd, ModelReply | None]:
        """Prepare the short prompt unless it stands, then answer."""
        if leg.progress.phase is Phase.PREPARE:
            self._prepare(leg)
            leg.save()
        spec = leg.spec
        limit = min(spec.sampling.max_output_tokens or OUTPUT_TOKENS, OUTPUT_TOKENS)
        sampling = replace(spec.sampling, max_output_tokens=limit)
        leg.spec = replace(spec, tools=(), sampling=sampling, output=OutputFormat())
        return await self._loop.run(leg)

    def _prepare(self, leg: Leg) -> None:
        agent, progress = leg.spec.agent, leg.progress
        prompt = _PROMPT.format(agent=agent.name, subject=f" {agent.description}" if agent.description else "")
        if leg.spec.instructions:
            prompt = f"{prompt}\n\n{leg.spec.instructions}"
        said = [plain for message in progress.messages[: progress.turn_start] if (plain := _plain(message))]
        earlier = said[1 - MESSAGES :]
        question = progress.messages[progress.turn_start]
        progress.replace_messages([text_message(Role.SYSTEM, prompt), *earlier, question], 1 + len(earlier))
        progress.phase = Phase.ROUND_START


def _plain(message: Message) -> Message | None:
    """Return what a user or an assistant said, without calls; None when that is nothing."""
    if message.role not in (Role.USER, Role.ASSISTANT) or not message.text.strip():
        return None
    return Message(role=message.role, parts=(TextPart(text=message.text),))
