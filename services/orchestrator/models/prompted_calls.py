"""Calls in the text of a model that has no function calling: where they may begin, and what they say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from services.orchestrator.domain.messages import ToolCall, ToolSpec
from services.orchestrator.models.fragments import call_id_for, finished_call
from services.orchestrator.models.mending import mend

# Where a call may begin: a fence, a tag that some models were trained on, an object or a list of objects.
_OPENER = re.compile(r"`{1,3}|<(?:t(?:o(?:o(?:l(?:_(?:c(?:a(?:l(?:l>?)?)?)?)?)?)?)?)?)?|\{|\[")
_FENCE = re.compile(r"```[\w-]*[ \t]*\n?\s*|<tool_call>\s*")
_OBJECT = re.compile(r"\[?\s*(?:\{\s*(?:[\"'](?P<key>\w*)(?P<ended>[\"'])?)?)?")
_FENCED = re.compile(r"```[\w-]*[ \t]*\n?(.*?)(?:```|\Z)|<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_NAME_KEYS = ("tool", "tool_name", "name", "function", "action")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input", "action_input", "tool_input")
_FIRST_KEYS = frozenset({*_NAME_KEYS, *_ARGUMENT_KEYS, "tool_calls", "reason", "type", "id"})


class CallFilter:
    """Lets text through until a call may begin; `held` is what is kept back, `shown` what was let through."""

    def __init__(self, *, active: bool) -> None:
        self._active = active
        self._passed: list[str] = []
        self.held = ""

    @property
    def shown(self) -> str:
        """All text that was let through."""
        return "".join(self._passed)

    def feed(self, piece: str) -> str:
        """Return the text that certainly is no part of a call."""
        if not self._active:
            self._passed.append(piece)
            return piece
        waiting = self.held + piece
        self.held = ""
        passed = []
        position = 0
        while opener := _OPENER.search(waiting, position):
            start = opener.start()
            passed.append(waiting[position:start])
            if _may_be_call(waiting[start:]):
                self.held = waiting[start:]
                break
            position = start + 1
            passed.append(waiting[start:position])
        else:
            passed.append(waiting[position:])
        text = "".join(passed)
        self._passed.append(text)
        return text


def _may_be_call(text: str) -> bool:
    """Tell whether `text`, which begins with an opener, may grow into a call."""
    if text[0] in "`<":
        opener = _FENCE.match(text)
        if opener is None:
            return "```".startswith(text) or "<tool_call>".startswith(text)
        text = text[opener.end() :]
        if not text:
            return True
        if text[0] not in "{[":
            return False
    found = _OBJECT.match(text)
    assert found is not None
    if found.end() == len(text):
        key = found["key"] or ""
        return any(first == key if found["ended"] else first.startswith(key) for first in _FIRST_KEYS)
    return found["key"] in _FIRST_KEYS and bool(found["ended"])


def read_calls(
    text: str, tools: Sequence[ToolSpec], model_call_id: str, attempt: int, reason_names: Mapping[str, str]
) -> list[ToolCall]:
    """Return the calls that `text` makes, none when it makes none.

    JSON that is truncated, single-quoted or otherwise damaged is repaired. An object without a tool's name is no call;
    one under the key `tool` is one also when there is no such tool, so that the model can be told.
    """
    known = frozenset(tool.name for tool in tools)
    calls: list[ToolCall] = []
    for value in _values(text):
        for name, arguments in _named(value, known):
            call_id = call_id_for(model_call_id, attempt, len(calls))
            written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            calls.append(finished_call(call_id, name, written, reason_names))
    return calls


def _values(text: str) -> Iterator[Any]:
    """Yield the JSON values in fences or tags, or else the one that stands in the text."""
    if not text:
        return
    fenced = [body or tagged for body, tagged in _FENCED.findall(text)]
    for block in fenced or [text]:
        start = re.search(r"[{\[]", block)
        if start is not None:
            yield _repaired(block[start.start() :])


def _repaired(text: str) -> Any:
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except RecursionError:
        return None
    except ValueError:
        # A call that cannot be mended is none; the text stays for people to read.
        with suppress(ValueError):
            return mend(text)
        return None
    return value


def _named(value: Any, known: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """Yield (name, arguments) of each call that `value` is or holds."""
    if isinstance(value, list):
        for item in value:
            yield from _named(item, known)
        return
    if not isinstance(value, dict):
        return
    if isinstance(value.get("tool_calls"), list):
        yield from _named(value["tool_calls"], known)
        return
    function = value.get("function")
    if isinstance(function, dict):
        yield from _named(function, known)
        return
    key = next((key for key in _NAME_KEYS if isinstance(value.get(key), str)), None)
    if key is None:
        return
    arguments = next((value[key] for key in _ARGUMENT_KEYS if key in value), None)
    name = value[key]
    if name in known or (key in ("tool", "tool_name") and isinstance(arguments, dict)):
        given = {} if arguments is None else arguments
        if isinstance(given, dict) and "reason" in value and "reason" not in given:
            given = {"reason": value["reason"], **given}
        yield name, given
