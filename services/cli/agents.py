"""`proctor agents` and `proctor prompts`: what the gateway keeps, and files that are applied to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from services.cli.definitions import Definition, DefinitionInvalid, read_definitions, write_definition
from services.cli.gateway import Gateway, GatewayError, open_gateway
from services.cli.show import plain

agents = typer.Typer(no_args_is_help=True, help="Keep agents.")
prompts = typer.Typer(no_args_is_help=True, help="Keep the prompts that agents refer to.")
console = Console()
TYPE_PREFIX = "AGENT_TYPE_"

AsJson = Annotated[bool, typer.Option("--json", help="As the gateway has it.")]
Version = Annotated[int, typer.Option(help="An earlier version; 0 is the newest.")]


@agents.command("list")
def list_agents() -> None:
    """List the agents you may use, the operator's first."""
    table = Table(Column("agent", no_wrap=True), "type", "model", "version", "of", "description", box=None)
    table.header_style = "bold"
    for agent in open_gateway().pages("/v1/agents", "agents"):
        kind = str(agent["type"]).removeprefix(TYPE_PREFIX).lower()
        _add_row(table, agent["name"], kind, agent["model"], str(agent["version"]), _owner(agent), agent["description"])
    console.print(table)


@agents.command("show")
def show_agent(
    agent: Annotated[str, typer.Argument(help="Agent id or name.")], version: Version = 0, as_json: AsJson = False
) -> None:
    """Show an agent as YAML that `apply` takes."""
    _show(open_gateway(), "agent", agent, version, as_json=as_json)


@agents.command("apply")
def apply_agents(
    file: Annotated[Path, typer.Argument(help="YAML or TOML: one agent, or tables of agents and prompts.")],
    check: Annotated[bool, typer.Option("--check", help="Only say what is wrong.")] = False,
) -> None:
    """Keep the agents and prompts of a file: new ones are made, others get a new version."""
    try:
        found = read_definitions(file)
    except DefinitionInvalid as error:
        _tell_failure(str(error))
        raise typer.Exit(1) from None
    gateway = open_gateway()
    failed = [definition.name for definition in found if not apply(gateway, definition, console, check=check)]
    raise typer.Exit(1 if failed else 0)


@agents.command("delete")
def delete_agent(agent: Annotated[str, typer.Argument(help="Agent id or name.")]) -> None:
    """Delete an agent with all its versions; runs that have begun go on."""
    open_gateway().request("DELETE", _path("agent", agent))
    console.print("deleted")


@agents.command("draw")
def draw_agent(
    agent: Annotated[str, typer.Argument(help="A workflow: agent id or name, or a YAML file.")] = "",
    suite: Annotated[bool, typer.Option("--suite", help="The way of a request through the suite.")] = False,
    config: Annotated[
        Path, typer.Option(help="The operator's file.", envvar="PROCTOR_ORCHESTRATOR_CONFIG_FILE")
    ] = Path("proctor.toml"),
) -> None:
    """Print a workflow as a mermaid chart."""
    # Imported here: the orchestrator's grammar of workflows is needed by this command alone.
    from services.cli.draw import NothingToDraw, workflow_chart

    if suite == bool(agent):
        _tell_failure("name a workflow, or say --suite")
        raise typer.Exit(2)
    if suite:
        from services.cli.suite_chart import suite_chart

        typer.echo(suite_chart(), nl=False)
        return
    try:
        chart = workflow_chart(agent, config, _fetch_agent)
    except NothingToDraw as error:
        _tell_failure(str(error))
        raise typer.Exit(1) from None
    typer.echo(chart, nl=False)


@prompts.command("list")
def list_prompts() -> None:
    """List the prompts that your agents may refer to, the operator's first."""
    table = Table(Column("prompt", no_wrap=True), "version", "of", "description", box=None)
    table.header_style = "bold"
    for prompt in open_gateway().pages("/v1/prompts", "prompts"):
        _add_row(table, prompt["name"], str(prompt["version"]), _owner(prompt), prompt["description"])
    console.print(table)


@prompts.command("show")
def show_prompt(
    prompt: Annotated[str, typer.Argument(help="Prompt id or name.")], version: Version = 0, as_json: AsJson = False
) -> None:
    """Show a prompt."""
    _show(open_gateway(), "prompt", prompt, version, as_json=as_json)


@prompts.command("delete")
def delete_prompt(prompt: Annotated[str, typer.Argument(help="Prompt id or name.")]) -> None:
    """Delete a prompt that no agent refers to."""
    open_gateway().request("DELETE", _path("prompt", prompt))
    console.print("deleted")


def apply(gateway: Gateway, definition: Definition, told: Console, *, check: bool = False) -> bool:
    """Make or change one; say what became of it, or what is wrong with each field. Returns whether it is good."""
    kind, name = definition.kind, definition.name
    try:
        old = _find(gateway, kind, name)
        body = {kind: {**definition.body, "version": old["version"] if old else 0}, "validate_only": check}
        path = _path(kind, name) if old else f"/v1/{kind}s"
        kept = gateway.request("PUT" if old else "POST", path, json=body)[kind]
    except GatewayError as error:
        _tell_failure(f"{kind} '{name}': {error}", error.violations)
        return False
    if check:
        done = "is good"
    elif old is None:
        done = "made"
    else:
        done = f"version {kept['version']}" if kept["version"] != old["version"] else "unchanged"
    told.print(f"{kind} {escape(plain(name))}: {done}", highlight=False)
    return True


def _find(gateway: Gateway, kind: str, name: str) -> Mapping[str, Any] | None:
    if "/" in name:  # no path can name it; the refusal says why
        return None
    try:
        found: Mapping[str, Any] = gateway.request("GET", _path(kind, name))[kind]
    except GatewayError as error:
        if error.status != 404:
            raise
        return None
    return found


def _fetch_agent(name: str) -> dict[str, Any]:
    return dict(open_gateway().request("GET", _path("agent", name))["agent"])


def _show(gateway: Gateway, kind: str, name: str, version: int, *, as_json: bool) -> None:
    found = gateway.request("GET", _path(kind, name), params={"version": version})[kind]
    if as_json:
        console.print_json(json.dumps(found, ensure_ascii=False))
        return
    console.print(f"[dim]# {kind} of {escape(_owner(found))}, version {found['version']}[/]", highlight=False)
    console.print(plain(write_definition(found)), markup=False, highlight=False, soft_wrap=True, end="")


def _path(kind: str, name: str) -> str:
    return f"/v1/{kind}s/{quote(name, safe='')}"


def _owner(found: Mapping[str, Any]) -> str:
    if found["read_only"]:
        return "operator"
    return f"{found['owner']}, shared" if found["shared"] else str(found["owner"])


def _add_row(table: Table, *texts: str) -> None:
    table.add_row(*(escape(plain(text)) for text in texts))


def _tell_failure(message: str, violations: Mapping[str, str] | None = None) -> None:
    told = Console(stderr=True)
    if not violations:
        told.print(f"[red]{escape(plain(message))}[/]", highlight=False, soft_wrap=True)
        return
    told.print(f"[red]{escape(plain(message.split(':', maxsplit=1)[0]))} is not kept:[/]", highlight=False)
    for field, description in violations.items():
        told.print(f"  [bold]{escape(plain(field))}[/]  {escape(plain(description))}", highlight=False, soft_wrap=True)
