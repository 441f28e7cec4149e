"""Tokens of messages, before they are sent: exactly for models whose encoding we carry, safely for all others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from services.orchestrator.domain.messages import MediaPart, Message, TextPart, ToolSpec
from services.orchestrator.models.ports import ModelInfo
from services.orchestrator.models.tokens import IMAGE_TOKENS, count_tokens

Count = Callable[[str], int]
# Role, separators and ids around a message or call, and a tool's injected reason.
OVERHEAD = 8
TOOL_OVERHEAD = 48
_LONG_WORD = 12
# Texts of no more characters are counted once; longer ones would fill the memory.
_KEPT_LENGTH = 8 * 1024
# Runs of letters, and every other character but blanks, which cost nothing beside a word.
_PIECES = re.compile(r"([A-Za-z]+)|([^A-Za-z \t])")
_O200K = re.compile(r"^(gpt-4o|gpt-4\.1|gpt-5|o[134](-|$)|chatgpt-)")


def safe_estimate(text: str) -> int:
    """Return an estimate that errs upwards for prose, code, random strings and CJK text alike.

    Four letters a token in words of up to twelve, two tokens for three in longer runs (hashes, base64); every digit,
    sign and line break one; five tokens for four characters beyond ASCII, three for each beyond the basic plane.
    """
    return _kept_estimate(text) if len(text) <= _KEPT_LENGTH else _estimate(text)


def _estimate(text: str) -> int:
    tokens = wide = 0
    for letters, other in _PIECES.findall(text):
        if letters:
            size = len(letters)
            tokens += -(-size // 4) if size <= _LONG_WORD else -(-size * 2 // 3)
        elif other < "\x80":
            tokens += 1
        else:
            wide += 1 if other <= "\uffff" else 3
    return tokens + -(-wide * 5 // 4)


# A prompt is counted when it is made, and again before every call with it.
_kept_estimate = lru_cache(maxsize=1024)(_estimate)


def counter_for(model: ModelInfo) -> Count:
    """Return the counter of a model: its own encoding when it is o200k, the safe estimate otherwise."""
    return count_tokens if _O200K.match(model.upstream_name) else safe_estimate


def message_tokens(message: Message, count: Count) -> int:
    """Return the tokens of a whole message with its calls, reasoning and pictures."""
    tokens = OVERHEAD + (count(message.reasoning) if message.reasoning else 0)
    for part in message.parts:
        match part:
            case TextPart(text=text):
                tokens += count(text)
            case MediaPart(is_image=True):
                tokens += IMAGE_TOKENS
            case MediaPart():
                tokens += OVERHEAD
    for call in message.tool_calls:
        written = call.arguments_json.decode(errors="replace") or call.malformed_arguments
        tokens += OVERHEAD + count(call.name + written + call.reason)
    return tokens


def total_tokens(messages: Iterable[Message], count: Count) -> int:
    """Return the tokens of messages together."""
    return sum(message_tokens(message, count) for message in messages)


def tools_tokens(tools: Iterable[ToolSpec], count: Count) -> int:
    """Return the tokens of tool schemas with the injected reason."""
    return _tools_tokens(tuple(tools), count)


# The same tools are counted before every call of every run.
@lru_cache(maxsize=256)
def _tools_tokens(tools: tuple[ToolSpec, ...], count: Count) -> int:
    return sum(_tool_tokens(tool, count) for tool in tools)


@lru_cache(maxsize=1024)
def _tool_tokens(tool: ToolSpec, count: Count) -> int:
    return TOOL_OVERHEAD + count(tool.name + tool.description + tool.parameters_json.decode())
