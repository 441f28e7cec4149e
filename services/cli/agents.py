"""`proctor agents`: agents as the gateway keeps them, and as files."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from services.cli.gateway import open_gateway
from services.cli.show import plain

agents = typer.Typer(no_args_is_help=True, help="Keep agents.")
console = Console()
TYPE_PREFIX = "AGENT_TYPE_"


@agents.command("list")
def list_agents() -> None:
    """List the agents you may use, the operator's first."""
    table = Table(Column("agent", no_wrap=True), "type", "model", "version", "of", "description", box=None)
    table.header_style = "bold"
    for agent in open_gateway().pages("/v1/agents", "agents"):
        table.add_row(*_row(agent))
    console.print(table)


@agents.command("show")
def show_agent(agent: Annotated[str, typer.Argument(help="Agent id or name.")]) -> None:
    """Show an agent as JSON."""
    found = open_gateway().request("GET", f"/v1/agents/{agent}")["agent"]
    console.print_json(json.dumps(found, ensure_ascii=False))


def _row(agent: dict[str, Any]) -> tuple[str, ...]:
    owner = "operator" if agent["read_only"] else agent.get("owner", "")
    kind = str(agent["type"]).removeprefix(TYPE_PREFIX).lower()
    texts = (agent["name"], kind, agent["model"], str(agent["version"]), owner, agent["description"])
    name, *rest = (escape(plain(text)) for text in texts)
    return name, *rest
