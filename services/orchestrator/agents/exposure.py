"""How an agent's sources are offered: fetched before the first model call, or searched by the model."""

from __future__ import annotations

from dataclasses import dataclass

from services.orchestrator.domain.agent import Agent, AgentType, Exposure


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposed:
    """Sources by use. None means that this use does not happen; an empty tuple means every source."""

    prefetch: tuple[str, ...] | None
    search: tuple[str, ...] | None


# Every source, for an agent that names none.
_FETCHED = Exposed(prefetch=(), search=None)
_SEARCHED = Exposed(prefetch=None, search=())


def expose(agent: Agent) -> Exposed:
    """Return how the sources of `agent` are offered.

    Classic agents prefetch and get a search tool only for sources marked agentic. Agentic agents search, and prefetch
    only when some sources are marked agentic and others prefetch. Every other type searches.
    """
    if not agent.sources:
        return _FETCHED if agent.type is AgentType.CLASSIC else _SEARCHED
    marked = {
        exposure: tuple(binding.source for binding in agent.sources if binding.exposure is exposure)
        for exposure in Exposure
    }
    default, prefetch, agentic = marked[Exposure.DEFAULT], marked[Exposure.PREFETCH], marked[Exposure.AGENTIC]
    if agent.type is AgentType.CLASSIC:
        fetched = default + prefetch
        return Exposed(prefetch=fetched or None, search=agentic or None)
    if agentic and prefetch:
        return Exposed(prefetch=prefetch, search=agentic + default)
    return Exposed(prefetch=None, search=default + prefetch + agentic)
