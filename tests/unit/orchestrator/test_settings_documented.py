"""The examples of docs/models.md, research.md and router.md are read as they stand there, and mean what is said."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

from services.orchestrator.adapters.agents_toml import load_agents
from services.orchestrator.agents.prompt import Prompts
from services.orchestrator.domain.agent import Agent, AgentType
from services.orchestrator.models.catalogue_file import read_models
from services.orchestrator.models.model_settings import ModelSettings
from services.orchestrator.routing.config import read_router

DOCS = Path(__file__).parents[3] / "docs"


def example(page: str) -> str:
    (block,) = re.findall(r"```toml\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    return str(block)


def agent_of(page: str, folder: Path) -> Agent:
    file = folder / "proctor.toml"
    file.write_text(example(page), encoding="utf-8")
    (agent,) = load_agents(file, Prompts())
    return agent


def test_the_example_of_models_is_a_catalogue_and_names_every_field(tmp_path: Path) -> None:
    file = tmp_path / "proctor.toml"
    file.write_text(example("models.md"), encoding="utf-8")
    models = {model.model_id: model for model in read_models(file, {"OPENAI_API_KEY": "k"})}
    large, local = models["large"], models["local"]
    assert (large.upstream_name, large.price.output, large.fallbacks) == ("gpt-5", 10, ("local",))
    assert local.max_tokens_parameter == "max_tokens"
    told = {key for table in tomllib.loads(example("models.md"))["models"].values() for key in table}
    # The id is the table's name, the key stands in the environment, an owner has only who brought a model by the API.
    taken = {field.name for field in fields(ModelSettings)} - {"model_id", "api_key", "owner"}
    assert told - {"key_env"} == taken


def test_the_example_of_research_is_an_agent_with_the_budget_it_names(tmp_path: Path) -> None:
    agent = agent_of("research.md", tmp_path)
    assert agent.type is AgentType.RESEARCH
    assert (agent.budget.wall_time is not None, agent.budget.tokens) == (True, 100_000)


def test_the_example_of_the_router_has_the_labels_it_explains(tmp_path: Path) -> None:
    agent = agent_of("router.md", tmp_path)
    assert set(read_router(agent.router_json).names) == {"topic", "small_talk", "calculation", "contracts"}
