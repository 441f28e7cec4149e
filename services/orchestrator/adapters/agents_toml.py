"""The operator's agents and prompts: `[agents.NAME]` and `[prompts.NAME]` tables of proctor.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from services.chassis.canonical import canonical_json
from services.orchestrator.agents.directory import built_in
from services.orchestrator.agents.prompt import Prompts
from services.orchestrator.agents.templates import PromptInvalid
from services.orchestrator.checks import check_schema
from services.orchestrator.domain.agent import (
    Agent,
    AgentType,
    Exposure,
    Prompt,
    Searching,
    SourceBinding,
    ToolBinding,
    ToolPolicy,
)
from services.orchestrator.domain.messages import Budget, OutputFormat, Sampling
from services.orchestrator.routing.config import router_json
from services.orchestrator.workflow.validate import checked, unknown_tools, validate


class AgentsInvalid(ValueError):
    """The file's agents are wrong; the message names the agent, the key and the remedy."""


_KEYS = frozenset(
    {
        "type",
        "description",
        "model",
        "output",
        "prompt",
        "prompt_name",
        "sources",
        "tools",
        "budget",
        "sampling",
        "searching",
        "language",
        "router",
        "version",
        "workflow",
    }
)
_PROMPT_KEYS = frozenset({"template", "description", "version"})


def load_agents(path: Path, prompts: Prompts) -> tuple[Agent, ...]:
    """Return the agents of `path`, none when the file does not exist; raise AgentsInvalid for the first wrong one."""
    known = {prompt.name for prompt in load_prompts(path, prompts)}
    tables = _tables(path, "agents")
    names = {*tables, *(agent.name for agent in built_in())}
    agents = tuple(
        _agent(name, _with_workflow(name, table, path.parent, names), prompts) for name, table in tables.items()
    )
    for agent in agents:
        if agent.prompt_name and agent.prompt_name not in known:
            raise AgentsInvalid(
                f"agent '{agent.name}': there is no [prompts.{agent.prompt_name}]; the file has {sorted(known)}"
            )
    return agents


def _with_workflow(name: str, table: Mapping[str, Any], folder: Path, agents: Collection[str]) -> Mapping[str, Any]:
    """Return the table with the text of its workflow in place of the file's name, which is relative to `folder`."""
    if "workflow" not in table:
        if table.get("type") == "workflow":
            raise AgentsInvalid(f"agent '{name}': an agent of type workflow needs workflow = \"FILE.yaml\"")
        return table
    file = folder / str(table["workflow"])
    if table.get("type", "workflow") != "workflow":
        raise AgentsInvalid(f"agent '{name}': it has a workflow, so its type is workflow, not {table['type']}")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AgentsInvalid(f"agent '{name}': its workflow '{file}' cannot be read: {error}") from error
    if problems := validate(text, agents=agents):
        said = "\n".join(f"  {problem}" for problem in problems)
        raise AgentsInvalid(f"agent '{name}': the workflow '{file}' is not valid:\n{said}")
    return {**table, "type": "workflow", "workflow": text}


def check_workflow_tools(agents: Iterable[Agent], tools: Mapping[str, bytes]) -> None:
    """Raise AgentsInvalid for a workflow that names a tool of the suite's which there is not; `tools` are the suite's.

    Workflows are tools themselves.
    """
    workflows = {agent.name: checked(agent.workflow_yaml) for agent in agents if agent.type is AgentType.WORKFLOW}
    known = {**{name: canonical_json(dict(one.parameters)) for name, one in workflows.items()}, **tools}
    for name, workflow in workflows.items():
        if problems := unknown_tools(workflow, known):
            said = "\n".join(f"  {problem}" for problem in problems)
            raise AgentsInvalid(f"agent '{name}': its workflow is not valid:\n{said}")


def load_prompts(path: Path, prompts: Prompts) -> tuple[Prompt, ...]:
    """Return the prompts of `path`, none when the file does not exist; raise AgentsInvalid for the first wrong one."""
    return tuple(_prompt(name, table, prompts) for name, table in _tables(path, "prompts").items())


def _tables(path: Path, kind: str) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    tables: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")).get(kind, {})
    return tables


def _prompt(name: str, table: Mapping[str, Any], prompts: Prompts) -> Prompt:
    if unknown := sorted(set(table) - _PROMPT_KEYS):
        raise AgentsInvalid(f"prompt '{name}': unknown keys {unknown}; known are {sorted(_PROMPT_KEYS)}")
    if not table.get("template"):
        raise AgentsInvalid(f"prompt '{name}': write its template")
    try:
        prompts.check(table["template"])
    except PromptInvalid as error:
        raise AgentsInvalid(f"prompt '{name}': {error.message}") from error
    return Prompt(
        prompt_id=name,
        name=name,
        template=table["template"],
        description=table.get("description", ""),
        version=table.get("version", 1),
        shared=True,
    )


def _agent(name: str, table: Mapping[str, Any], prompts: Prompts) -> Agent:
    if unknown := sorted(set(table) - _KEYS):
        raise AgentsInvalid(f"agent '{name}': unknown keys {unknown}; known are {sorted(_KEYS)}")
    if "prompt" in table and "prompt_name" in table:
        raise AgentsInvalid(f"agent '{name}': give a prompt of its own or a prompt_name, not both")
    try:
        if prompt := table.get("prompt", ""):
            prompts.check(prompt)
        return Agent(
            agent_id=name,
            name=name,
            type=AgentType[_alias(table.get("type", "agentic")).upper()],
            description=table.get("description", ""),
            model=table.get("model", ""),
            prompt=prompt,
            sources=tuple(_source(entry) for entry in table.get("sources", ())),
            tools=tuple(_tool(entry) for entry in table.get("tools", ())),
            budget=_budget(table.get("budget", {})),
            sampling=Sampling(**table.get("sampling", {})),
            searching=Searching(**table.get("searching", {})),
            output=_output(table.get("output", {})),
            language=table.get("language", ""),
            prompt_name=table.get("prompt_name", ""),
            router_json=router_json(table["router"]) if "router" in table else b"",
            version=table.get("version", 1),
            workflow_yaml=table.get("workflow", ""),
        )
    except (KeyError, TypeError, ValueError, PromptInvalid) as error:
        raise AgentsInvalid(f"agent '{name}': {error}") from error


def _alias(kind: str) -> str:
    return "classic" if kind == "react" else kind


def _source(entry: str | Mapping[str, Any]) -> SourceBinding:
    if isinstance(entry, str):
        return SourceBinding(source=entry)
    return SourceBinding(source=entry["source"], exposure=Exposure[entry.get("exposure", "default").upper()])


def _tool(entry: str | Mapping[str, Any]) -> ToolBinding:
    if isinstance(entry, str):
        return ToolBinding(tool=entry)
    seconds = entry.get("deadline_seconds")
    return ToolBinding(
        tool=entry["tool"],
        policy=ToolPolicy[entry.get("policy", "default").upper()],
        when=entry.get("when", ""),
        quorum=entry.get("quorum", 0),
        group=entry.get("group", ""),
        deadline=timedelta(seconds=seconds) if seconds is not None else None,
        four_eyes=entry.get("four_eyes", False),
    )


def _budget(table: Mapping[str, Any]) -> Budget:
    values = dict(table)
    if "wall_time_seconds" in values:
        values["wall_time"] = timedelta(seconds=values.pop("wall_time_seconds"))
    return Budget(**values)


def _output(table: Mapping[str, Any]) -> OutputFormat:
    values = dict(table)
    if "json_schema" in values:
        values["json_schema"] = canonical_json(values["json_schema"])
        if problem := check_schema(values["json_schema"]):
            raise ValueError(f"output.json_schema is not a JSON Schema: {problem}")
    return OutputFormat(**values)
