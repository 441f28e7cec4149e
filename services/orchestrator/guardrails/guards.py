"""All guardrails of the operator, in the order of the file; each one's fail mode speaks when it cannot judge."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from opentelemetry.metrics import Counter as Instrument

from services.chassis import names
from services.orchestrator.domain.messages import Message, Part, Role, TextPart
from services.orchestrator.guardrails.ports import Checked, FailMode, Guardrail, InputRefused, Refused, Stage, Verdict
from services.orchestrator.guardrails.service import Service

_log = logging.getLogger(__name__)
NOTICE = "guardrail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came of a text: as it may pass, what people should know, and why it may not pass (empty when it may)."""

    text: str
    notices: tuple[str, ...] = ()
    refusal: str = ""


class Guards:
    """Applies guardrails and counts what they did."""

    def __init__(self, guardrails: Sequence[Guardrail], actions: Instrument | None = None) -> None:
        self._guardrails = tuple(guardrails)
        self._actions = actions

    def of(self, stage: Stage, tenant: str) -> tuple[Guardrail, ...]:
        """Return the guardrails that judge texts of a tenant at a stage."""
        return tuple(each for each in self._guardrails if each.concerns(stage, tenant))

    async def judge(self, text: str, stage: Stage, tenant: str, guardrails: Sequence[Guardrail]) -> Judged:
        """Return what comes of `text`: the first refusal ends it."""
        notices: list[str] = []
        for guardrail in guardrails:
            verdict = await self._verdict(guardrail, text, stage, tenant)
            match verdict:
                case Refused(reason=reason):
                    return Judged(text=text, notices=tuple(notices), refusal=reason or "it is not allowed")
                case Checked(text=text, changes=changes):
                    if changes:
                        self.count(guardrail, stage, "changed")
                        notices.append(self.changed(guardrail, stage, changes))
        return Judged(text=text, notices=tuple(notices))

    def changed(self, guardrail: Guardrail, stage: Stage, changes: Sequence[str]) -> str:
        """Say what a guardrail changed."""
        where = "your message" if stage is Stage.INPUT else "the answer"
        return f"'{guardrail.name}' changed {where}: {', '.join(changes)}."

    def count(self, guardrail: Guardrail, stage: Stage, action: str) -> None:
        """Count one action: changed, refused, failed_open or failed_closed."""
        _log.info(
            "guardrail acted",
            extra={
                "event": names.EVENT_GUARDRAIL_ACTED,
                "guardrail": guardrail.name,
                "stage": stage.value,
                "action": action,
            },
        )
        if self._actions is not None:
            self._actions.add(
                1,
                {
                    names.GUARDRAIL_NAME: guardrail.name,
                    names.GUARDRAIL_STAGE: stage.value,
                    names.GUARDRAIL_ACTION: action,
                },
            )

    async def _verdict(self, guardrail: Guardrail, text: str, stage: Stage, tenant: str) -> Verdict:
        try:
            verdict = await guardrail.check.judge(text, stage, tenant)
        except Exception as error:  # noqa: BLE001 - whatever a check fails with, its fail mode decides
            closed = guardrail.fail is FailMode.CLOSED
            self.count(guardrail, stage, "failed_closed" if closed else "failed_open")
            _log.warning("guardrail '%s' could not judge: %s", guardrail.name, error)
            return Refused(reason=f"'{guardrail.name}' could not judge it") if closed else Checked(text=text)
        if isinstance(verdict, Refused):
            self.count(guardrail, stage, "refused")
        return verdict

    # --- what a user says -----------------------------------------------------------------------------------------

    async def parts(self, parts: Sequence[Part], tenant: str) -> tuple[tuple[Part, ...], tuple[str, ...]]:
        """Return a user's message as it may be read, with notices; raise InputRefused."""
        guardrails = self.of(Stage.INPUT, tenant)
        if not guardrails:
            return tuple(parts), ()
        judged: list[Part] = []
        notices: list[str] = []
        for part in parts:
            if not isinstance(part, TextPart):
                judged.append(part)
                continue
            result = await self.judge(part.text, Stage.INPUT, tenant, guardrails)
            if result.refusal:
                raise InputRefused(f"the message was refused: {result.refusal}")
            judged.append(replace(part, text=result.text))
            notices += result.notices
        return tuple(judged), tuple(notices)

    async def history(self, messages: Sequence[Message], tenant: str) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        """Return re-sent messages with the user's own judged like a new one; raise InputRefused."""
        if not self.of(Stage.INPUT, tenant):
            return tuple(messages), ()
        judged: list[Message] = []
        notices: list[str] = []
        for message in messages:
            if message.role is not Role.USER:
                judged.append(message)
                continue
            parts, told = await self.parts(message.parts, tenant)
            judged.append(replace(message, parts=parts))
            notices += told
        return tuple(judged), tuple(notices)

    async def answer(self, text: str, tenant: str) -> str:
        """Return what a user answered to a question as a model may read it; a refused answer is said to be one."""
        judged = await self.judge(text, Stage.INPUT, tenant, self.of(Stage.INPUT, tenant))
        return f"The user's answer was refused: {judged.refusal}. Go on without it." if judged.refusal else judged.text

    async def close(self) -> None:
        """Close the connections of services."""
        for guardrail in self._guardrails:
            if isinstance(guardrail.check, Service):
                await guardrail.check.close()
