"""Which tools a run offers: what exists for whom, what the agent names, what stays when there are too many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from services.chassis.identity import Principal
from services.orchestrator.domain.agent import Agent, AgentType, Exposure, SourceBinding, ToolBinding, ToolPolicy
from services.orchestrator.domain.events import PauseKind
from services.orchestrator.domain.messages import ToolSpec
from services.orchestrator.offer import Offer, Offers
from services.orchestrator.tools.ports import Provided, Tool, Toolbox, ToolContext, ToolDefinition, ToolResult
from tests.support.orchestrator_kit import ANN, FakeTool, answering

AGENT = Agent(agent_id="a", name="a")


def tool(name: str, **options: Any) -> FakeTool:
    return FakeTool(name, answering("done"), options=options)


@dataclass
class Choosy:
    """A tool that is there for some, and looks different to each."""

    inner: FakeTool
    why: str = ""
    asked: list[Principal] = field(default_factory=list)

    @property
    def definition(self) -> ToolDefinition:
        return self.inner.definition

    async def withheld(self, principal: Principal) -> str:
        self.asked.append(principal)
        return self.why

    def spec_for(self, principal: Principal) -> ToolSpec:
        return replace(self.definition.spec, description=f"for {principal.user}")

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(text="")


@dataclass
class Elsewhere:
    """A provider of tools."""

    offered: tuple[Tool, ...]

    async def tools(self, principal: Principal, patterns: tuple[str, ...]) -> Provided:
        return Provided(tools=self.offered)

    async def find(self, principal: Principal, name: str) -> Tool | None:
        return next((one for one in self.offered if one.definition.name == name), None)


async def offer(
    *tools: Tool, agent: Agent = AGENT, provided: tuple[Tool, ...] = (), most: int = 128, question: str = "Why?"
) -> Offer:
    offers = Offers(Toolbox(tools, (Elsewhere(provided),)), most)
    return await offers.make(ANN, agent, (), "auto", question)


def names(made: Offer) -> list[str]:
    return [spec.name for spec in made.tools]


async def test_a_tool_that_is_not_there_for_somebody_does_not_exist_for_their_model() -> None:
    there, away = Choosy(tool("there")), Choosy(tool("away"), why="no database serves this tenant")
    made = await offer(there, away)
    assert names(made) == ["there"]
    assert made.tools[0].description == "for ann"
    assert away.asked == [ANN]


async def test_an_agent_has_what_it_names_a_star_names_a_group() -> None:
    bindings = (
        ToolBinding(tool="tickets__*"),
        ToolBinding(tool="clock"),
        ToolBinding(tool="tickets__delete", policy=ToolPolicy.DENY),
    )
    services = tuple(tool(f"tickets__{name}") for name in ("list", "delete"))
    made = await offer(tool("clock"), tool("other"), agent=replace(AGENT, tools=bindings), provided=services)
    assert names(made) == ["clock", "tickets__list"]


async def test_the_suites_own_stay_when_tools_are_narrowed_by_relevance() -> None:
    services = tuple(tool(f"shop__{name}", narrowable=True) for name in ("orders", "weather", "invoices"))
    made = await offer(tool("clock"), tool("search"), provided=services, most=3, question="Is the invoice paid?")
    assert names(made) == ["clock", "search", "shop__invoices"]


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (AGENT, ["list_files", "read_document", "search", "summarize_document"]),
        (replace(AGENT, type=AgentType.CLASSIC), []),
        (replace(AGENT, type=AgentType.CLASSIC, tools=(ToolBinding(tool="read_document"),)), ["read_document"]),
        (
            replace(AGENT, type=AgentType.CLASSIC, sources=(SourceBinding(source="s", exposure=Exposure.AGENTIC),)),
            ["list_files", "read_document", "search", "summarize_document"],
        ),
    ],
)
async def test_documents_are_read_by_tools_where_the_model_searches(agent: Agent, expected: list[str]) -> None:
    library = (tool("search"), tool("list_files"), tool("read_document"), tool("summarize_document"))
    assert names(await offer(*library, agent=agent)) == expected


async def test_tools_of_an_agent_that_fetches_read_its_sources_and_no_others() -> None:
    classic = replace(
        AGENT,
        type=AgentType.CLASSIC,
        sources=(SourceBinding(source="handbook"),),
        tools=(ToolBinding(tool="read_document"),),
    )
    assert (await offer(tool("read_document"), agent=classic)).sources == ("handbook",)


async def test_nobody_is_asked_where_nobody_is_there() -> None:
    asking = tool("ask_user", pause_kind=PauseKind.QUESTION)
    offers = Offers(Toolbox((asking, tool("clock"))), 128)
    assert names(await offers.make(ANN, AGENT, (), "auto", "Why?", answerable=False)) == ["clock"]
