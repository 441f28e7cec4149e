"""The port of a strategy: how one kind of agent gets from where a leg stands to an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from services.orchestrator.domain.agent import AgentType
from services.orchestrator.leg import Leg
from services.orchestrator.loop import LoopEnd
from services.orchestrator.models.ports import ModelReply


class Strategy(Protocol):
    """One kind of agent. It holds no state: all of it is in the leg's progress, which outlives the process."""

    async def run(self, leg: Leg) -> tuple[LoopEnd, ModelReply | None]:
        """Go on from where the leg stands; return why it stopped, and the last reply when it answered.

        Called again with the saved state after a pause or a take-over. An answer stands in `leg.progress.answer` and as
        the last of `leg.progress.messages`; for WAITING every open call has been brought as far as it can go.
        """
        ...


Strategies = Mapping[AgentType, Strategy]
