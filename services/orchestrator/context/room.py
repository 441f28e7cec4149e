"""What of a conversation fits a model's window: the question first, then documents, then the newest turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from services.orchestrator.context.counting import OVERHEAD, Count, message_tokens, tools_tokens, total_tokens
from services.orchestrator.domain.messages import Message, Role, TextPart, ToolSpec
from services.orchestrator.evidence import Finding, strip_citations

UNKNOWN_WINDOW = 128_000
DEFAULT_OUTPUT = 4_096
RESERVE = 0.10
QUESTION_SHARE = 0.80
COMPACT_AT = 0.80
CUT_MARK = "\n[… cut …]\n"
# Tags and attributes around a rendered document, beside its title and text.
_DOCUMENT_OVERHEAD = 48
# The most of a window that one tool result may fill, and its characters to a token.
RESULT_SHARE = 0.15
CHARACTERS_PER_TOKEN = 3


class Room:
    """What is left of a window after output, reserve, system prompt and tool schemas; things are taken in order."""

    def __init__(self, *, window: int, output: int | None, count: Count) -> None:
        self.window = window or UNKNOWN_WINDOW
        self._count = count
        # The answer never needs more than a quarter of a small window.
        self.left = self.window - min(output or DEFAULT_OUTPUT, self.window // 4) - int(self.window * RESERVE)

    def take_fixed(self, system: Message, tools: Sequence[ToolSpec]) -> None:
        """Take the system prompt and the tools, which are never cut."""
        self.left -= message_tokens(system, self._count) + tools_tokens(tools, self._count)

    def fit_question(self, turn: Sequence[Message]) -> list[Message]:
        """Take this turn's messages; its user messages are cut in the middle to 80 % of what is left."""
        limit = max(int(self.left * QUESTION_SHARE), 0)
        fitted = [self._shortened(message, limit) for message in turn]
        self.left -= total_tokens(fitted, self._count)
        return fitted

    def fit_documents(self, findings: Sequence[Finding]) -> list[Finding]:
        """Take whole documents, best first, while they fit."""
        kept = []
        for finding in findings:
            cost = _DOCUMENT_OVERHEAD + self._count(finding.title + finding.where + finding.url + finding.text)
            if cost > self.left:
                break
            self.left -= cost
            kept.append(finding)
        return kept

    def fit_history(self, history: Sequence[Message]) -> list[Message]:
        """Take whole earlier turns, newest first, old citation marks stripped."""
        kept: list[Message] = []
        for turn in reversed(turns(history)):
            replayed = [_replayed(message) for message in turn]
            cost = total_tokens(replayed, self._count)
            if cost > self.left:
                break
            self.left -= cost
            kept[:0] = replayed
        return kept

    def _shortened(self, message: Message, limit: int) -> Message:
        if message.role is not Role.USER or message_tokens(message, self._count) <= limit:
            return message
        others = tuple(part for part in message.parts if not isinstance(part, TextPart))
        spent = message_tokens(replace(message, parts=others), self._count) + self._count(CUT_MARK) + 2
        shown = cut_middle(message.text, limit - spent, self._count)
        return replace(message, parts=(TextPart(text=shown), *others))


def cut_middle(text: str, limit: int, count: Count) -> str:
    """Return `text` with its middle left out so that head and tail hold at most `limit` tokens, two thirds the head."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        head = middle * 2 // 3
        if count(text[:head]) + count(text[len(text) - (middle - head) :]) <= max(limit, 0):
            low = middle
        else:
            high = middle - 1
    head = low * 2 // 3
    return f"{text[:head]}{CUT_MARK}{text[len(text) - (low - head) :]}"


def turns(messages: Sequence[Message]) -> list[list[Message]]:
    """Group messages into turns, each beginning with a user message, so that calls and their results stay together."""
    grouped: list[list[Message]] = []
    for message in messages:
        if message.role is Role.USER or not grouped:
            grouped.append([])
        grouped[-1].append(message)
    return grouped


def result_limit(window: int) -> int:
    """Return the most characters that one tool result may have in this window."""
    return max(int((window or UNKNOWN_WINDOW) * RESULT_SHARE) * CHARACTERS_PER_TOKEN, 3 * OVERHEAD)


def _replayed(message: Message) -> Message:
    if message.role is not Role.ASSISTANT:
        return message
    parts = tuple(
        replace(part, text=strip_citations(part.text)) if isinstance(part, TextPart) else part for part in message.parts
    )
    return replace(message, parts=parts)
