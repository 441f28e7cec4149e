"""What agents keep about you: seen and erased."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from services.cli.gateway import Gateway, open_gateway
from services.cli.show import plain

memories = typer.Typer(help="See what agents keep about you, and erase it.")


@memories.callback(invoke_without_command=True)
def main(context: typer.Context) -> None:
    """List what is kept, the newest first."""
    if context.invoked_subcommand is None:
        show_memories(open_gateway(), Console())


@memories.command("list")
def list_memories() -> None:
    """List what is kept, the newest first."""
    show_memories(open_gateway(), Console())


@memories.command()
def forget(
    memory_id: Annotated[str, typer.Argument(help="Id of a memory; left out with --all.")] = "",
    *,
    everything: Annotated[bool, typer.Option("--all", help="Erase everything that is kept.")] = False,
) -> None:
    """Erase one memory, or with --all everything, for good."""
    if bool(memory_id) == everything:
        raise typer.BadParameter("name one memory, or say --all")
    gateway, console = open_gateway(), Console()
    if everything:
        deleted = gateway.request("DELETE", "/v1/memories").get("deleted", 0)
        console.print(f"erased {deleted}", highlight=False)
        return
    gateway.request("DELETE", f"/v1/memories/{memory_id}")
    console.print(f"erased {escape(memory_id)}", highlight=False)


def show_memories(gateway: Gateway, console: Console) -> None:
    """Print the list."""
    rows: list[dict[str, Any]] = list(gateway.pages("/v1/memories", "memories"))
    if not rows:
        console.print("nothing is kept about you")
        return
    table = Table("memory", "kept", Column("what", overflow="fold"))
    for row in rows:
        table.add_row(row["memory_id"], str(row["created_at"])[:10], escape(plain(row["text"])))
    console.print(table)
