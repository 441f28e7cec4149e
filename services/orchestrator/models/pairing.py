"""History that every provider accepts: each call answered once, every id used once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from services.orchestrator.domain.messages import Message, Role, TextPart, text_message

NO_RESULT = "(no result was recorded for this call)"


def paired(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return `messages` with every tool call followed by exactly one result under an id that no other call has.

    Replayed conversations hold calls whose ids other turns used too, calls that were never answered and results whose
    call was cut away; providers refuse all three. A missing result is filled in, a stray one becomes a user's message.
    """
    out: list[Message] = []
    used: set[str] = set()
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if message.role is Role.TOOL:
            out.append(text_message(Role.USER, f"Result of the tool {message.tool_name or 'call'}:\n{message.text}"))
            continue
        if not message.tool_calls:
            out.append(message)
            continue
        results: list[Message] = []
        while position < len(messages) and messages[position].role is Role.TOOL:
            results.append(messages[position])
            position += 1
        out += _round_trip(message, results, used)
    return tuple(out)


def _round_trip(message: Message, results: list[Message], used: set[str]) -> list[Message]:
    calls, answers = [], []
    left = list(results)
    for call in message.tool_calls:
        wire_id = _unused(call.call_id, used)
        calls.append(replace(call, call_id=wire_id))
        found = next((result for result in left if result.tool_call_id == call.call_id), None)
        if found is None:
            answer = Message(role=Role.TOOL, parts=(TextPart(text=NO_RESULT),), tool_name=call.name)
        else:
            left.remove(found)
            answer = found
        answers.append(replace(answer, tool_call_id=wire_id))
    strays = [text_message(Role.USER, f"Result of the tool {s.tool_name or 'call'}:\n{s.text}") for s in left]
    return [replace(message, tool_calls=tuple(calls)), *answers, *strays]


def _unused(wanted: str, used: set[str]) -> str:
    candidate, number = wanted, 1
    while candidate in used:
        number += 1
        candidate = f"{wanted}_{number}"
    used.add(candidate)
    return candidate
