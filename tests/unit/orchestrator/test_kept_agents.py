"""Kept agents and prompts: who may do what, versions, and everything that is refused at save time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Generic

import pytest

from services.chassis.errors import FieldViolation, InvalidRequest, PermissionDenied
from services.chassis.identity import Principal
from services.orchestrator.adapters.sql.definitions import AGENTS, PROMPTS, Form
from services.orchestrator.agents.compose import Agents, Surroundings, compose_agents
from services.orchestrator.agents.directory import AgentDirectory, PromptDirectory
from services.orchestrator.agents.known_tools import Tools
from services.orchestrator.agents.ports import (
    AgentNotFound,
    Conflict,
    InUse,
    NameTaken,
    PromptNotFound,
    ReadOnly,
    T,
)
from services.orchestrator.agents.prompt import Prompts
from services.orchestrator.domain.agent import Agent, AgentType, Prompt, SourceBinding, ToolBinding, ToolPolicy
from services.orchestrator.domain.messages import Budget, OutputFormat
from services.orchestrator.models.errors import ModelNotFound
from services.orchestrator.models.ports import ModelInfo
from tests.support.clock import FakeClock, SequentialIds
from tests.support.orchestrator_kit import FakeCatalogue


def user(name: str, *scopes: str, tenant: str = "acme") -> Principal:
    return Principal(tenant=tenant, user=name, scopes=frozenset(scopes))


ANN, BOB = user("ann", "runs", "agents:write"), user("bob", "runs", "agents:write")
READER, ADMIN = user("rob", "runs"), user("root", "agents:admin")
EVE = user("ann", "*", tenant="rival")


class MemoryStore(Generic[T]):
    """The store's contract, in memory."""

    def __init__(self, form: Form[T]) -> None:
        self._form: Form[T] = form
        self._rows: dict[tuple[str, str], list[T]] = {}

    async def add(self, tenant: str, value: T) -> None:
        if await self.get(tenant, value.name) is not None:
            raise NameTaken(self._form.word, value.name)
        self._rows[tenant, self._form.identify(value)] = [value]

    async def replace(self, tenant: str, value: T, expected: int) -> None:
        rows = self._rows[tenant, self._form.identify(value)]
        if rows[-1].version != expected:
            raise Conflict(value.name, expected, rows[-1].version)
        rows.append(value)

    async def remove(self, tenant: str, definition_id: str) -> bool:
        return self._rows.pop((tenant, definition_id), None) is not None

    async def get(self, tenant: str, id_or_name: str) -> T | None:
        for (whose, definition_id), rows in self._rows.items():
            if whose == tenant and id_or_name in (definition_id, rows[-1].name):
                return rows[-1]
        return None

    async def version(self, tenant: str, definition_id: str, version: int) -> T | None:
        return next((row for row in self._rows[tenant, definition_id] if row.version == version), None)

    async def list(self, tenant: str) -> Sequence[T]:
        return sorted((rows[-1] for (whose, _), rows in self._rows.items() if whose == tenant), key=lambda v: v.name)

    async def versions(self, tenant: str, definition_id: str, *, limit: int, before: int) -> Sequence[T]:
        rows = [row for row in self._rows[tenant, definition_id] if not before or row.version < before]
        return rows[::-1][:limit]


@dataclass
class Catalogue(FakeCatalogue):
    """The model `m1`, and `own-1`, which is ann's."""

    def get_for(self, model_id: str, principal: Principal) -> ModelInfo:
        if model_id == "m1" or (model_id == "own-1" and principal.user == "ann"):
            return self.get(model_id)
        raise ModelNotFound(model_id)

    def list_for(self, principal: Principal) -> tuple[ModelInfo, ...]:
        return self.list()


@dataclass
class World:
    """What agents are checked against."""

    policy_problems: list[FieldViolation] = field(default_factory=list)

    async def check_policies(self, principal: Principal, bindings: Sequence[ToolBinding]) -> Sequence[FieldViolation]:
        return self.policy_problems

    async def source_names(self, principal: Principal) -> frozenset[str]:
        return frozenset({"handbook", "s1"} | ({"diary"} if principal.user == "ann" else set()))

    async def known(self, principal: Principal) -> Tools:
        names = ("search", "run_code", "current_time", "ask_user", "crm__find")
        return Tools(
            schemas=dict.fromkeys(names, b'{"type":"object"}'),
            withheld={"erp__*": "it does not answer"},
            asking=("ask_user",),
        )


@dataclass
class Bench:
    agents: Agents
    world: World
    clock: FakeClock


@pytest.fixture
def bench() -> Bench:
    world, clock, prompts = World(), FakeClock(), Prompts()
    operators = PromptDirectory([Prompt(prompt_id="house", name="house", template="House.", shared=True)])
    around = Surroundings(
        agents=MemoryStore(AGENTS),
        prompts=MemoryStore(PROMPTS),
        catalogue=Catalogue(),
        policies=world,
        sources=world,
        tools=world,
        clock=clock,
        ids=SequentialIds(),
    )
    return Bench(compose_agents(AgentDirectory([]), operators, prompts, around), world, clock)


def agent(name: str = "finance", **changes: Any) -> Agent:
    return replace(Agent(agent_id="", name=name, read_only=False, version=0), **changes)


def prompt(name: str = "polite", template: str = "Be polite.", **changes: Any) -> Prompt:
    return replace(Prompt(prompt_id="", name=name, template=template, read_only=False, version=0), **changes)


# --- who and which ----------------------------------------------------------------------------------------------------


async def test_an_agent_is_its_owners_until_it_is_shared(bench: Bench) -> None:
    keeper = bench.agents.agents
    made = await keeper.create(ANN, agent(owner="eve", agent_id="chosen", version=9, read_only=True))
    assert (made.agent_id, made.owner, made.version, made.read_only) == ("agent-id-1", "ann", 1, False)
    assert made.updated_at == bench.clock.now()
    for other in (BOB, READER, EVE):
        with pytest.raises(AgentNotFound):
            await keeper.get(other, "finance")
        assert "finance" not in [a.name for a in await keeper.list(other)]
    shared = await keeper.update(ANN, "finance", replace(made, shared=True))
    assert await keeper.get(BOB, made.agent_id) == shared
    assert [a.name for a in await keeper.list(READER)] == ["assistant", "classic", "research", "finance"]
    with pytest.raises(AgentNotFound):
        await keeper.get(EVE, "finance")


async def test_writing_needs_the_scope_and_ownership(bench: Bench) -> None:
    keeper = bench.agents.agents
    with pytest.raises(PermissionDenied, match="agents:write"):
        await keeper.create(READER, agent())
    await keeper.create(ANN, agent(shared=True))
    for change in (keeper.update(BOB, "finance", agent()), keeper.delete(BOB, "finance")):
        with pytest.raises(PermissionDenied, match="'finance' is ann's"):
            await change
    changed = await keeper.update(ADMIN, "finance", agent(description="Mended."))
    assert (changed.owner, changed.version) == ("ann", 2)
    await keeper.delete(ADMIN, "finance")
    with pytest.raises(AgentNotFound):
        await keeper.delete(ANN, "finance")


async def test_versions_are_kept_and_read_one_by_one(bench: Bench) -> None:
    keeper = bench.agents.agents
    await keeper.create(ANN, agent())
    await keeper.update(ANN, "finance", agent(description="Second.", version=1))
    assert (await keeper.get(ANN, "finance")).version == 2
    assert (await keeper.get(ANN, "finance", 1)).description == ""
    assert [a.version for a in await keeper.versions(ANN, "finance", limit=9, before=0)] == [2, 1]
    with pytest.raises(AgentNotFound, match="no version 7; its newest is 2"):
        await keeper.get(ANN, "finance", 7)
    with pytest.raises(Conflict):
        await keeper.update(ANN, "finance", agent(description="Lost.", version=1))
    same = await keeper.update(ANN, "finance", agent(description="Second.", version=2))
    assert same.version == 2


async def test_the_operators_are_read_only_and_their_names_taken(bench: Bench) -> None:
    keeper = bench.agents.agents
    with pytest.raises(NameTaken, match="an agent called 'assistant'"):
        await keeper.create(ANN, agent("assistant"))
    for change in (keeper.update(ADMIN, "classic", agent()), keeper.delete(ADMIN, "classic")):
        with pytest.raises(ReadOnly, match=r"proctor\.toml"):
            await change
    assert [a.name for a in await keeper.versions(ANN, "classic", limit=9, before=0)] == ["classic"]
    await keeper.create(ANN, agent())
    with pytest.raises(NameTaken):
        await keeper.create(BOB, agent())
    await keeper.create(EVE, agent())
    await keeper.create(BOB, agent("other"))
    with pytest.raises(NameTaken):
        await keeper.update(BOB, "other", agent("finance"))


async def test_a_check_alone_keeps_nothing(bench: Bench) -> None:
    keeper = bench.agents.agents
    shown = await keeper.create(ANN, agent(), validate_only=True)
    assert (shown.agent_id, shown.owner) == ("", "ann")
    with pytest.raises(AgentNotFound):
        await keeper.get(ANN, "finance")
    await keeper.create(ANN, agent())
    await keeper.update(ANN, "finance", agent(description="Perhaps."), validate_only=True)
    assert (await keeper.get(ANN, "finance")).version == 1


# --- what is checked --------------------------------------------------------------------------------------------------

WORKFLOW = """
nodes:
  begin: {type: start, next: find}
  find: {type: tool, tool: search, arguments: {query: "{{ input }}"}, next: done}
  done: {type: end, output: "{{ nodes.find.text }}"}
"""


def workflow(text: str) -> Agent:
    return agent("flow", type=AgentType.WORKFLOW, workflow_yaml=text)


WRONG = [
    (agent(""), "agent.name", "give it a name"),
    (agent("a/b"), "agent.name", "is no name"),
    (agent("inline"), "agent.name", "reserved"),
    (agent("agent-" + "0" * 32), "agent.name", "reserved"),
    (agent(model="gpt-0"), "agent.model", "gpt-0"),
    (agent(model="own-2"), "agent.model", "own-2"),
    (agent(prompt="{{ secrets }}"), "agent.prompt", "unknown variables ['secrets']"),
    (agent(prompt="{% if %}"), "agent.prompt", "not a valid template"),
    (
        agent(prompt='{{ tool("serch") }}'),
        "agent.prompt",
        "'serch', which it does not have or people answer; there are: search",
    ),
    (agent(prompt='{{ tool("ask_user") }}'), "agent.prompt", "'ask_user', which it does not have"),
    (agent(prompt='{{ tool("search", query=tools) }}'), "agent.prompt", "not known before it runs"),
    (agent(prompt="{{ tool }}"), "agent.prompt", "otherwise than by a call"),
    (agent(prompt="x", prompt_name="house"), "agent.prompt_name", "not both"),
    (agent(prompt_name="nobody"), "agent.prompt_name", "there is no prompt 'nobody'"),
    (agent(prompt_name="house", prompt_version=7), "agent.prompt_name", "of version 7"),
    (agent(prompt_version=1), "agent.prompt_version", "goes with prompt_name"),
    (agent(sources=(SourceBinding(source="handbok"),)), "agent.sources[0].source", "there are: handbook"),
    (
        agent(sources=(SourceBinding(source="s1"), SourceBinding(source="s1"))),
        "agent.sources[1].source",
        "stands twice",
    ),
    (agent(tools=(ToolBinding(tool="serch"),)), "agent.tools[0].tool", "no tool 'serch'; there are: search"),
    (agent(tools=(ToolBinding(tool="hr__*"),)), "agent.tools[0].tool", "no tool 'hr__*'"),
    (
        agent(tools=(ToolBinding(tool="search", deadline=timedelta()),)),
        "agent.tools[0].deadline",
        "longer than 0",
    ),
    (agent(budget=Budget(wall_time=timedelta())), "agent.budget.wall_time", "longer than 0"),
    (agent(budget=Budget(rounds=0)), "agent.budget.rounds", "at least 1"),
    (agent(output=OutputFormat(json_schema=b'{"type":"thing"}')), "agent.output.json_schema", "not a JSON Schema"),
    (agent(language="Klingon speech"), "agent.language", "no language tag"),
    (agent(router_json=b'{"labels":{}}'), "agent.router_json", "topic"),
    (agent(type=AgentType.WORKFLOW), "agent.workflow_yaml", "needs a workflow"),
    (workflow(WORKFLOW.replace("done:", "end:")), "agent.workflow_yaml.nodes.find", "done"),
    (
        workflow(
            WORKFLOW.replace("next: find", "next: pick")
            + "  pick: {type: condition, branches: [{when: statt.x > 1, next: find}], else: find}"
        ),
        "agent.workflow_yaml.nodes.pick.branches[0].when",
        "statt",
    ),
    (agent(workflow_yaml=WORKFLOW), "agent.workflow_yaml", "type workflow only"),
]


@pytest.mark.parametrize(("wrong", "where", "why"), WRONG, ids=[f"{where}: {why}" for _, where, why in WRONG])
async def test_what_cannot_serve_is_refused_by_field(bench: Bench, wrong: Agent, where: str, why: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await bench.agents.agents.create(ANN, wrong)
    (violation,) = refused.value.violations
    assert violation.field == where
    assert why in violation.description


async def test_every_wrong_field_is_named_at_once_with_the_policies(bench: Bench) -> None:
    bench.world.policy_problems = [FieldViolation(field="bindings[1].when", description="names 'arg'")]
    tools = (ToolBinding(tool="search"), ToolBinding(tool="run_code", policy=ToolPolicy.ASK, when="arg.x"))
    with pytest.raises(InvalidRequest) as refused:
        await bench.agents.agents.create(ANN, agent(tools=tools, model="gpt-0", language="?"))
    assert {v.field for v in refused.value.violations} == {"agent.tools[1].when", "agent.model", "agent.language"}


async def test_a_workflow_is_kept_and_names_agents_there_are(bench: Bench) -> None:
    keeper = bench.agents.agents
    made = await keeper.create(ANN, workflow(WORKFLOW))
    assert made.workflow_yaml == WORKFLOW
    calling = "nodes: {begin: {type: start, next: ask}, ask: {type: agent, agent: NAME, next: done}, done: {type: end}}"
    for name in ("finance", "flow"):
        with pytest.raises(InvalidRequest, match=f"there is no agent '{name}'"):
            await keeper.update(ANN, "flow", workflow(calling.replace("NAME", name)))
    await keeper.create(ANN, agent())
    assert (await keeper.update(ANN, "flow", workflow(calling.replace("NAME", "finance")))).version == 2


async def test_all_that_can_serve_is_kept(bench: Bench) -> None:
    made = await bench.agents.agents.create(
        ANN,
        agent(
            "财务 2",
            model="own-1",
            prompt='{{ agent }}: {{ tool("current_time") }} {{ tool("search", query=question, top=-1, tags=["a"]) }}',
            sources=(SourceBinding(source="handbook"), SourceBinding(source="s1")),
            tools=tuple(ToolBinding(tool=tool) for tool in ("crm__*", "current_time", "erp__*", "erp__book")),
            router_json=b'{"labels":{"topic":["Why?"]}}',
            language="zh-Hant-TW",
        ),
    )
    assert made.name == "财务 2"


async def test_an_admin_keeps_the_owners_model_without_being_able_to_choose_it(bench: Bench) -> None:
    keeper = bench.agents.agents
    await keeper.create(ANN, agent(model="own-1"))
    changed = await keeper.update(ADMIN, "finance", agent(model="own-1", description="Mended."))
    assert changed.model == "own-1"
    with pytest.raises(InvalidRequest, match="own-1"):
        await keeper.create(ADMIN, agent("other", model="own-1"))


async def test_an_admin_leaves_the_owners_private_sources_in_place(bench: Bench) -> None:
    keeper = bench.agents.agents
    private = (SourceBinding(source="diary"),)
    await keeper.create(ANN, agent(sources=private))
    changed = await keeper.update(ADMIN, "finance", agent(sources=private, description="Mended."))
    assert changed.sources == private
    with pytest.raises(InvalidRequest, match="no source 'diary'"):
        await keeper.create(ADMIN, agent("other", sources=private))


# --- prompts ----------------------------------------------------------------------------------------------------------


async def test_a_run_reads_the_prompt_its_agent_refers_to(bench: Bench) -> None:
    prompts, agents, roster = bench.agents.prompts, bench.agents.agents, bench.agents.roster
    await prompts.create(ANN, prompt(template="One."))
    await agents.create(ANN, agent(prompt_name="polite", shared=True))
    await agents.create(ANN, agent("pinned", prompt_name="polite", prompt_version=1))
    await prompts.update(ANN, "polite", prompt(template="Two.", version=1))
    for who, name, read in ((ANN, "finance", ("Two.", 2)), (BOB, "finance", ("Two.", 2)), (ANN, "pinned", ("One.", 1))):
        given = await roster.get(who, name)
        assert (given.prompt, given.prompt_version, given.prompt_name) == (*read, "polite")


async def test_a_prompt_of_another_is_not_read(bench: Bench) -> None:
    await bench.agents.prompts.create(ANN, prompt())
    with pytest.raises(InvalidRequest, match="there is no prompt 'polite'"):
        await bench.agents.agents.create(BOB, agent(prompt_name="polite"))
    with pytest.raises(PromptNotFound):
        await bench.agents.roster.inline(BOB, agent(prompt_name="polite"))
    assert (await bench.agents.roster.inline(ANN, agent("", prompt_name="polite"))).prompt == "Be polite."
    assert (await bench.agents.roster.inline(BOB, agent("", prompt_name="house"))).prompt == "House."
    await bench.agents.prompts.update(ANN, "polite", prompt(shared=True))
    assert (await bench.agents.agents.create(BOB, agent(prompt_name="polite"))).owner == "bob"


async def test_a_prompt_in_use_keeps_its_name_and_stays(bench: Bench) -> None:
    prompts = bench.agents.prompts
    await prompts.create(ANN, prompt())
    await bench.agents.agents.create(ANN, agent(prompt_name="polite"))
    with pytest.raises(InUse, match="finance"):
        await prompts.delete(ANN, "polite")
    with pytest.raises(InvalidRequest, match="keep the name"):
        await prompts.update(ANN, "polite", prompt("rude"))
    await bench.agents.agents.delete(ANN, "finance")
    await prompts.delete(ANN, "polite")


async def test_a_prompt_is_checked_as_an_agents_own_is(bench: Bench) -> None:
    for template, why in (
        ("", "is empty"),
        ("{{ nope }}", "nope"),
        ('{{ tool("nope") }}', "'nope', which it does not have"),
    ):
        with pytest.raises(InvalidRequest, match=why) as refused:
            await bench.agents.prompts.create(ANN, prompt(template=template))
        assert refused.value.violations[0].field == "prompt.template"
    with pytest.raises(ReadOnly):
        await bench.agents.prompts.update(ADMIN, "house", prompt("house"))
