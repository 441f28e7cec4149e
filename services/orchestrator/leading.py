"""Tools that are agents themselves: they are led in a branch of the run that calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeGuard, runtime_checkable

from services.orchestrator.leg import Leg
from services.orchestrator.tools.ports import Tool, ToolResult, implements


@runtime_checkable
class Leading(Protocol):
    """What a tool implements in place of Tool's `run` when its work has calls and pauses of its own."""

    async def lead(self, leg: Leg, call_id: str, arguments: Mapping[str, Any]) -> ToolResult | None:
        """Go on with the call from where it stands; None when it waits for people. Its effect is never SIDE_EFFECT.

        What stops the whole run is raised, everything else is a result.
        """
        ...


def is_leading(tool: Tool) -> TypeGuard[Leading]:
    """Whether the tool leads an agent. For hot paths, as `is_conditional`."""
    return implements(type(tool), Leading)
