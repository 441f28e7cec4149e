"""Golden transcripts: the events of a run as text that a person can read, compared with a file that is checked in.

    events = await ask(running, "Why?", agent_id="classic")
    assert_golden(GOLDEN / "classic.txt", transcript(events))

What differs from run to run is replaced: ids by their order of appearance (`<id 1>`), times, durations, addresses and
scores by their kind. Neighbouring deltas of one call are joined, since how text is batched depends on the clock.
`PROCTOR_WRITE_GOLDEN=1` writes the files anew; read the difference before it is committed.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

WRITE = "PROCTOR_WRITE_GOLDEN"
_TEXTS = frozenset({"text", "arguments_fragment"})
_JOINED = frozenset({"answer_delta", "thinking_delta", "tool_call_delta", "tool_call_progress"})
_ID = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{32}|call_[0-9a-f]{24}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")
_VOLATILE = (
    (re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?Z"), "<time>"),
    (re.compile(r'"-?\d+(?:\.\d+)?s"'), '"<duration>"'),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r'"score": -?\d+(?:\.\d+)?(?:e-?\d+)?'), '"score": "<score>"'),
)


def transcript(events: Iterable[Mapping[str, Any]], *, by_step: bool = False) -> str:
    """Return the events as text, one block each, with what differs from run to run replaced.

    `by_step` lists the events of each step apart, in the order of the steps' ids: for steps that work side by side.
    """
    told = _joined(events)
    if not by_step:
        return _normal("\n".join(_block(event) for event in told) + "\n")
    steps = sorted({str(event.get("step_id", "")) for event in told})
    parts = []
    for step in steps:
        blocks = [_block(event) for event in told if str(event.get("step_id", "")) == step]
        parts.append("\n".join([f"== {step or 'run'}", *blocks]))
    return _normal("\n\n".join(parts) + "\n")


def assert_golden(file: Path, text: str) -> None:
    """Fail with the difference when `text` is not what `file` holds; write it instead when that is asked for."""
    if os.environ.get(WRITE):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert file.is_file(), f"{file} does not exist; run the test with {WRITE}=1 to write it, then read it"
    expected = file.read_text(encoding="utf-8")
    difference = difflib.unified_diff(expected.splitlines(), text.splitlines(), str(file), "this run", lineterm="")
    assert text == expected, "\n".join(difference)


def _joined(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    for event in events:
        kind = event["kind"]
        content = dict(event.get(kind) or {})
        earlier = _earlier(told, kind, event.get("step_id", ""), content) if kind in _JOINED else None
        if earlier is not None:
            for name in _TEXTS & content.keys():
                earlier[name] += content[name]
            continue
        told.append({"kind": kind, "step_id": event.get("step_id", ""), "content": content})
    return told


def _earlier(told: list[dict[str, Any]], kind: str, step_id: str, content: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the content that a delta goes on from. The stage "answering" may come before or after the second delta."""
    for event in reversed(told):
        if event["step_id"] != step_id or event["kind"] == "stage_changed":
            continue
        last: dict[str, Any] = event["content"]
        same = all(last.get(name) == value for name, value in content.items() if name not in _TEXTS)
        return last if event["kind"] == kind and same else None
    return None


def _block(event: Mapping[str, Any]) -> str:
    step = f" ({event['step_id']})" if event["step_id"] else ""
    lines = [f"{event['kind']}{step}"]
    for name, value in event["content"].items():
        if value in ("", 0, None, False, [], {}):  # defaults say nothing
            continue
        lines.append(f"    {json.dumps(name)}: {json.dumps(value, ensure_ascii=False, sort_keys=True)}")
    return "\n".join(lines)


def _normal(text: str) -> str:
    numbers: dict[str, str] = {}
    text = _ID.sub(lambda found: numbers.setdefault(found.group(), f"<id {len(numbers) + 1}>"), text)
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    return text
