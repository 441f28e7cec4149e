"""Tools that people answer: questions to the user, and waiting for their next message. Nothing runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from services.chassis.canonical import canonical_json
from services.orchestrator.domain.events import PauseKind
from services.orchestrator.domain.messages import ToolSpec
from services.orchestrator.tools.ports import Consent, Effect, ToolContext, ToolDefinition, ToolResult

BATCHES_PER_TURN = 3
# How a result begins that has answers; they follow as JSON.
ANSWERED = "The user answered: "
_TYPES = ("text", "number", "date", "email", "url", "long_text", "single_choice", "multiple_choice")
_QUESTIONS = canonical_json(
    {
        "type": "object",
        "properties": {
            "questions": {
                "type": "array",
                "minItems": 1,
                "maxItems": 10,
                "items": {
                    "type": "object",
                    "properties": {
                        "question_id": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
                        "text": {"type": "string", "minLength": 1, "maxLength": 4096},
                        "type": {"enum": list(_TYPES)},
                        "options": {
                            "type": "array",
                            "maxItems": 50,
                            "items": {"type": "string", "minLength": 1, "maxLength": 512},
                            "description": "For single_choice and multiple_choice.",
                        },
                        "allow_other": {"type": "boolean", "description": "For choices: another answer may be typed."},
                        "required": {"type": "boolean"},
                    },
                    "required": ["question_id", "text", "type"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["questions"],
        "additionalProperties": False,
    }
)
_WAIT = canonical_json(
    {
        "type": "object",
        "properties": {
            "message": {"type": "string", "maxLength": 4096, "description": "What you tell the user before you wait."}
        },
        "additionalProperties": False,
    }
)


class AskUserTool:
    """Asks the user up to ten typed questions at once, three times a turn; they may skip."""

    definition = ToolDefinition(
        spec=ToolSpec(
            name="ask_user",
            description=(
                "Ask the user what you cannot find out yourself and cannot sensibly assume. Ask everything at once; "
                "they may skip, then use your best judgement."
            ),
            parameters_json=_QUESTIONS,
        ),
        title="Ask you",
        effect=Effect.READ,
        consent=Consent.ALLOW,
        repeatable=True,
        pause_kind=PauseKind.QUESTION,
        answer_time=timedelta(hours=24),
        per_turn=BATCHES_PER_TURN,
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Never called: people answer."""
        raise AssertionError("a question is answered, not executed")


class WaitForUserTool:
    """Yields to the user until they write again or end the run."""

    definition = ToolDefinition(
        spec=ToolSpec(
            name="wait_for_user",
            description="Stop here until the user writes again, for example while they try something out.",
            parameters_json=_WAIT,
        ),
        title="Wait for you",
        effect=Effect.READ,
        consent=Consent.ALLOW,
        repeatable=True,
        pause_kind=PauseKind.CONTINUE,
        answer_time=timedelta(days=7),
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Never called: people answer."""
        raise AssertionError("waiting is answered, not executed")


def question_protos(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the questions of a call as approval.v1.Question in JSON form."""
    return [
        {**question, "type": f"QUESTION_TYPE_{question['type'].upper()}"} for question in arguments.get("questions", ())
    ]
