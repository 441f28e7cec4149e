"""Classic and agentic agents: make the prompt, then rounds until there is an answer."""

from __future__ import annotations

from services.orchestrator.agents.prepare import Preparer
from services.orchestrator.domain.state import Phase
from services.orchestrator.leg import Leg
from services.orchestrator.loop import Loop, LoopEnd
from services.orchestrator.models.ports import ModelReply


class Direct:
    """The loop itself; what is fetched before it is the preparer's business."""

    def __init__(self, preparer: Preparer, loop: Loop) -> None:
        self._preparer = preparer
        self._loop = loop

    async def run(self, leg: Leg) -> tuple[LoopEnd, ModelReply | None]:
        """Prepare the prompt unless it stands, then loop."""
        if leg.progress.phase is Phase.PREPARE and not await self._preparer.prepare(leg):
            return LoopEnd.WAITING, None
        return await self._loop.run(leg)
