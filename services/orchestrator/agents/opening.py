"""Whether a run opens with the model call that answers it."""

from __future__ import annotations

from collections.abc import Sequence

from services.orchestrator.agents.exposure import expose
from services.orchestrator.agents.templates import TOOL
from services.orchestrator.domain.agent import AgentType
from services.orchestrator.domain.messages import MediaPart, Message
from services.orchestrator.domain.state import RunSpec

_LOOPS = (AgentType.CLASSIC, AgentType.AGENTIC)


def opens_with_call(spec: RunSpec, turn: Sequence[Message]) -> bool:
    """Return whether nothing is asked, fetched or read before a new run's first model call.

    Its prompt follows from what was admitted then, and is made again after a crash. `turn` is what the user said. When
    in doubt it does not.
    """
    agent = spec.agent
    return (
        agent.type in _LOOPS
        and not agent.router_json
        and TOOL not in agent.prompt
        and expose(agent).prefetch is None
        and not any(isinstance(part, MediaPart) for message in turn for part in message.parts)
    )
