"""Reasoning that a server leaves in the answer text as `<think>…</think>`."""

from __future__ import annotations

OPEN = "<think>"
CLOSE = "</think>"


class ThinkSplitter:
    """Separates thinking from text, piece by piece.

    A tag opens only where an answer begins, at its start or right after earlier thinking: further on, `<think>` is
    text. Tags may be cut across pieces; what could be the beginning of one is held back until it is decided.
    """

    def __init__(self) -> None:
        self._inside = False
        self._deciding = True
        self._held = ""

    @property
    def transparent(self) -> bool:
        """Whether all that follows is plain text."""
        return not self._inside and not self._deciding

    def feed(self, piece: str) -> tuple[str, str]:
        """Return (thinking, text) that `piece` brings, either may be empty."""
        if self.transparent:
            return "", piece
        thinking, text = "", ""
        self._held += piece
        while self._held and not self.transparent:
            if self._inside:
                found, more = self._take_thinking()
                thinking += found
            else:
                more = self._decide()
            if not more:
                return thinking, text
        text += self._held
        self._held = ""
        return thinking, text

    def finish(self) -> tuple[str, str]:
        """Return (thinking, text) that was held back when the stream ended."""
        held, self._held = self._held, ""
        return (held, "") if self._inside else ("", held)

    def _decide(self) -> bool:
        """Tell whether the held text begins thinking or an answer; False when more must come first."""
        start = self._held.lstrip()
        if start.startswith(OPEN):
            self._inside, self._held = True, start[len(OPEN) :]
            return True
        if OPEN.startswith(start):
            return False
        self._deciding = False
        return True

    def _take_thinking(self) -> tuple[str, bool]:
        """Return (thinking up to the closing tag, whether it was found)."""
        found, tag, rest = self._held.partition(CLOSE)
        if tag:
            self._inside, self._held = False, rest.lstrip()
            return found, True
        keep = next((n for n in range(len(CLOSE) - 1, 0, -1) if found.endswith(CLOSE[:n])), 0)
        self._held = found[len(found) - keep :]
        return found[: len(found) - keep], False
