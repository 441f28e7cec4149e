"""The router: what its configuration may say, what its scores decide, and that it fails open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from services.chassis.canonical import canonical_json
from services.chassis.errors import Unavailable
from services.orchestrator.adapters.agents_toml import AgentsInvalid, load_agents
from services.orchestrator.agents.prompt import Prompts
from services.orchestrator.consult import Consultant
from services.orchestrator.continuation import decode, encode
from services.orchestrator.domain.agent import AgentType
from services.orchestrator.domain.events import (
    AnswerDelta,
    LabelScore,
    ModelCallFinished,
    RouteDecided,
    Stage,
    StageChanged,
)
from services.orchestrator.domain.messages import (
    MediaPart,
    Message,
    OutputFormat,
    Role,
    TextPart,
    ToolSpec,
    text_message,
)
from services.orchestrator.domain.state import Phase
from services.orchestrator.leg import Leg
from services.orchestrator.loop import LoopEnd
from services.orchestrator.models.errors import ModelUnreachable
from services.orchestrator.models.ports import ModelReply, Purpose
from services.orchestrator.routing.by_model import ModelClassifier
from services.orchestrator.routing.config import (
    CALCULATION_HINT,
    ClassifierKind,
    RouterConfig,
    RouterInvalid,
    read_router,
    router_json,
)
from services.orchestrator.routing.decide import Choice, Thresholds, decide
from services.orchestrator.routing.routed import OFF_TOPIC, SMALL_TALK, Routed
from services.orchestrator.routing.router import Router, RouterSettings
from services.orchestrator.routing.small_talk import SmallTalk
from tests.support.clock import SequentialIds
from tests.support.orchestrator_kit import (
    START,
    Bench,
    FakeCatalogue,
    FakeTool,
    ScriptedModel,
    answering,
    bench,
    messages_of,
    reply,
)

LABELS: dict[str, Any] = {
    "topic": ["How much is the mileage allowance?"],
    "small_talk": ["Hello!"],
    "calculation": {"description": "Needs arithmetic."},
    "contracts": {"examples": ["What does the contract say?"], "hint": "Look into the contracts first."},
}
EXAMPLE = Path(__file__).parents[3] / "examples/agents/proctor.toml"
TABLE: dict[str, Any] = {"off_topic_text": "I answer questions about the handbook.", "labels": LABELS}


def scores(
    topic: float = 1.0, small_talk: float = 0.0, calculation: float = 0.0, contracts: float = 0.0
) -> dict[str, float]:
    return {"topic": topic, "small_talk": small_talk, "calculation": calculation, "contracts": contracts}


# --- configuration -----------------------------------------------------------------------------------------------


def test_the_operators_file_may_give_an_agent_a_router(tmp_path: Path) -> None:
    file = tmp_path / "proctor.toml"
    file.write_text(
        """
[agents.handbook.router]
classifier = "embeddings"
off_topic_text = "I answer questions about the handbook."
[agents.handbook.router.labels]
topic = ["How much is the mileage allowance?"]
calculation = { examples = ["What are 17 % of 2,340?"] }
"""
    )
    (agent,) = load_agents(file, Prompts())
    config = read_router(agent.router_json)
    assert config.classifier is ClassifierKind.EMBEDDINGS
    assert config.names == ("calculation", "topic")
    assert config.labels[0].hint == CALCULATION_HINT


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"labels": {"small_talk": ["Hello!"]}}, "'topic'"),
        ({"labels": []}, "'topic'"),
        ({"labels": {**LABELS, "Sales": ["x"]}}, "'Sales'"),
        ({"labels": {**LABELS, "sales": ["x"]}}, "'sales' needs a hint"),
        ({"labels": {**LABELS, "sales": "x"}}, "'sales' must be a list"),
        ({"labels": {**LABELS, "sales": {"hint": "h", "examples": "x"}}}, "examples must be a list"),
        ({"labels": {**LABELS, "sales": {"hint": "h", "examples": [""]}}}, "an example must be a text"),
        ({"labels": {**LABELS, "sales": {"hint": "h"}}}, "needs a description or examples"),
        ({"labels": {**LABELS, "sales": {"hint": "h", "example": []}}}, "'example'"),
        ({"labels": {"topic": ["x"] * 201}}, "201 examples"),
        ({"labels": {"topic": ["x"], **{f"l{i}": {"hint": "h"} for i in range(16)}}}, "17 entries"),
        ({"classifier": "embeddings"}, "'calculation' needs examples"),
        ({"classifier": "guess"}, "'guess'"),
        ({"off_topic_text": 3}, "off_topic_text"),
        ({"off_topic_text": "x" * 2001}, "2001 characters"),
        ({"threshold": 0.5}, "'threshold'"),
    ],
)
def test_a_router_that_is_wrong_is_refused_with_what_is_wrong(change: dict[str, Any], named: str) -> None:
    with pytest.raises(RouterInvalid, match=named):
        router_json({**TABLE, **change})


def test_a_wrong_router_keeps_the_operators_file_from_loading(tmp_path: Path) -> None:
    file = tmp_path / "proctor.toml"
    file.write_text("[agents.handbook.router.labels]\nsmall_talk = ['Hello!']\n")
    with pytest.raises(AgentsInvalid, match="agent 'handbook': labels must have 'topic'"):
        load_agents(file, Prompts())


def test_the_example_is_a_file_that_loads() -> None:
    agents = {agent.name: agent for agent in load_agents(EXAMPLE, Prompts())}
    assert agents["researcher"].type is AgentType.RESEARCH
    assert read_router(agents["desk"].router_json).classifier is ClassifierKind.MODEL
    router = read_router(agents["frontdesk"].router_json)
    assert (router.classifier, "urgent" in router.names) == (ClassifierKind.EMBEDDINGS, True)


# --- decisions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        (scores(topic=0.19, small_talk=0.80), Choice.SMALL_TALK),
        (scores(topic=0.20, small_talk=0.99), Choice.TOPIC),
        (scores(topic=0.05, small_talk=0.80), Choice.SMALL_TALK),  # tested before off-topic
        (scores(topic=0.05, small_talk=0.79), Choice.OFF_TOPIC),
        (scores(topic=0.10), Choice.TOPIC),
    ],
)
def test_thresholds_decide_small_talk_first(given: dict[str, float], choice: Choice) -> None:
    assert decide(given, read_router(canonical_json(TABLE)), Thresholds()).choice is choice


def test_without_a_text_nothing_is_off_topic() -> None:
    config = read_router(canonical_json({"labels": LABELS}))
    assert decide(scores(topic=0.0), config, Thresholds()).choice is Choice.TOPIC


def test_hints_are_those_of_labels_that_score_high() -> None:
    route = decide(scores(calculation=0.6, contracts=0.59), read_router(canonical_json(TABLE)), Thresholds())
    assert (route.choice, route.hints) == (Choice.TOPIC, (CALCULATION_HINT,))
    assert "calculation 0.60" in route.explanation


# --- a run behind a router ---------------------------------------------------------------------------------------


@dataclass
class FakeClassifier:
    """Gives the scores of the test, fails, or never answers."""

    found: dict[str, float] | Exception | None
    asked: list[tuple[str, Sequence[str]]] = field(default_factory=list)

    async def scores(
        self, leg: Leg, config: RouterConfig, question: str, earlier: Sequence[str]
    ) -> Mapping[str, float]:
        self.asked.append((question, earlier))
        if self.found is None:
            await asyncio.Event().wait()
        if isinstance(self.found, Exception):
            raise self.found
        assert self.found is not None
        return self.found


@dataclass
class FakeAgent:
    """A strategy that only answers."""

    seen: list[str] = field(default_factory=list)

    async def run(self, leg: Leg) -> tuple[LoopEnd, ModelReply | None]:
        self.seen.append(leg.spec.instructions)
        return LoopEnd.ANSWERED, reply("The agent's answer.")


def stand(**spec: Any) -> Bench:
    tool = FakeTool(name="look", work=answering("seen"))
    made = bench(tool, **spec)
    leg = made.leg
    leg.spec = replace(
        leg.spec, agent=replace(leg.spec.agent, description="Knows the handbook.", router_json=router_json(TABLE))
    )
    leg.progress.phase = Phase.PREPARE
    leg.progress.next_call_id = "announced"
    return made


def routed(
    made: Bench, found: dict[str, float] | Exception | None, model: ScriptedModel | None = None, seconds: float = 3.0
) -> tuple[Routed, FakeAgent, FakeClassifier]:
    classifier, agent = FakeClassifier(found), FakeAgent()
    router = Router({ClassifierKind.MODEL: classifier}, RouterSettings(timeout=timedelta(seconds=seconds)))
    return Routed(agent, SmallTalk(made.loop(model or ScriptedModel([]))), router), agent, classifier


def decided(made: Bench) -> RouteDecided:
    (event,) = made.journal.of(RouteDecided)
    assert isinstance(event, RouteDecided)
    return event


async def test_small_talk_has_its_own_prompt_four_messages_and_no_tools() -> None:
    made = stand()
    earlier = [
        text_message(role, text) for role, text in [(Role.USER, "q1"), (Role.ASSISTANT, "a1"), (Role.USER, "q2")]
    ]
    result = Message(role=Role.TOOL, parts=(TextPart(text="found"),), tool_call_id="c", tool_name="look")
    history = [*earlier, result, text_message(Role.ASSISTANT, "a2"), text_message(Role.USER, "Thanks!")]
    made.leg.progress.messages, made.leg.progress.turn_start = history, 5
    model = ScriptedModel([reply("You are welcome.")])
    strategy, agent, _ = routed(made, scores(topic=0.0, small_talk=0.9), model)
    end, answer = await strategy.run(made.leg)

    assert (end, answer and answer.text, agent.seen) == (LoopEnd.ANSWERED, "You are welcome.", [])
    system, *rest = messages_of(model, 0)
    assert [m.text for m in rest] == ["a1", "q2", "a2", "Thanks!"]
    assert "Knows the handbook." in system.text
    assert 150 <= len(system.text) <= 260
    (request,) = model.requests
    assert (request.tools, request.sampling.max_output_tokens) == ((), 600)
    assert decided(made).choice == "small_talk"
    assert decided(made).scores[0] == LabelScore(label="topic", score=0.0)
    assert made.journal.of(StageChanged)[0].stage is Stage.ROUTING


async def test_what_is_off_the_subject_gets_the_configured_text_and_no_model_call() -> None:
    made = stand()
    strategy, agent, _ = routed(made, scores(topic=0.05))
    assert await strategy.run(made.leg) == (LoopEnd.ANSWERED, None)
    assert (made.leg.progress.answer, agent.seen) == (TABLE["off_topic_text"], [])
    assert [(e.text, e.model_call_id) for e in made.journal.of(AnswerDelta)] == [(TABLE["off_topic_text"], "announced")]
    assert made.leg.progress.messages[-1].text == TABLE["off_topic_text"]


@pytest.mark.parametrize("computes", [True, False])
async def test_a_question_on_the_subject_reaches_the_agent_with_its_hints(*, computes: bool) -> None:
    made = stand(instructions="Be brief.")
    if computes:
        code = ToolSpec(name="run_code", description="", parameters_json=b"{}")
        made.leg.spec = replace(made.leg.spec, tools=(*made.leg.spec.tools, code))
    strategy, agent, classifier = routed(made, scores(calculation=0.9, contracts=0.9))
    made.leg.progress.messages[:1] = [text_message(Role.USER, "Earlier?"), text_message(Role.ASSISTANT, "Yes.")]
    made.leg.progress.turn_start = 2
    await strategy.run(made.leg)
    hints = [*([CALCULATION_HINT] if computes else []), LABELS["contracts"]["hint"]]
    assert agent.seen == ["\n\n".join(["Be brief.", *hints])]
    assert classifier.asked == [("Why?", ["Earlier?"])]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (Unavailable("the embedder is away"), "the embedder is away"),
        (ModelUnreachable("m1", "does not answer"), "does not answer"),
        (None, "no scores within 0.01 s"),
    ],
)
async def test_without_a_decision_the_agent_answers(found: Exception | None, why: str) -> None:
    made = stand()
    strategy, agent, _ = routed(made, found, seconds=0.01 if found is None else 3.0)
    end, answer = await strategy.run(made.leg)
    assert (end, answer and answer.text, len(agent.seen)) == (LoopEnd.ANSWERED, "The agent's answer.", 1)
    assert (decided(made).choice, decided(made).scores) == ("", ())
    assert why in decided(made).explanation


async def test_what_is_no_plain_question_is_not_routed() -> None:
    picture = MediaPart(media_type="image/png", is_image=True, inline=b"x")
    answered = Message(role=Role.TOOL, parts=(TextPart(text="4"),), tool_call_id="c", tool_name="look")
    turns: list[list[Message]] = [
        [Message(role=Role.USER, parts=(TextPart(text="What is this?"), picture))],
        [Message(role=Role.USER, parts=(picture,))],
        [text_message(Role.USER, "Add 2 and 2."), answered],
    ]
    for turn in turns:
        made = stand()
        made.leg.progress.messages[1:] = turn
        strategy, agent, classifier = routed(made, scores(topic=0.0))
        await strategy.run(made.leg)
        assert (len(agent.seen), classifier.asked) == (1, [])
    made = stand(output=OutputFormat(json_mode=True))
    strategy, agent, classifier = routed(made, scores(topic=0.0))
    await strategy.run(made.leg)
    assert (len(agent.seen), classifier.asked) == (1, [])


async def test_an_agent_without_a_router_and_a_prepared_run_go_straight_to_the_agent() -> None:
    without = stand()
    without.leg.spec = replace(without.leg.spec, agent=replace(without.leg.spec.agent, router_json=b""))
    prepared = stand()
    prepared.leg.progress.phase = Phase.ROUND_START
    for made in (without, prepared):
        strategy, agent, classifier = routed(made, scores(topic=0.0))
        await strategy.run(made.leg)
        assert (len(agent.seen), classifier.asked, made.journal.of(RouteDecided)) == (1, [], [])


def restored(made: Bench) -> None:
    """Put the leg through what was saved, as another owner finds it."""
    segments: dict[bytes, bytes] = {}
    for checkpoint in made.journal.checkpoints:
        segments |= {s.digest: s.content for s in checkpoint.new_segments}
    made.leg.spec, made.leg.progress = decode(made.journal.checkpoints[-1].head, segments)


async def test_small_talk_and_the_text_go_on_where_they_were_sent_after_a_crash() -> None:
    small = stand()
    small.journal.checkpoints.append(encode(small.leg.spec, small.leg.progress, START))
    broken = ScriptedModel([])  # the owner dies in the call
    strategy, _, _ = routed(small, scores(topic=0.0, small_talk=0.9), broken)
    with pytest.raises(IndexError):
        await strategy.run(small.leg)
    restored(small)
    assert small.leg.progress.strategy == SMALL_TALK
    model = ScriptedModel([reply("Hello!")])
    strategy, agent, classifier = routed(small, None, model)
    await strategy.run(small.leg)
    assert (model.requests[0].tools, model.requests[0].sampling.max_output_tokens) == ((), 600)
    assert (agent.seen, classifier.asked) == ([], [])

    off = stand()
    off.journal.checkpoints.append(encode(off.leg.spec, off.leg.progress, START))
    strategy, _, _ = routed(off, scores(topic=0.0))
    await strategy.run(off.leg)
    restored(off)
    assert (off.leg.progress.strategy, off.leg.progress.phase) == (OFF_TOPIC, Phase.CLOSING)
    strategy, agent, classifier = routed(off, None)
    assert (await strategy.run(off.leg))[0] is LoopEnd.ANSWERED
    assert (off.leg.progress.answer, agent.seen, classifier.asked) == (TABLE["off_topic_text"], [], [])


# --- the model as classifier -------------------------------------------------------------------------------------


async def test_the_model_is_asked_for_one_score_a_label_and_its_call_is_recorded() -> None:
    made = stand()
    found = scores(topic=0.7)
    model = ScriptedModel([replace(reply(json.dumps(found)), value_json=canonical_json(found))])
    classifier = ModelClassifier(Consultant(model, FakeCatalogue(), SequentialIds("q")))
    config = read_router(made.leg.spec.agent.router_json)
    assert await classifier.scores(made.leg, config, "And for Paris?", ["What is the per diem?"]) == found

    (request,) = model.requests
    assert (request.purpose, request.tools) == (Purpose.ROUTE, ())
    schema = json.loads(request.output.json_schema)
    assert sorted(schema["required"]) == ["calculation", "contracts", "small_talk", "topic"]
    assert request.messages[1].text == "[earlier] What is the per diem?\n\n[message] And for Paris?"
    assert "Knows the handbook." in request.messages[0].text
    assert [e.purpose for e in made.journal.of(ModelCallFinished)] == ["route"]
    assert made.leg.progress.spent.usage.total_tokens == 15
