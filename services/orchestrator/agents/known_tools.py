"""Which tools an agent may name, before a run asks for them."""

from __future__ import annotations

from collections.abc import Collection

from services.chassis.identity import Principal
from services.orchestrator.domain.events import PauseKind
from services.orchestrator.tools.ports import Toolbox


class ToolNames:
    """Names of tools, read from the toolbox."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox

    async def tool_names(self, principal: Principal) -> frozenset[str]:
        """Return the names that `principal` may give an agent."""
        provided = [await provider.tools(principal, ()) for provider in self._toolbox.providers]
        return frozenset(self._toolbox.names) | {tool.definition.name for each in provided for tool in each.tools}

    def answered_by_people(self) -> Collection[str]:
        """Return the tools that people answer: a template cannot name them."""
        return [t.definition.name for t in self._toolbox.tools if t.definition.pause_kind is not PauseKind.APPROVAL]


def matches(binding: str, known: Collection[str]) -> bool:
    """Whether a binding names a tool, or by a star at its end the beginning of one."""
    if not binding.endswith("*"):
        return binding in known
    beginning = binding[:-1].replace("/", "__")
    return any(name.startswith(beginning) for name in known)
