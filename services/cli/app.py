"""The commands. Each one reads its arguments, makes one call, and prints what came back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from services.cli.agents import agents, prompts
from services.cli.approvals import approval_row, export_audit, show_audit, verify_audit, watch_approvals
from services.cli.ask import Decider, ask, decide, follow
from services.cli.backup import BackupRefused, back_up
from services.cli.gateway import DEFAULT_URL, Gateway, open_gateway
from services.cli.ingest import ingest, tell
from services.cli.memories import memories
from services.cli.models import models
from services.cli.questions import Answerer
from services.cli.show import plain
from services.cli.sites import ingest_site, is_address
from services.cli.tools import tools

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
runs = typer.Typer(no_args_is_help=True, help="Look at runs.")
approvals = typer.Typer(no_args_is_help=True, help="See what waits for a person, and decide it.")
sources = typer.Typer(no_args_is_help=True, help="See sources.")
keys = typer.Typer(no_args_is_help=True, help="Keep API keys.")
app.add_typer(runs, name="runs")
app.add_typer(approvals, name="approvals")
app.add_typer(sources, name="sources")
app.add_typer(keys, name="keys")
app.add_typer(agents, name="agents")
app.add_typer(prompts, name="prompts")
app.add_typer(models, name="models")
app.add_typer(memories, name="memories")
app.add_typer(tools, name="tools")

DataDir = Annotated[Path, typer.Option(help="Folder of databases, logs and sockets.", envvar="PROCTOR_DATA_DIR")]
console = Console()


def _gateway() -> Gateway:
    return open_gateway()


@app.callback()
def proctor() -> None:
    """Answers from your documents, cites what it read, and asks before it acts."""


@app.command()
def up(
    data_dir: DataDir = Path(".proctor"),
    listen: Annotated[str, typer.Option(help="Where HTTP is served.")] = "127.0.0.1:8080",
    in_process: Annotated[bool, typer.Option("--in-process", help="One process, one event loop.")] = False,
    ingest_path: Annotated[Path | None, typer.Option("--ingest", help="Files to ingest once it serves.")] = None,
    source: Annotated[str, typer.Option(help="Source to ingest into.")] = "documents",
    question: Annotated[str, typer.Option("--ask", help="Question to ask then.")] = "",
    once: Annotated[bool, typer.Option("--once", help="Stop after the answer.")] = False,
) -> None:
    """Start the whole suite and serve until Ctrl-C."""
    # Imported here: gRPC and the services are needed by this command alone.
    from services.cli.tour import Tour
    from services.cli.up import AlreadyRunning
    from services.cli.up import up as run

    tour = Tour(console, ingest=ingest_path, source=source, question=question, once=once)
    try:
        code = run(data_dir, listen, console, tour, in_process=in_process)
    except AlreadyRunning as error:
        raise _failure(str(error)) from None
    raise typer.Exit(code)


@app.command()
def serve(name: Annotated[str, typer.Argument(help="approval, gateway, orchestrator, retrieval or sandbox")]) -> None:
    """Run one service alone, with settings from PROCTOR_<SERVICE>_<FIELD>."""
    from services.chassis.serve import main
    from services.cli.layout import NAMES

    if name not in NAMES:
        raise _failure(f"there is no service '{name}'; there are {', '.join(sorted(NAMES))}")
    main(name)


@app.command(name="ask")
def ask_command(
    question: Annotated[str, typer.Argument(help="What to ask.")],
    agent: Annotated[str, typer.Option(help="Agent id or name.")] = "",
    model: Annotated[str, typer.Option(help="Model id.")] = "",
    source: Annotated[list[str] | None, typer.Option(help="Source to answer from; may be repeated.")] = None,
    conversation: Annotated[str, typer.Option(help="Conversation to continue.")] = "",
) -> None:
    """Ask, and watch the answer being written with its sources. Asks back before anything acts."""
    gateway = _gateway()
    options = {"agent_id": agent, "model": model, "sources": source, "conversation_id": conversation}
    body = {name: value for name, value in options.items() if value}
    decider, answerer = Decider(gateway, console), Answerer(gateway, console)
    raise typer.Exit(ask(gateway, question, console, decider, answerer, **body))


@app.command(name="ingest")
def ingest_command(
    path: Annotated[str, typer.Argument(help="File, folder, or address of a web page or sitemap.")],
    source: Annotated[str, typer.Option(help="Source to ingest into; made if missing.")] = "documents",
    depth: Annotated[int, typer.Option(help="Of a web page: how many links deep to follow.", min=0, max=10)] = 0,
    pages: Annotated[int, typer.Option(help="Of a web site: most pages; 0 is 200.", min=0)] = 0,
    every: Annotated[int, typer.Option(help="Of a web site: hours until it is read again; 0 is never.", min=0)] = 0,
) -> None:
    """Bring documents into a source; the same files again change nothing, and web pages are brought up to date."""
    if is_address(path):
        body = {"url": path, "max_depth": depth, "max_pages": pages, "every_hours": every}
        result = ingest_site(_gateway(), body, source, console)
    else:
        if not Path(path).exists():
            raise _failure(f"there is no file or folder '{path}'")
        result = ingest(_gateway(), Path(path), source, console)
    tell(result, console)
    raise typer.Exit(1 if result.failed else 0)


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(help="New folder for the copy.")],
    data_dir: DataDir = Path(".proctor"),
) -> None:
    """Copy the data folder, also while the suite serves; to restore, start on the copy."""
    try:
        back_up(data_dir, target)
    except BackupRefused as error:
        raise _failure(str(error)) from None
    console.print(f"[green]✓[/] {escape(str(target))}", highlight=False)


@app.command()
def doctor(data_dir: DataDir = Path(".proctor")) -> None:
    """Say what works on this machine, and how to mend what does not."""
    from services.cli.doctor import Grade, examine

    marks = {Grade.GOOD: "[green]✓[/]", Grade.LIMITED: "[yellow]![/]", Grade.BAD: "[red]✗[/]"}
    findings = examine(os.environ, data_dir, os.environ.get("PROCTOR_URL", DEFAULT_URL))
    for finding in findings:
        console.print(f"{marks[finding.grade]} [bold]{finding.name}[/]  {escape(finding.found)}", highlight=False)
        if finding.remedy:
            console.print(f"    {escape(finding.remedy)}", style="dim", highlight=False)
    raise typer.Exit(1 if any(finding.grade is Grade.BAD for finding in findings) else 0)


@runs.command("list")
def list_runs(limit: Annotated[int, typer.Option(help="Most runs.")] = 20) -> None:
    """List your runs, newest first."""
    table = _table("run", "state", "agent", "model", "question")
    for number, run in enumerate(_gateway().pages("/v1/runs", "runs", {"page_size": min(limit, 500)})):
        if number == limit:
            break
        state = _word(run["state"], "RUN_STATE_")
        table.add_row(run["run_id"], state, run["agent_name"], run["model"], escape(plain(run["question"])))
    console.print(table)


@runs.command("show")
def show_run(run_id: Annotated[str, typer.Argument(help="Run id.")]) -> None:
    """Show a run from its first event, and follow it while it works."""
    gateway = _gateway()
    events = gateway.stream("GET", f"/v1/runs/{run_id}/events")
    raise typer.Exit(follow(gateway, events, console, None))


@approvals.command("list")
def list_approvals(
    everything: Annotated[bool, typer.Option("--all", help="Decided ones too.")] = False,
) -> None:
    """List what waits for a decision."""
    params = {} if everything else {"state": "pending"}
    table = _table("approval", "state", "tool", "asked by", "reason")
    for approval in _gateway().pages("/v1/approvals", "approvals", params):
        table.add_row(*approval_row(approval))
    console.print(table)


@approvals.command()
def allow(
    approval_id: Annotated[str, typer.Argument(help="Approval id.")],
    remember: Annotated[str, typer.Option(help="once, conversation or always")] = "once",
    comment: Annotated[str, typer.Option(help="What the model should know.")] = "",
) -> None:
    """Allow a call as asked."""
    decide(_gateway(), console, approval_id, {"decision": "approve", "remember": remember, "comment": comment})


@approvals.command()
def deny(
    approval_id: Annotated[str, typer.Argument(help="Approval id.")],
    comment: Annotated[str, typer.Option(help="What the model should know.")] = "",
) -> None:
    """Refuse a call."""
    decide(_gateway(), console, approval_id, {"decision": "deny", "comment": comment})


@approvals.command()
def watch() -> None:
    """Show requests and decisions as they come, as a live table in a terminal, until Ctrl-C."""
    watch_approvals(_gateway(), console)


@approvals.command()
def audit(
    verify: Annotated[bool, typer.Option("--verify", help="Recompute the hash chain and say where it breaks.")] = False,
    export: Annotated[Path | None, typer.Option(help="Write the log to this file as JSON lines.")] = None,
) -> None:
    """Show who decided what; the log is append-only and each entry is chained to the one before by its hash."""
    if export is not None:
        console.print(f"{export_audit(_gateway(), export)} entries written to {export}", highlight=False)
    if verify and not verify_audit(_gateway(), console):
        raise typer.Exit(1)
    if not verify and export is None:
        show_audit(_gateway(), console)


@sources.command("list")
def list_sources() -> None:
    """List the sources you may read."""
    table = _table("source", "documents", "passages", "description")
    for source in _gateway().pages("/v1/sources", "sources"):
        counts = (str(source["documents"]), str(source["passages"]))
        table.add_row(escape(source["name"]), *counts, escape(plain(source["description"])))
    console.print(table)


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    scope: Annotated[list[str] | None, typer.Option(help="runs, sources:read, …; may be repeated.")] = None,
    user: Annotated[str, typer.Option(help="Whose key it is; left out: yours.")] = "",
    tenant: Annotated[str, typer.Option(help="Tenant; only on the gateway's own machine.")] = "",
    agent: Annotated[str, typer.Option(help="Bind it to one agent and its sources.")] = "",
    days: Annotated[float, typer.Option(help="Days until it expires; 0 is never.")] = 0,
) -> None:
    """Make a key and print it, this once."""
    options = {"scopes": scope, "user": user, "tenant": tenant, "agent": agent, "lifetime": days * 86_400}
    body = {"name": name} | {field: value for field, value in options.items() if value}
    made = _gateway().request("POST", "/v1/keys", json=body)
    console.print(
        f"[dim]{made['key_id']} · {made['user']} · {' '.join(made['scopes'])} · keep it, it is not shown again[/]"
    )
    console.print(made["key"], markup=False, highlight=False, soft_wrap=True)


@keys.command("list")
def list_keys() -> None:
    """List the keys of your tenant, newest first."""
    table = _table("key", "begins", "name", "user", "scopes", "state")
    for key in _gateway().pages("/v1/keys", "keys"):
        state = "revoked" if key["revoked_at"] else f"until {key['expires_at']}" if key["expires_at"] else "valid"
        shown = (escape(plain(key["name"])), escape(plain(key["user"])), " ".join(key["scopes"]), state)
        table.add_row(key["key_id"], key["prefix"], *shown)
    console.print(table)


@keys.command("revoke")
def revoke_key(key_id: Annotated[str, typer.Argument(help="Key id.")]) -> None:
    """Revoke a key; it stops working within seconds."""
    _gateway().request("DELETE", f"/v1/keys/{key_id}")
    console.print("revoked")


def _table(first: str, *columns: str) -> Table:
    """Return a table whose first column, an id to be copied, is never cut."""
    return Table(Column(first, no_wrap=True, min_width=32), *columns, box=None, header_style="bold")


def _word(value: object, prefix: str) -> str:
    return str(value).removeprefix(prefix).lower()


def _failure(message: str) -> typer.Exit:
    Console(stderr=True).print(f"[red]{escape(message)}[/]", highlight=False, soft_wrap=True)
    return typer.Exit(1)
