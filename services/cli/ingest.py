"""Ingesting a folder: files go up in batches, their progress comes back."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from services.cli.gateway import Gateway, GatewayError

# One request: enough files to be quick, few enough that its progress does not fill the socket while it uploads.
BATCH_FILES = 40
BATCH_BYTES = 32 * 1024 * 1024
FINAL = {"DOCUMENT_STATE_DONE", "DOCUMENT_STATE_FAILED"}
# Searchable already; vectors follow on their own.
SEARCHABLE = FINAL | {"DOCUMENT_STATE_EMBEDDING"}


@dataclass(slots=True)
class Result:
    """What became of the files."""

    ingested: int = 0
    unchanged: int = 0
    passages: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    remarks: list[tuple[str, str]] = field(default_factory=list)


def find_files(path: Path) -> list[tuple[str, Path]]:
    """Return (name in the source, file) for a file or every visible file under a folder, sorted."""
    if path.is_file():
        return [(path.name, path)]
    files = [each for each in sorted(path.rglob("*")) if each.is_file()]
    names = [(each.relative_to(path), each) for each in files]
    return [(str(name), each) for name, each in names if not any(part.startswith(".") for part in name.parts)]


def batches(files: Sequence[tuple[str, Path]]) -> Iterator[list[tuple[str, Path]]]:
    """Yield runs of files that are small enough for one request."""
    batch: list[tuple[str, Path]] = []
    size = 0
    for name, path in files:
        length = path.stat().st_size
        if batch and (len(batch) >= BATCH_FILES or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((name, path))
        size += length
    if batch:
        yield batch


def ensure_source(gateway: Gateway, name: str) -> None:
    """Create the source unless there is one of that name."""
    try:
        gateway.request("POST", "/v1/sources", json={"name": name})
    except GatewayError as error:
        if error.reason != "SOURCE_EXISTS":
            raise


def ingest(gateway: Gateway, path: Path, source: str, console: Console) -> Result:
    """Bring every file under `path` into `source`, with a progress bar on `console`."""
    files = find_files(path)
    ensure_source(gateway, source)
    result = Result()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[file]}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"ingesting into {source}", total=len(files), file="")
        for batch in batches(files):
            for reply in _upload(gateway, source, batch):
                progress.update(task, file=escape(reply["path"]))
                progress.advance(task)
                _count(result, reply)
    return result


def _upload(gateway: Gateway, source: str, batch: Sequence[tuple[str, Path]]) -> Iterator[dict[str, Any]]:
    """Yield the last word on each file of one request."""
    last: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        parts = [
            ("file", (name, stack.enter_context(path.open("rb")), mimetypes.guess_type(path.name)[0] or ""))
            for name, path in batch
        ]
        for event in gateway.stream("POST", f"/v1/sources/{source}/documents", files=parts):
            body = json.loads(event.data)
            if event.kind == "error":
                raise GatewayError(str(body.get("detail", "the upload failed")), str(body.get("reason", "")))
            if event.kind == "progress":
                last[body["path"]] = body
    yield from last.values()


def _count(result: Result, reply: dict[str, Any]) -> None:
    if reply["state"] not in SEARCHABLE:
        result.failed.append((reply["path"], "no result came back; ingest it again"))
    elif reply["state"] == "DOCUMENT_STATE_FAILED":
        result.failed.append((reply["path"], reply["message"] or reply["reason"]))
    elif reply["unchanged"]:
        result.unchanged += 1
    else:
        result.ingested += 1
        result.passages += reply["passages"]
        if reply.get("message"):
            result.remarks.append((reply["path"], reply["message"]))


def tell(result: Result, console: Console) -> None:
    """Print the outcome, one line and one for each file that failed."""
    console.print(
        f"{result.ingested} ingested ({result.passages} passages), {result.unchanged} unchanged, "
        f"{len(result.failed)} failed",
        highlight=False,
    )
    for path, remark in result.remarks:
        console.print(f"  [yellow]{escape(path)}[/]: {escape(remark)}", highlight=False)
    for path, reason in result.failed:
        console.print(f"  [red]{escape(path)}[/]: {escape(reason)}", highlight=False)
