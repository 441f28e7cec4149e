"""Tool calls put together from the fragments in which servers send them.

OpenAI sends an index and an id first and the arguments in fragments after it. Others leave out the index or the id,
repeat the id, give every call the same one or the index 0, send calls whole, twice, or with all the text so far.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from services.chassis.canonical import canonical_json
from services.orchestrator.domain.messages import ToolCall
from services.orchestrator.models import reason
from services.orchestrator.models.ports import CallPiece


def call_id_for(model_call_id: str, attempt: int, number: int) -> str:
    """Return our id of the `number`-th call of a reply: the same for the same place, unique over runs."""
    return "call_" + hashlib.sha256(f"{model_call_id}/{attempt}/{number}".encode()).hexdigest()[:24]


@dataclass(slots=True, kw_only=True)
class _OpenCall:
    """A call under construction. `shown` is the argument text that has been passed on."""

    call_id: str
    index: int | None
    wire_id: str
    name: str = ""
    fragments: list[str] = field(default_factory=list)
    shown: str = ""

    def add(self, fragment: str, *, repeats_head: bool) -> str:
        """Take a fragment; return what of it is new to the reader."""
        if not fragment:
            return ""
        self.fragments.append(fragment)
        # A delta that repeats the head and begins with all the text so far is the text so far plus more.
        new = fragment.removeprefix(self.shown) if repeats_head and self.shown else fragment
        self.shown += new
        return new

    @property
    def complete(self) -> bool:
        """Whether the arguments so far are a whole JSON value."""
        return bool(self.shown) and _parses(self.shown)

    def arguments(self) -> str:
        """Return the argument text, however it was sent."""
        joined = "".join(self.fragments)
        if len(self.fragments) > 1 and not _parses(joined) and _parses(self.fragments[-1]):
            return self.fragments[-1]  # cumulative, or the whole call twice
        return joined


class CallAssembler:
    """Assembles the calls of one reply. `reason_names` says under which argument each tool carries its reason."""

    def __init__(self, model_call_id: str, attempt: int, reason_names: Mapping[str, str]) -> None:
        self._model_call_id = model_call_id
        self._attempt = attempt
        self._reason_names = reason_names
        self._calls: list[_OpenCall] = []

    def feed(self, deltas: Sequence[Any]) -> list[CallPiece]:
        """Take the `tool_calls` of one chunk; return what of them is new. Whatever is no call fragment is ignored."""
        pieces = []
        for delta in deltas:
            if not isinstance(delta, Mapping):
                continue
            function = delta.get("function")
            function = function if isinstance(function, Mapping) else {}
            name, fragment = _text(function.get("name")), _argument_text(function.get("arguments"))
            call = self._find(delta.get("index"), _text(delta.get("id")), name)
            fresh = not call.name and bool(name)
            repeats_head = bool(call.name) and bool(name or delta.get("id"))
            call.name = call.name or name
            new = call.add(fragment, repeats_head=repeats_head)
            if fresh or new:
                pieces.append(CallPiece(call_id=call.call_id, name=call.name, arguments_fragment=new))
        return pieces

    def finish(self) -> tuple[ToolCall, ...]:
        """Return the calls in the order in which they began; a call that never got a name is dropped."""
        return tuple(self._finished(call) for call in self._calls if call.name)

    def _find(self, index: object, wire_id: str, name: str) -> _OpenCall:
        """Return the call that a fragment belongs to, a new one if it belongs to none."""
        index = index if isinstance(index, int) else None
        for call in reversed(self._calls):
            if wire_id and call.wire_id:
                same = wire_id == call.wire_id and (index is None or call.index is None or index == call.index)
            elif index is not None:
                same = index == call.index and not (name and call.complete and not wire_id)
            elif name:
                # Neither id nor index: only the call that is still being written under this name.
                same = call is self._calls[-1] and name == call.name and not call.complete
            else:
                same = call is self._calls[-1]
            if same:
                call.wire_id = call.wire_id or wire_id
                return call
        call = _OpenCall(
            call_id=call_id_for(self._model_call_id, self._attempt, len(self._calls)), index=index, wire_id=wire_id
        )
        self._calls.append(call)
        return call

    def _finished(self, call: _OpenCall) -> ToolCall:
        return finished_call(call.call_id, call.name, call.arguments(), self._reason_names)


def finished_call(call_id: str, name: str, text: str, reason_names: Mapping[str, str]) -> ToolCall:
    """Return the call with canonical arguments and its reason apart; with the text itself when that is no object."""
    with suppress(ValueError, RecursionError):
        arguments = json.loads(text) if text.strip() else {}
        if isinstance(arguments, dict):
            rest, why = reason.take_out(arguments, reason_names.get(name, reason.NAME))
            return ToolCall(call_id=call_id, name=name, arguments_json=canonical_json(rest), reason=why)
    return ToolCall(call_id=call_id, name=name, malformed_arguments=text)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _argument_text(value: object) -> str:
    """Return an argument fragment as text; some servers send the object itself."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
