"""Asking back before the plan: as a call of ask_user through the gate, so that it waits like every other question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from services.chassis.canonical import canonical_json
from services.orchestrator.domain.messages import Message, Role, ToolCall
from services.orchestrator.leg import Leg
from services.orchestrator.strategies.research.plan import Question
from services.orchestrator.tools.ask_user import AskUserTool

ASK_USER = AskUserTool.definition.name
# As ask_user's own schema has it.
QUESTION_CHARACTERS = 4096
OPTION_CHARACTERS = 512
OPTIONS = 50


def may_ask(leg: Leg) -> bool:
    """Whether the user can be asked: somebody is there, the agent has ask_user, and it did not ask just before."""
    offered = any(tool.name == ASK_USER for tool in leg.spec.tools)
    return offered and not _just_answered(leg.progress.messages[: leg.progress.turn_start])


def _just_answered(history: Sequence[Message]) -> bool:
    """Whether this turn's message answers a question of the assistant: its last turn asked, or ended with one."""
    starts = [index for index, message in enumerate(history) if message.role is Role.USER]
    last = history[starts[-1] :] if starts else ()
    if any(call.name == ASK_USER for message in last for call in message.tool_calls):
        return True
    said = last[-1].text.rstrip() if last and last[-1].role is Role.ASSISTANT else ""
    return said.endswith(("?", "？"))


def as_call(questions: Sequence[Question], call_id: str) -> ToolCall:
    """Return the call of ask_user that puts `questions`."""
    return ToolCall(
        call_id=call_id,
        name=ASK_USER,
        arguments_json=canonical_json({"questions": [_asked(n, q) for n, q in enumerate(questions, start=1)]}),
        reason="To plan the research.",
    )


def _asked(number: int, question: Question) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "question_id": f"q{number}",
        "text": question.text[:QUESTION_CHARACTERS],
        "type": "single_choice" if question.options else "text",
    }
    if question.options:
        asked["options"] = [option[:OPTION_CHARACTERS] for option in question.options[:OPTIONS]]
        asked["allow_other"] = True
    return asked
