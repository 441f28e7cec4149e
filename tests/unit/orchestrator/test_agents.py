"""Agents as data: how sources are exposed, what prompts may say, what the operator's file may hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from services.orchestrator.adapters.agents_toml import AgentsInvalid, load_agents, load_prompts
from services.orchestrator.agents.directory import AgentDirectory
from services.orchestrator.agents.exposure import Exposed, expose
from services.orchestrator.agents.ports import AgentNotFound
from services.orchestrator.agents.prompt import PromptContext, Prompts
from services.orchestrator.agents.templates import PromptInvalid
from services.orchestrator.budget import Caps
from services.orchestrator.domain.agent import Agent, AgentType, Exposure, SourceBinding, ToolPolicy
from services.orchestrator.domain.messages import Budget

CONTEXT = PromptContext(today=datetime(2026, 1, 5, tzinfo=UTC), tools=("search", "run_code"), user="ann")


def agent(kind: AgentType, **exposures: Exposure) -> Agent:
    sources = tuple(SourceBinding(source=name, exposure=exposure) for name, exposure in exposures.items())
    return Agent(agent_id="a", name="a", type=kind, sources=sources)


@pytest.mark.parametrize(
    ("given", "exposed"),
    [
        (agent(AgentType.CLASSIC), Exposed(prefetch=(), search=None)),
        (agent(AgentType.CLASSIC, x=Exposure.DEFAULT), Exposed(prefetch=("x",), search=None)),
        (agent(AgentType.CLASSIC, x=Exposure.PREFETCH, y=Exposure.AGENTIC), Exposed(prefetch=("x",), search=("y",))),
        (agent(AgentType.CLASSIC, y=Exposure.AGENTIC), Exposed(prefetch=None, search=("y",))),
        (agent(AgentType.AGENTIC), Exposed(prefetch=None, search=())),
        (agent(AgentType.AGENTIC, x=Exposure.PREFETCH), Exposed(prefetch=None, search=("x",))),
        (agent(AgentType.AGENTIC, x=Exposure.PREFETCH, y=Exposure.AGENTIC), Exposed(prefetch=("x",), search=("y",))),
        (agent(AgentType.RESEARCH, x=Exposure.DEFAULT), Exposed(prefetch=None, search=("x",))),
    ],
)
def test_exposure_by_type_and_mark(given: Agent, exposed: Exposed) -> None:
    assert expose(given) == exposed


def test_the_default_prompt_asks_for_citations_and_the_users_language() -> None:
    text = Prompts().render(agent(AgentType.AGENTIC), CONTEXT)
    for expected in ("cite", "2026-01-05", "Search before you answer", "from sandbox computation", "user's question"):
        assert expected in text
    fixed = Prompts().render(Agent(agent_id="a", name="a", language="zh-CN"), CONTEXT)
    assert "the language with the tag zh-CN, and think in it too" in fixed


def test_a_template_cannot_reach_objects_or_unknown_names() -> None:
    prompts = Prompts()
    with pytest.raises(PromptInvalid, match="unknown variables"):
        prompts.check("{{ secrets }}")
    with pytest.raises(PromptInvalid, match="not a valid template"):
        prompts.check("{% if %}")
    hostile = Agent(agent_id="a", name="a", prompt="{{ agent.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(PromptInvalid):
        prompts.render(hostile, CONTEXT)


def test_the_directory_has_two_agents_and_names_what_there_is() -> None:
    directory = AgentDirectory([])
    assert directory.get("").name == "assistant"
    assert directory.get("react").name == "classic"
    with pytest.raises(AgentNotFound, match="assistant, classic"):
        directory.get("nobody")


def test_agents_of_the_operators_file(tmp_path: Path) -> None:
    file = tmp_path / "proctor.toml"
    file.write_text(
        """
[agents.finance]
type = "classic"
prompt = "Answer for {{ user }}."
sources = ["handbook", {source = "ledger", exposure = "agentic"}]
tools = [{tool = "run_code", policy = "deny", when = "args.code.size() > 10", deadline_seconds = 60}]
budget = {rounds = 3, wall_time_seconds = 90}
""",
        encoding="utf-8",
    )
    (finance,) = load_agents(file, Prompts())
    assert finance.type is AgentType.CLASSIC
    assert [(s.source, s.exposure.name) for s in finance.sources] == [("handbook", "DEFAULT"), ("ledger", "AGENTIC")]
    assert (finance.tools[0].policy, finance.tools[0].deadline) == (ToolPolicy.DENY, timedelta(minutes=1))
    assert finance.budget == Budget(rounds=3, wall_time=timedelta(seconds=90))
    assert load_agents(tmp_path / "missing.toml", Prompts()) == ()


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ('colour = "blue"', "colour"),
        ('type = "psychic"', "PSYCHIC"),
        ('prompt = "{{ nope }}"', "nope"),
        ('tools = [{policy = "ask"}]', "tool"),
    ],
)
def test_a_wrong_agent_is_named_with_its_key(tmp_path: Path, table: str, named: str) -> None:
    file = tmp_path / "proctor.toml"
    file.write_text(f"[agents.bad]\n{table}\n", encoding="utf-8")
    with pytest.raises(AgentsInvalid, match=f"agent 'bad'.*{named}"):
        load_agents(file, Prompts())


def test_the_operators_agents_refer_to_the_operators_prompts(tmp_path: Path) -> None:
    file = tmp_path / "proctor.toml"
    text = """
[prompts.polite]
template = "Be polite to {{ user }}."
version = 3

[agents.host]
prompt_name = "polite"
output = {json_schema = {type = "object"}}
tools = [{tool = "run_code", policy = "ask", four_eyes = true}]
"""
    file.write_text(text, encoding="utf-8")
    (polite,) = load_prompts(file, Prompts())
    assert (polite.version, polite.read_only, polite.shared) == (3, True, True)
    (host,) = load_agents(file, Prompts())
    assert (host.prompt_name, host.output.json_schema) == ("polite", b'{"type":"object"}')
    assert host.tools[0].four_eyes
    for wrong, named in (
        (text.replace("[prompts.polite]", "[prompts.rude]"), "no .prompts.polite."),
        (text.replace("{{ user }}", "{{ nope }}"), "prompt 'polite'.*nope"),
        (text.replace("version = 3", "colour = 3"), "colour"),
        (text.replace('prompt_name = "polite"', 'prompt_name = "polite"\nprompt = "x"'), "not both"),
        (text.replace('type = "object"', 'type = "thing"'), "output.json_schema"),
    ):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(AgentsInvalid, match=named):
            load_agents(file, Prompts())


def test_the_lowest_cap_counts_and_cost_has_none_by_default() -> None:
    caps = Caps(rounds=25, tool_calls=40, tokens=1000)
    resolved = caps.resolve(Budget(rounds=5, tokens=2000), Budget(rounds=9, tool_calls=1))
    assert (resolved.rounds, resolved.tool_calls, resolved.tokens, resolved.cost_micros) == (5, 1, 2000, None)
