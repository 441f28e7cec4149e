"""Putting masks in the place of personal data, in a whole text, in a stream, in JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from typing import Any

from services.chassis.canonical import canonical_json
from services.orchestrator.guardrails.ports import Checked, Stage
from services.orchestrator.guardrails.recognisers import Kind, find, settled


class Redaction:
    """Hides the data of some kinds. It is exact and needs nobody, so it never fails."""

    def __init__(self, kinds: Collection[Kind]) -> None:
        self.kinds = tuple(kinds)

    async def judge(self, text: str, stage: Stage, tenant: str) -> Checked:
        """Return the text with masks."""
        hidden: Counter[Kind] = Counter()
        return Checked(text=redact(text, self.kinds, hidden), changes=told(hidden))


def redact(text: str, kinds: Collection[Kind], hidden: Counter[Kind]) -> str:
    """Return `text` with masks, and count what is hidden."""
    stream = StreamRedactor(kinds, hidden)
    return stream.feed(text) + stream.end()


class StreamRedactor:
    """Redacts a text that comes in pieces: what it gives out is what redacting the whole text would give.

    It holds back only what could still become a match, at most `recognisers.REACH` characters.
    """

    def __init__(self, kinds: Collection[Kind], hidden: Counter[Kind] | None = None) -> None:
        self._kinds = tuple(kinds)
        self._held = ""
        # The character before what is held: a match must not begin in the middle of a word.
        self._before = ""
        self.hidden = Counter() if hidden is None else hidden

    def feed(self, piece: str) -> str:
        """Take a piece and return what can be shown now, perhaps nothing."""
        if not self._kinds:
            return piece
        self._held += piece
        return self._take(settled(self._held))

    def end(self) -> str:
        """Return what is held back; another piece may follow, as after a call between two texts."""
        return self._take(len(self._held))

    def _take(self, until: int) -> str:
        if not until:
            return ""
        text, lead = self._before + self._held, len(self._before)
        shown: list[str] = []
        position, limit = lead, lead + until
        for span in find(text, self._kinds, lead):
            if span.start >= limit:
                break
            shown += (text[position : span.start], span.kind.mask)
            self.hidden[span.kind] += 1
            position = span.end
        if position < limit:
            shown.append(text[position:limit])
            position = limit
        self._before, self._held = text[position - 1 : position], text[position:]
        return "".join(shown)


def redact_json(value_json: bytes, kinds: Collection[Kind], hidden: Counter[Kind]) -> bytes:
    """Return a JSON value with masks in its strings; a number that is personal data becomes a string."""
    return canonical_json(_redacted(json.loads(value_json), kinds, hidden)) if value_json else value_json


def told(hidden: Counter[Kind]) -> tuple[str, ...]:
    """Return what was hidden, in words."""
    return tuple(f"{kind.mask} ×{count}" for kind, count in sorted(hidden.items(), key=lambda each: each[0].value))


def _redacted(value: Any, kinds: Collection[Kind], hidden: Counter[Kind]) -> Any:
    match value:
        case str():
            return redact(value, kinds, hidden)
        case list():
            return [_redacted(item, kinds, hidden) for item in value]
        case dict():
            return {key: _redacted(item, kinds, hidden) for key, item in value.items()}
        case int() if not isinstance(value, bool):
            shown = redact(str(value), kinds, hidden)
            return value if shown == str(value) else shown
    return value
