"""Runs that open with the model call that answers them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from services.orchestrator.agents.opening import opens_with_call
from services.orchestrator.domain.agent import Agent, AgentType, Exposure, SourceBinding
from services.orchestrator.domain.messages import MediaPart, Message, Role, TextPart, text_message
from tests.support.orchestrator_kit import bench

QUESTION = text_message(Role.USER, "Why?")
PICTURE = Message(
    role=Role.USER, parts=(TextPart(text="What is it?"), MediaPart(media_type="image/png", is_image=True))
)
HANDBOOK = (SourceBinding(source="handbook"),)
FETCHED = (
    SourceBinding(source="handbook", exposure=Exposure.PREFETCH),
    SourceBinding(source="wiki", exposure=Exposure.AGENTIC),
)


@pytest.mark.parametrize(
    ("changes", "question", "opens"),
    [
        ({}, QUESTION, True),
        ({"sources": HANDBOOK}, QUESTION, True),
        ({"prompt": "You are {{ agent }}."}, QUESTION, True),
        ({}, PICTURE, False),
        ({"prompt": 'It is {{ tool("current_time") }}.'}, QUESTION, False),
        ({"router_json": b"{}"}, QUESTION, False),
        ({"sources": FETCHED}, QUESTION, False),
        ({"type": AgentType.CLASSIC, "sources": HANDBOOK}, QUESTION, False),
        ({"type": AgentType.RESEARCH}, QUESTION, False),
        ({"type": AgentType.WORKFLOW}, QUESTION, False),
    ],
)
def test_a_run_opens_with_its_call_when_nothing_is_fetched_read_or_asked_before(
    changes: dict[str, Any], question: Message, *, opens: bool
) -> None:
    spec = replace(bench().leg.spec, agent=replace(Agent(agent_id="a", name="A", type=AgentType.AGENTIC), **changes))
    assert opens_with_call(spec, [question]) is opens
