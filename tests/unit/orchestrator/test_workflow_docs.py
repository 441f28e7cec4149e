"""The cookbook and the examples are true: every workflow in them may be saved, and answers what it says there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from services.orchestrator.adapters.agents_toml import AgentsInvalid, check_workflow_tools, load_agents
from services.orchestrator.agents.prompt import Prompts
from services.orchestrator.domain.agent import AgentType
from services.orchestrator.tools.ports import ToolContext, ToolResult
from services.orchestrator.workflow.reading import read
from services.orchestrator.workflow.validate import validate
from services.orchestrator.workflow.writing import write
from tests.support.orchestrator_kit import FakeTool, answering
from tests.support.workflow_kit import workflow_bench

ROOT = Path(__file__).parents[3]
COOKBOOK = (ROOT / "docs" / "workflows.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"```yaml\n(.*?)```\n(?:\nAsked `(.*?)`, it answers `(.*?)`\.\n)?", COOKBOOK, re.DOTALL)
ANSWERED = [recipe for recipe in RECIPES if recipe[1]]
EXAMPLES = ROOT / "examples" / "workflows"
ANYTHING: dict[str, Any] = {"type": "object"}


def throwing(*eyes: int) -> FakeTool:
    left = list(eyes)

    async def work(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(text=f'{{"eyes": {left.pop(0)}}}')

    return FakeTool(name="dice", work=work, schema=ANYTHING)


async def repeating(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    return ToolResult(text=arguments["text"])


async def failing(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    return ToolResult(text="the service is down", failed=True)


def test_the_cookbook_has_recipes_with_answers() -> None:
    assert len(RECIPES) >= 9
    assert len(ANSWERED) >= 6


@pytest.mark.parametrize("text", [recipe[0] for recipe in RECIPES])
def test_every_recipe_may_be_saved(text: str) -> None:
    assert validate(text) == ()
    assert read(write(read(text))) == read(text)


@pytest.mark.parametrize(("text", "question", "answer"), ANSWERED, ids=[recipe[2][:20] for recipe in ANSWERED])
async def test_a_recipe_answers_what_the_cookbook_says(text: str, question: str, answer: str) -> None:
    run = workflow_bench(
        text,
        throwing(1, 3, 6),
        FakeTool(name="echo", work=repeating, schema=ANYTHING),
        FakeTool(name="broken", work=failing, schema=ANYTHING),
        FakeTool(name="search", work=answering("found")),
        question=question,
    )
    assert await run.answer() == answer


def test_the_examples_may_be_saved_and_come_back_from_yaml() -> None:
    agents = load_agents(EXAMPLES / "proctor.toml", Prompts())
    workflows = [agent for agent in agents if agent.type is AgentType.WORKFLOW]
    assert len(workflows) == len(list(EXAMPLES.glob("*.yaml")))
    for agent in workflows:
        assert read(write(read(agent.workflow_yaml))) == read(agent.workflow_yaml)


# --- proctor.toml -------------------------------------------------------------------------------------------------


def configured(folder: Path, workflow: str, table: str = 'workflow = "flow.yaml"') -> Path:
    (folder / "flow.yaml").write_text(workflow, encoding="utf-8")
    file = folder / "proctor.toml"
    file.write_text(f"[agents.flow]\n{table}\n", encoding="utf-8")
    return file


FLOW = "nodes: {begin: {type: start, next: call}, call: {type: tool, tool: look, next: done}, done: {type: end}}"


def test_a_workflow_stands_beside_the_operators_file(tmp_path: Path) -> None:
    (agent,) = load_agents(configured(tmp_path, FLOW), Prompts())
    assert (agent.type, agent.workflow_yaml) == (AgentType.WORKFLOW, FLOW)


@pytest.mark.parametrize(
    ("workflow", "table", "said"),
    [
        (FLOW.replace("next: call", "next: cal"), 'workflow = "flow.yaml"', "nodes.begin: leads to 'cal'"),
        (FLOW, 'workflow = "none.yaml"', "cannot be read"),
        (FLOW, 'type = "workflow"', 'needs workflow = "FILE.yaml"'),
        (FLOW, 'workflow = "flow.yaml"\ntype = "classic"', "its type is workflow, not classic"),
        (FLOW.replace("type: tool, tool: look", "type: agent, agent: nobody"), 'workflow = "flow.yaml"', "no agent"),
    ],
)
def test_a_wrong_workflow_keeps_the_suite_from_starting(tmp_path: Path, workflow: str, table: str, said: str) -> None:
    with pytest.raises(AgentsInvalid, match=re.escape(said)):
        load_agents(configured(tmp_path, workflow, table), Prompts())


def test_tools_of_the_suite_are_checked_at_the_start_and_those_of_servers_are_not(tmp_path: Path) -> None:
    agents = load_agents(configured(tmp_path, FLOW), Prompts())
    check_workflow_tools(agents, {"look": b"{}"})
    with pytest.raises(AgentsInvalid, match="there is no tool 'look'; there is 'flow', 'search'"):
        check_workflow_tools(agents, {"search": b"{}"})
    remote = load_agents(configured(tmp_path, FLOW.replace("look", "server__look")), Prompts())
    check_workflow_tools(remote, {})
