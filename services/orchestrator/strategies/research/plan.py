"""The plan: one model call that either asks back or names the steps."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

from services.chassis.canonical import canonical_json
from services.orchestrator.consult import Consultant
from services.orchestrator.domain.messages import OutputFormat, Role, text_message
from services.orchestrator.evidence import FRAME, NOTHING_FOUND
from services.orchestrator.leg import Leg
from services.orchestrator.models.errors import ModelError
from services.orchestrator.models.ports import Purpose
from services.orchestrator.strategies.research.progress import Step

_log = logging.getLogger(__name__)
# Steps at most, by how complex the question is.
STEPS = {"simple": 2, "moderate": 4, "complex": 6}
QUESTIONS = 3
TITLE_CHARACTERS = 120
QUESTION_CHARACTERS = 4_000
# How files and documents begin that the preparer puts behind a question.
_BEHIND_QUESTION = (FRAME, NOTHING_FOUND, "\n\n[file ")

_INSTRUCTION = """\
Plan the research that answers the question above; do not answer it yet.
- complexity: simple (2 steps at most), moderate (4 at most) or complex (6 at most). Take as few steps as will do.
- Each step is one question that can be understood by itself and worked on without the results of the others: all are
  worked on at the same time{tools}. A last step that sums up is not needed.
- title: a few words for people.
{questions}
Write in the language of the question."""
_MAY_ASK = """\
- questions: only when the question cannot be researched without knowing more from the user, ask back, with 3 questions
  at most and options where these are few, and leave steps empty. Otherwise leave questions empty."""
_MAY_NOT_ASK = "- questions: leave empty; the user cannot be asked now."


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question to the user; `options` may be empty."""

    text: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps, or questions to be answered first. `failed` says that it is the fallback of one step."""

    complexity: str
    steps: tuple[Step, ...] = ()
    questions: tuple[Question, ...] = ()
    failed: bool = False


class Planner:
    """Makes plans. A plan that cannot be made never fails the run: the question itself is then the only step."""

    def __init__(self, consultant: Consultant) -> None:
        self._consultant = consultant

    async def plan(self, leg: Leg, *, may_ask: bool) -> Plan:
        """Return the plan for the question that stands in the leg's messages; questions only when it `may_ask`."""
        names = ", ".join(tool.name for tool in leg.spec.tools)
        instruction = _INSTRUCTION.format(
            tools=f" with the tools {names}" if names else "", questions=_MAY_ASK if may_ask else _MAY_NOT_ASK
        )
        try:
            reply = await self._consultant.ask(
                leg,
                Purpose.PLAN,
                (*leg.progress.messages, text_message(Role.USER, instruction)),
                output=OutputFormat(json_schema=_SCHEMA, name="plan"),
            )
        except ModelError as error:
            _log.warning("no plan was made: %s", error.message)
            return _fallback(leg)
        return _read(leg, json.loads(reply.value_json), may_ask=may_ask)


def _read(leg: Leg, value: dict[str, Any], *, may_ask: bool) -> Plan:
    complexity = value["complexity"]
    questions = [
        Question(text=asked["text"].strip(), options=tuple(o.strip() for o in asked["options"] if o.strip()))
        for asked in value["questions"]
        if asked["text"].strip()
    ]
    if questions and may_ask:
        return Plan(complexity=complexity, questions=tuple(questions[:QUESTIONS]))
    wanted = [step for step in value["steps"] if step["question"].strip()][: STEPS[complexity]]
    steps = tuple(
        Step(
            step_id=f"step-{number}",
            title=" ".join((step["title"].strip() or step["question"]).split())[:TITLE_CHARACTERS],
            question=step["question"].strip(),
        )
        for number, step in enumerate(wanted, start=1)
    )
    return Plan(complexity=complexity, steps=steps) if steps else _fallback(leg)


def question_of(leg: Leg) -> str:
    """Return what the user asked, without the files and documents that stand behind it."""
    text = leg.progress.messages[leg.progress.turn_start].text
    for mark in _BEHIND_QUESTION:
        text = text.partition(mark)[0]
    return text.strip()[:QUESTION_CHARACTERS]


def _fallback(leg: Leg) -> Plan:
    question = question_of(leg)
    title = " ".join(question.split())[:TITLE_CHARACTERS] or "The question"
    return Plan(
        complexity="simple", steps=(Step(step_id="step-1", title=title, question=question or title),), failed=True
    )


def _objects(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}
# Counts are not part of the schema: a step too many is left out, which is cheaper than to ask again.
_SCHEMA = canonical_json(
    _objects(
        complexity={"type": "string", "enum": list(STEPS)},
        steps={"type": "array", "items": _objects(title=_TEXT, question=_TEXT)},
        questions={
            "type": "array",
            "items": _objects(text=_TEXT, options={"type": "array", "items": _TEXT}),
        },
    )
)
