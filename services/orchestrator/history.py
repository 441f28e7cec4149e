"""What of a conversation fits a model's window: documents and the question first, then the newest turns."""

from __future__ import annotations

from dataclasses import dataclass, replace

from services.orchestrator.domain.messages import Message, Role, TextPart, ToolSpec
from services.orchestrator.evidence import strip_citations

UNKNOWN_WINDOW = 128_000
DEFAULT_OUTPUT = 4_096
RESERVE = 0.10
QUESTION_SHARE = 0.80
# Tokens of one message beside its text: role, separators, ids.
_OVERHEAD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The prompt's messages, and the index of the first one of this turn."""

    messages: tuple[Message, ...]
    turn_start: int


def estimate_tokens(text: str) -> int:
    """Return a safe upper estimate: ASCII counts a token per 3 characters, everything else one per character."""
    ascii_count = sum(1 for character in text if character < "\x80")
    return -(-ascii_count // 3) + len(text) - ascii_count


def message_tokens(message: Message) -> int:
    """Return the estimate for a whole message, calls and reasoning included."""
    tokens = _OVERHEAD + estimate_tokens(message.text) + estimate_tokens(message.reasoning)
    for call in message.tool_calls:
        arguments = call.arguments_json.decode(errors="replace")
        tokens += _OVERHEAD + estimate_tokens(call.name) + estimate_tokens(arguments)
    return tokens


def fit_history(
    *,
    system: Message,
    history: tuple[Message, ...],
    turn: tuple[Message, ...],
    tools: tuple[ToolSpec, ...],
    window: int,
    output: int | None,
) -> Fitted:
    """Return system, as much history as fits, and this turn.

    Window − system − tool schemas − output − 10 % is shared: the turn first (its question at most 80 % of it, cut in
    the middle), then whole earlier turns, newest first. Old citation marks are stripped from replayed answers.
    """
    window = window or UNKNOWN_WINDOW
    room = window - message_tokens(system) - min(output or DEFAULT_OUTPUT, window // 4) - int(window * RESERVE)
    room -= sum(estimate_tokens(t.parameters_json.decode()) + estimate_tokens(t.description) + _OVERHEAD for t in tools)
    turn = tuple(_shorten(message, int(room * QUESTION_SHARE)) for message in turn)
    room -= sum(message_tokens(message) for message in turn)
    kept: list[Message] = []
    for earlier in reversed(_turns(history)):
        cost = sum(message_tokens(message) for message in earlier)
        if cost > room:
            break
        room -= cost
        kept[:0] = [_replayed(message) for message in earlier]
    return Fitted(messages=(system, *kept, *turn), turn_start=1 + len(kept))


def _turns(history: tuple[Message, ...]) -> list[list[Message]]:
    """Group messages into turns, each beginning with a user message, so that calls and results stay together."""
    turns: list[list[Message]] = []
    for message in history:
        if message.role is Role.USER or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def _replayed(message: Message) -> Message:
    if message.role is not Role.ASSISTANT:
        return message
    parts = tuple(
        TextPart(text=strip_citations(part.text)) if isinstance(part, TextPart) else part for part in message.parts
    )
    return replace(message, parts=parts)


def _shorten(message: Message, tokens: int) -> Message:
    """Cut a user message in the middle so that it fits; its first and last words survive."""
    if message.role is not Role.USER or message_tokens(message) <= tokens:
        return message
    text = message.text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_tokens(text[:middle]) <= max(tokens - 2 * _OVERHEAD, 0):
            low = middle
        else:
            high = middle - 1
    head = low * 2 // 3
    tail = low - head
    shown = f"{text[:head]}\n[… cut …]\n{text[len(text) - tail :]}"
    others = tuple(part for part in message.parts if not isinstance(part, TextPart))
    return replace(message, parts=(TextPart(text=shown), *others))
