"""What a running tool may ask of the run around it."""

from __future__ import annotations

from services.orchestrator.consult import Consultant
from services.orchestrator.domain.messages import Message, OutputFormat, Role, Sampling
from services.orchestrator.leg import Leg
from services.orchestrator.models.ports import Purpose


class Consulting:
    """Implements Consult: a tool asks a model on the run's bill, its clock in the run's journal."""

    def __init__(self, leg: Leg, consultant: Consultant) -> None:
        self._leg = leg
        self._consultant = consultant

    def window(self, purpose: Purpose) -> int:
        """Return the window of the model that would be asked, 0 when unknown."""
        return self._consultant.model_for(self._leg, purpose).window

    async def ask(self, purpose: Purpose, messages: tuple[Message, ...], sampling: Sampling) -> str:
        """Return the reply's text. Raises ModelError."""
        reply = await self._consultant.ask(self._leg, purpose, messages, output=OutputFormat(), sampling=sampling)
        return reply.text


def mentioned(leg: Leg, text: str) -> bool:
    """Tell whether `text` stands in what the user wrote, or in what a tool returned."""
    progress = leg.progress
    said = (message.text for message in progress.messages if message.role in (Role.USER, Role.TOOL))
    results = (pending.result.text for pending in progress.pending if pending.result is not None)
    found = (f"{item.url} {item.text}" for item in progress.evidence.items)
    return any(text in one for texts in (said, results, found) for one in texts)
