"""What waits for a person, live; and who decided what, checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Column, Table

from services.cli.gateway import Gateway
from services.cli.show import plain

# Settled requests that stay in view beside those that wait.
SETTLED_SHOWN = 10
_STATE_PREFIX = "APPROVAL_STATE_"


def approval_row(approval: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    """Return id, state, tool, who asks and why, safe for a terminal."""
    texts = (approval["tool"], approval["requested_by"], approval["reason"])
    tool, asker, reason = (escape(plain(text)) for text in texts)
    return approval["approval_id"], str(approval["state"]).removeprefix(_STATE_PREFIX).lower(), tool, asker, reason


def watch_approvals(gateway: Gateway, console: Console) -> None:
    """Follow the stream of approvals: a live table in a terminal, a line for each change elsewhere."""
    events = gateway.stream("GET", "/v1/approvals/stream")
    changes = (json.loads(event.data) for event in events if event.data)
    if not console.is_terminal:
        for approval in changes:
            console.print(" · ".join(approval_row(approval)), highlight=False)
        return
    known: dict[str, Mapping[str, Any]] = {}
    with Live(approvals_table(()), console=console, auto_refresh=False) as live:
        for approval in changes:
            known.pop(approval["approval_id"], None)
            known[approval["approval_id"]] = approval
            live.update(approvals_table(known.values()), refresh=True)


def approvals_table(approvals: Iterable[Mapping[str, Any]]) -> Table:
    """Return a table of all that waits and of what was settled last."""
    rows = [approval_row(approval) for approval in approvals]
    waiting = [row for row in rows if row[1] == "pending"]
    settled = [row for row in rows if row[1] != "pending"][-SETTLED_SHOWN:]
    table = Table(
        *(Column(name, overflow="fold") for name in ("approval", "state", "tool", "asked by", "reason")),
        title=f"{len(waiting)} waiting",
    )
    for row in waiting:
        table.add_row(*row, style="bold")
    for row in settled:
        table.add_row(*row, style="dim")
    return table


def show_audit(gateway: Gateway, console: Console) -> None:
    """Print the log, oldest first."""
    table = Table("at", "who", "did", "to", Column("hash", max_width=12, no_wrap=True))
    for entry in gateway.pages("/v1/audit", "entries"):
        texts = (entry["at"], entry["actor"], entry["action"], entry["subject"], entry["hash"])
        table.add_row(*(escape(plain(str(text))) for text in texts))
    console.print(table)


def verify_audit(gateway: Gateway, console: Console) -> bool:
    """Say whether the chain holds, and its head, which is worth noting elsewhere."""
    verdict = gateway.request("GET", "/v1/audit/verify")
    if verdict["intact"]:
        console.print(f"intact: {verdict['entries']} entries, head {verdict['head_hash'] or '-'}", highlight=False)
        return True
    console.print(f"[red]broken at entry {verdict['broken_at']}: {escape(plain(verdict['problem']))}[/]")
    return False


def export_audit(gateway: Gateway, path: Path) -> int:
    """Write the log as JSON lines and return how many entries it has."""
    lines = gateway.lines("/v1/audit/export")
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(line + "\n")
            count += 1
    return count
