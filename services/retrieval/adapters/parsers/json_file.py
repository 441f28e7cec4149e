"""JSON and JSON lines: a block for each record, its values under their paths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.retrieval.adapters.parsers import text
from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.domain.text import Block, BlockKind, Parsed


def parse(path: Path, name: str) -> Parsed:
    """Return the records of a JSON or JSON lines file; UnreadableFile names the line that is neither."""
    if name.lower().endswith((".jsonl", ".ndjson")):
        return Parsed(media_type="application/jsonl", title="", blocks=_lines(path))
    try:
        value = json.loads(text.read(path))
    except json.JSONDecodeError as fault:
        return _as_lines(path, fault)
    return Parsed(media_type="application/json", title=_title(value), blocks=_records(value))


def _as_lines(path: Path, fault: json.JSONDecodeError) -> Parsed:
    """Return the records of JSON lines in a file named .json, or say where the JSON is broken."""
    if fault.msg != "Extra data":
        raise _broken(fault.lineno, fault) from fault
    return Parsed(media_type="application/jsonl", title="", blocks=_lines(path))


def _broken(line: int, fault: json.JSONDecodeError) -> UnreadableFile:
    return UnreadableFile("UNSUPPORTED_DOCUMENT", f"line {line} is no valid JSON: {fault.msg}")


def _lines(path: Path) -> Iterator[Block]:
    for number, line in enumerate(text.lines(path), start=1):
        if not line.strip():
            continue
        try:
            yield _record(json.loads(line))
        except json.JSONDecodeError as fault:
            raise _broken(number, fault) from fault


def _title(value: Any) -> str:
    title = value.get("title") if isinstance(value, dict) else None
    return title if isinstance(title, str) else ""


def _records(value: Any) -> Iterator[Block]:
    match value:
        case list():
            for item in value:
                yield _record(item)
        case dict():
            for key, item in value.items():
                if isinstance(item, list) and item and all(isinstance(one, dict) for one in item):
                    yield Block(text=str(key), kind=BlockKind.HEADING, level=2)
                    yield from _records(item)
                else:
                    yield _record({key: item})
        case _:
            yield _record(value)


def _record(value: Any) -> Block:
    return Block(text="\n".join(_flat(value, "")))


def _flat(value: Any, path: str) -> Iterator[str]:
    match value:
        case dict():
            for key, item in value.items():
                yield from _flat(item, f"{path}.{key}" if path else str(key))
        case list() if all(not isinstance(item, dict | list) for item in value):
            yield f"{path}: {', '.join(_plain(item) for item in value)}" if path else ", ".join(map(_plain, value))
        case list():
            for at, item in enumerate(value):
                yield from _flat(item, f"{path}[{at}]")
        case _:
            yield f"{path}: {_plain(value)}" if path else _plain(value)


def _plain(value: Any) -> str:
    return text.clean(value) if isinstance(value, str) else json.dumps(value)
