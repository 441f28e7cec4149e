"""Which tools a run offers its model, and why others are withheld."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from services.chassis import names
from services.chassis.errors import FieldViolation, InvalidRequest
from services.chassis.identity import Principal
from services.chassis.later import Telling, at_once
from services.orchestrator.agents.exposure import expose
from services.orchestrator.checks import check_schema
from services.orchestrator.domain.agent import Agent, AgentType, ToolBinding, ToolPolicy
from services.orchestrator.domain.events import PauseKind
from services.orchestrator.domain.messages import ToolSpec
from services.orchestrator.narrowing import narrow
from services.orchestrator.tools.ports import Provided, Tool, Toolbox, is_conditional, is_tailored
from services.orchestrator.workflow.arguments import admit

_log = logging.getLogger(__name__)
SEARCH = "search"
# Tools that look into the sources beside `search`.
LIBRARY = frozenset({"list_files", "read_document", "summarize_document"})
_UNUSED = (("client_tools_unused", "A workflow calls the tools that it names; those of the caller are not used."),)
_FETCHED = "the agent fetches its sources before the first call"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Tools for the model, and the sources that its search tool looks into (empty: all).

    `instructions` are what servers say of their tools, `notices` (code, text) tell the user of missing ones.
    """

    tools: tuple[ToolSpec, ...]
    sources: tuple[str, ...]
    instructions: str = ""
    notices: tuple[tuple[str, str], ...] = ()


class Offers:
    """Decides what is offered. A tool whose dependency is missing does not exist for the model."""

    def __init__(self, toolbox: Toolbox, max_tools: int, later: Telling = at_once) -> None:
        self._toolbox = toolbox
        self._max_tools = max_tools
        self._later = later

    def _fixed(self, own: set[str]) -> set[str]:
        """Return which of the suite's own tools always stay: all, unless they leave little place for others."""
        return own if len(own) <= self._max_tools // 2 else own & {SEARCH}

    async def make(
        self,
        principal: Principal,
        agent: Agent,
        client_tools: tuple[ToolSpec, ...],
        tool_choice: str,
        question: str,
        *,
        answerable: bool = True,
    ) -> Offer:
        """Return the offer; raise InvalidRequest when a caller's tool has no valid schema.

        Raises WorkflowInvalid, and InvalidRequest for a question that a workflow cannot take.

        Tools that people answer are offered only when somebody is there (`answerable`).
        """
        _check(client_tools)
        exposed = expose(agent)
        if agent.type is AgentType.WORKFLOW:  # it calls no model itself; its nodes say what they call
            admit(agent, question)
            return Offer(tools=(), sources=exposed.search or (), notices=_UNUSED if client_tools else ())
        denied = tuple(b for b in agent.tools if b.policy is ToolPolicy.DENY and not b.when)
        withheld: dict[str, str] = {}
        offered: list[ToolSpec] = []
        theirs = {tool.name for tool in client_tools}
        provided = await self._provided(principal, agent, tool_choice)
        withheld |= provided.withheld
        tools_there = _with_others(self._toolbox.tools, provided.tools)
        for tool in tools_there:
            definition = tool.definition
            name = definition.spec.name
            if name in theirs:
                withheld[name] = "the caller brings a tool of that name"
            elif denied and _binds(denied, name):
                withheld[name] = "the agent's policy denies it"
            elif definition.pause_kind is not PauseKind.APPROVAL and not answerable:
                withheld[name] = "nobody is there to answer"
            elif name == SEARCH:
                if exposed.search is None:
                    withheld[name] = _FETCHED
                else:
                    offered.append(definition.spec)
            elif (agent.tools or definition.bound_only) and not _binds(agent.tools, name):
                withheld[name] = "the agent does not have it"
            elif name in LIBRARY and exposed.search is None and not agent.tools:
                withheld[name] = _FETCHED
            elif is_conditional(tool) and (why := await tool.withheld(principal)):
                withheld[name] = why
            else:
                offered.append(tool.spec_for(principal) if is_tailored(tool) else definition.spec)
        everything = (*offered, *client_tools) if tool_choice != "none" else ()
        narrowable = {tool.definition.spec.name for tool in tools_there if tool.definition.narrowable}
        always = self._fixed({tool.name for tool in offered} - narrowable) | {tool_choice}
        tools, left_out = narrow(everything, question, self._max_tools, always)
        withheld |= dict.fromkeys(left_out, "more tools than the model takes, and less relevant to the question")
        self._later(_tell, tools, withheld)
        return Offer(
            tools=tools,
            # Tools that are bound to an agent which fetches its sources itself read those and no others.
            sources=exposed.search or tuple(binding.source for binding in agent.sources),
            instructions=provided.instructions,
            notices=provided.notices,
        )

    async def _provided(self, principal: Principal, agent: Agent, tool_choice: str) -> Provided:
        """Return what the providers have for this run; what they cannot say now is missing from the offer only."""
        if tool_choice == "none":
            return Provided()
        patterns = tuple(binding.tool for binding in agent.tools)
        found = [await provider.tools(principal, patterns) for provider in self._toolbox.providers]
        return Provided(
            tools=tuple(tool for each in found for tool in each.tools),
            withheld={name: why for each in found for name, why in each.withheld.items()},
            instructions="\n\n".join(each.instructions for each in found if each.instructions),
            notices=tuple(notice for each in found for notice in each.notices),
        )


def _tell(tools: tuple[ToolSpec, ...], withheld: Mapping[str, str]) -> None:
    offered = [tool.name for tool in tools]
    _log.info("tools offered", extra={"event": names.EVENT_RUN_TOOLS, "offered": offered, "withheld": withheld})


def _with_others(own: tuple[Tool, ...], others: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """Return the suite's own tools and those of others whose names they leave free."""
    known = {tool.definition.name for tool in own} if others else set()
    return own + tuple(tool for tool in others if tool.definition.name not in known)


def _binds(bindings: tuple[ToolBinding, ...], name: str) -> bool:
    """Tell whether a binding names the tool, or a group of them by a star at its end."""
    return any(name.startswith(b.tool[:-1]) if b.tool.endswith("*") else name == b.tool for b in bindings)


def _check(tools: tuple[ToolSpec, ...]) -> None:
    violations = [
        FieldViolation(field=f"client_tools[{index}].parameters_json", description=f"tool '{tool.name}': {problem}")
        for index, tool in enumerate(tools)
        if (problem := check_schema(tool.parameters_json))
    ]
    if violations:
        raise InvalidRequest("a tool's parameters are not a JSON Schema; correct it", violations=violations)
