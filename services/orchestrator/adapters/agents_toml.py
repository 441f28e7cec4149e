"""The operator's agents: `[agents.NAME]` tables of proctor.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from services.orchestrator.agents.prompt import Prompts
from services.orchestrator.domain.agent import Agent, AgentType, Exposure, SourceBinding, ToolBinding, ToolPolicy
from services.orchestrator.domain.messages import Budget, Sampling
from services.orchestrator.routing.config import router_json


class AgentsInvalid(ValueError):
    """The file's agents are wrong; the message names the agent, the key and the remedy."""


_KEYS = frozenset(
    {
        "type",
        "description",
        "model",
        "prompt",
        "sources",
        "tools",
        "budget",
        "sampling",
        "language",
        "router",
        "version",
    }
)


def load_agents(path: Path, prompts: Prompts) -> tuple[Agent, ...]:
    """Return the agents of `path`, none when the file does not exist; raise AgentsInvalid for the first wrong one."""
    if not path.is_file():
        return ()
    tables = tomllib.loads(path.read_text(encoding="utf-8")).get("agents", {})
    return tuple(_agent(name, table, prompts) for name, table in tables.items())


def _agent(name: str, table: Mapping[str, Any], prompts: Prompts) -> Agent:
    if unknown := sorted(set(table) - _KEYS):
        raise AgentsInvalid(f"agent '{name}': unknown keys {unknown}; known are {sorted(_KEYS)}")
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
            language=table.get("language", ""),
            router_json=router_json(table["router"]) if "router" in table else b"",
            version=table.get("version", 1),
        )
    except (KeyError, TypeError, ValueError) as error:
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
    )


def _budget(table: Mapping[str, Any]) -> Budget:
    values = dict(table)
    if "wall_time_seconds" in values:
        values["wall_time"] = timedelta(seconds=values.pop("wall_time_seconds"))
    return Budget(**values)
