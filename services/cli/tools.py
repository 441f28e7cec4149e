"""Tools and their servers, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from services.cli.gateway import Gateway, open_gateway
from services.cli.show import plain

tools = typer.Typer(invoke_without_command=True, help="See tools and the servers they come from.")

_CONSENTS = {
    "TOOL_CONSENT_ALLOW": "runs unasked",
    "TOOL_CONSENT_ASK": "asks",
    "TOOL_CONSENT_ASK_EVERY_CALL": "asks every time",
}
_MARKS = {
    "TOOL_SERVER_STATE_CONNECTED": "[green]✓[/]",
    "TOOL_SERVER_STATE_IDLE": "[dim]·[/]",
    "TOOL_SERVER_STATE_BROKEN": "[red]✗[/]",
}


@tools.callback()
def everything(context: typer.Context) -> None:
    """See the servers of tools, connected for that, and every tool."""
    if context.invoked_subcommand is None:
        usable = show_servers(open_gateway(), Console())
        show_tools(open_gateway(), Console())
        raise typer.Exit(0 if usable else 1)


@tools.command("list")
def list_tools() -> None:
    """List the tools that agents may have."""
    show_tools(open_gateway(), Console())


@tools.command("servers")
def list_servers() -> None:
    """Connect every MCP server and say how that went."""
    raise typer.Exit(0 if show_servers(open_gateway(), Console()) else 1)


def show_tools(gateway: Gateway, console: Console) -> None:
    """Print every tool, and what happens when an agent calls it."""
    table = Table(Column("tool", no_wrap=True), "without a policy", "title", box=None, header_style="bold")
    for tool in gateway.pages("/v1/tools", "tools"):
        title = escape(plain(tool["title"]))
        table.add_row(escape(plain(tool["name"])), _CONSENTS.get(tool["consent"], ""), title)
    console.print(table)


def show_servers(gateway: Gateway, console: Console) -> bool:
    """Connect and print every MCP server; tell whether all of them can be used."""
    servers = gateway.request("GET", "/v1/tools/servers", params={"connect": "true"})["servers"]
    if not servers:
        console.print("no MCP servers: name one under [mcp.servers] in proctor.toml", markup=False)
    for server in servers:
        console.print(server_line(server), highlight=False)
        for withheld in server["withheld"]:
            line = f"    without {plain(withheld['name'])}: {plain(withheld['reason'])}"
            console.print(escape(line), style="dim", highlight=False)
    return all(server["state"] != "TOOL_SERVER_STATE_BROKEN" for server in servers)


def server_line(server: Mapping[str, Any]) -> str:
    """Return one server's state in a line of markup."""
    told = f"{plain(server['server_name'])} {plain(server['server_version'])}".strip() or "unknown"
    what = plain(server["problem"]) or f"{told} · {len(server['tools'])} tools · protocol {server['protocol_version']}"
    mark = _MARKS.get(server["state"], "")
    return f"{mark} [bold]{escape(server['name'])}[/] ({server['transport']})  {escape(what)}"
