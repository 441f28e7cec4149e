"""Which tools an agent may name, before a run asks for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from services.chassis.identity import Principal
from services.orchestrator.domain.events import PauseKind
from services.orchestrator.tools.ports import Choosable, Toolbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The tools there are.

    `schemas` maps names to the JSON Schemas of their arguments, `withheld` maps names, or beginnings with a star, to
    why they cannot be known or had now. `asking` are those that people answer: a template cannot name them.
    """

    schemas: Mapping[str, bytes]
    withheld: Mapping[str, str] = field(default_factory=dict)
    asking: Collection[str] = ()

    @property
    def names(self) -> frozenset[str]:
        """The names of all that can be had."""
        return frozenset(self.schemas)

    @property
    def is_complete(self) -> bool:
        """Whether every server said what it has."""
        return not any(name.endswith("*") for name in self.withheld)

    def has(self, binding: str) -> bool:
        """Whether a binding names a tool, by a star at its end some, or what a server that is away may have."""
        if any(binds(name, binding) for name in self.withheld if name.endswith("*")):
            return True
        return any(binds(binding, name) for name in self.schemas) or binding in (name for name in self.withheld)


class ToolNames:
    """Knows the tools of the toolbox, those of its providers too."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox

    async def known(self, principal: Principal) -> Tools:
        """Return the tools that `principal` may give an agent."""
        own = self._toolbox.tools
        found = [await provider.tools(principal, ()) for provider in self._toolbox.providers]
        chosen = [await p.everything(principal) for p in self._toolbox.providers if isinstance(p, Choosable)]
        every = (*own, *(tool for each in found for tool in each.tools), *(tool for each in chosen for tool in each))
        return Tools(
            schemas={tool.definition.name: tool.definition.spec.parameters_json for tool in every},
            withheld={name: why for each in found for name, why in each.withheld.items()},
            asking=[t.definition.name for t in own if t.definition.pause_kind is not PauseKind.APPROVAL],
        )


def binds(binding: str, name: str) -> bool:
    """Whether a binding is this name, or by a star at its end a beginning of it."""
    return name.startswith(binding[:-1]) if binding.endswith("*") else name == binding
