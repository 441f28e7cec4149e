"""Ingesting from the web: the gateway reads the pages, their progress comes back."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn

from services.cli.gateway import Gateway, GatewayError
from services.cli.ingest import Result, ensure_source

_KEPT = {"PAGE_OUTCOME_ADDED", "PAGE_OUTCOME_CHANGED"}


def is_address(text: str) -> bool:
    """Return whether the text is a web address rather than a file."""
    return text.startswith(("http://", "https://"))


def ingest_site(gateway: Gateway, body: dict[str, Any], source: str, console: Console) -> Result:
    """Bring what `body` (the request of a sync) names into `source`; the command may be left, the sync goes on."""
    ensure_source(gateway, source)
    result = Result()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.fields[page]}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"reading into {source}", page="")
        for event in gateway.stream("POST", f"/v1/sources/{source}/sites", json=body):
            told = json.loads(event.data)
            if event.kind == "error":
                raise GatewayError(str(told.get("detail", "the sync failed")), str(told.get("reason", "")))
            if event.kind == "page":
                progress.update(task, page=escape(told["url"]))
                _count(result, told)
            elif told["message"]:
                _conclude(result, told, console)
    return result


def _count(result: Result, page: dict[str, Any]) -> None:
    outcome = page["outcome"]
    if outcome in _KEPT:
        result.ingested += 1
        result.passages += int(page["passages"])
    elif outcome == "PAGE_OUTCOME_UNCHANGED":
        result.unchanged += 1
    elif outcome == "PAGE_OUTCOME_FAILED":
        result.failed.append((page["url"], page["message"]))


def _conclude(result: Result, site: dict[str, Any], console: Console) -> None:
    if site["state"] == "SITE_STATE_FAILED":
        result.failed.append((site["url"], site["message"]))
    else:
        console.print(escape(site["message"]), style="yellow", highlight=False)
