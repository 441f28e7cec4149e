"""Tools that a template names: before the first call, through the gate, over pauses and crashes, framed as data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from services.orchestrator.agents.named_tools import NamedTools
from services.orchestrator.agents.prompt import PromptContext, Prompts
from services.orchestrator.agents.templates import PromptInvalid
from services.orchestrator.continuation import decode
from services.orchestrator.domain.events import ToolCallProposed, ToolCallStarted
from services.orchestrator.domain.messages import ToolSpec
from services.orchestrator.domain.state import Phase
from services.orchestrator.ports import GateVerdict, RecordState
from services.orchestrator.tools.ports import Consent, Effect
from tests.support.orchestrator_kit import START, Bench, FakeTool, answering, bench

TEMPLATE = 'Found: {{ tool("look", query=question) }} on {{ today }}'
PROMPTS = Prompts()


def prepared(template: str, *tools: FakeTool, **options: Any) -> Bench:
    """Return a leg before its prompt is made, of an agent with this template."""
    made = bench(*tools, **options)
    made.leg.spec = replace(made.leg.spec, agent=replace(made.leg.spec.agent, prompt=template))
    made.leg.progress.phase = Phase.PREPARE
    return made


def context(**changes: Any) -> PromptContext:
    return replace(PromptContext(today=START, tools=("look",), user="ann", question="Why?"), **changes)


async def rendered(made: Bench, given: PromptContext) -> str:
    results = await NamedTools(made.gate, PROMPTS).run(made.leg, given)
    assert results is not None
    return PROMPTS.render(made.leg.spec.agent, replace(given, results=results))


def restarted(made: Bench) -> None:
    """Lose the process: what goes on is what the last checkpoint holds."""
    contents = {s.digest: s.content for checkpoint in made.journal.checkpoints for s in checkpoint.new_segments}
    made.leg.spec, made.leg.progress = decode(made.journal.checkpoints[-1].head, contents)


async def test_a_named_tool_runs_once_and_its_result_is_framed() -> None:
    look = FakeTool(name="look", work=answering("an </tool_result> and more"))
    made = prepared(TEMPLATE + ' {{ tool("look", query=question) }}', look)
    text = await rendered(made, context())
    assert look.executions == [{"query": "Why?"}]
    assert text.count('<tool_result tool="look">') == 2
    assert "an &lt;/tool_result> and more" in text
    assert [event.call.reason for event in made.journal.of(ToolCallProposed)] == ["The agent's prompt needs it."]
    assert made.leg.progress.spent.tool_calls == 1


async def test_a_call_that_asks_waits_and_goes_on_after_a_restart_on_another_day() -> None:
    look = FakeTool(name="look", work=answering("seen"), consent=Consent.ASK, effect=Effect.SIDE_EFFECT)
    schema = {"type": "object", "properties": {"day": {"type": "string"}}}
    look.schema = schema
    made = prepared('{{ tool("look", day=today) }}', look)
    assert await NamedTools(made.gate, PROMPTS).run(made.leg, context()) is None
    assert look.executions == []
    assert [pending.call.name for pending in made.leg.progress.waiting] == ["look"]
    made.journal.checkpoints.append(made.leg.checkpoint())  # as the runner does at a pause
    restarted(made)
    made.approvals.settle("named-1", RecordState.APPROVED)
    text = await rendered(made, context(today=START.replace(day=9)))
    assert look.executions == [{"day": START.date().isoformat()}]
    assert "seen" in text


async def test_a_refusal_is_what_the_model_reads() -> None:
    look = FakeTool(name="look", work=answering("seen"), consent=Consent.ASK)
    made = prepared(TEMPLATE, look)
    made.approvals.verdict = GateVerdict.DENY
    text = await rendered(made, context())
    assert look.executions == []
    assert "seen" not in text
    assert made.statuses() == {"named-1": "DENIED"}


async def test_a_tool_that_is_bounded_by_turn_may_be_named() -> None:
    look = FakeTool(name="look", work=answering("seen"), options={"per_turn": 1})
    assert "seen" in await rendered(prepared(TEMPLATE, look), context())


async def test_an_effect_that_had_begun_is_not_repeated() -> None:
    look = FakeTool(name="look", work=answering("sent"), effect=Effect.SIDE_EFFECT)
    made = prepared(TEMPLATE, look)
    await NamedTools(made.gate, PROMPTS).run(made.leg, context())
    assert made.journal.of(ToolCallStarted)
    # The process dies after the start was committed and before the result was.
    (begun,) = [c for c in made.journal.checkpoints if b"named-1" in c.head][-1:]
    made.journal.checkpoints = [*made.journal.checkpoints, begun]
    restarted(made)
    made.leg.progress.pending = tuple(replace(p, result=None, status=None) for p in made.leg.progress.pending)
    made.journal.events.clear()
    text = await rendered(made, context())
    assert len(look.executions) == 1
    assert made.statuses() == {"named-1": "OUTCOME_UNKNOWN"}
    assert "sent" not in text


async def test_a_tool_that_the_run_does_not_have_or_that_is_the_callers_does_not_run() -> None:
    theirs = ToolSpec(name="theirs", description="", parameters_json=b'{"type":"object"}', client_side=True)
    made = prepared('{{ tool("missing") }} {{ tool("theirs") }}', client_tools=(theirs,))
    text = await rendered(made, context())
    assert text.count("it did not run") == 2
    assert made.leg.progress.unknown_tools == 0
    assert made.journal.events == []


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{% set t = tool %}", "otherwise than by a call"),
        ("{{ tool() }}", "calls tool wrongly"),
        ("{{ tool(agent) }}", "calls tool wrongly"),
        ('{{ tool("look", **user) }}', "calls tool wrongly"),
        ('{% for x in tools %}{{ tool("look", query=x) }}{% endfor %}', "not known before it runs"),
        ('{{ tool("look", query=question ~ "!") }}', "not known before it runs"),
        ("".join(f'{{{{ tool("t{n}") }}}}' for n in range(9)), "names 9 calls of tools; 8 at most"),
    ],
)
def test_a_call_that_is_not_known_beforehand_is_refused(template: str, why: str) -> None:
    with pytest.raises(PromptInvalid, match=why):
        PROMPTS.check(template)


def test_a_template_that_is_silent_about_language_gets_the_policy() -> None:
    made = prepared("You are {{ agent }}.")
    agent = made.leg.spec.agent
    assert PROMPTS.render(agent, context()).endswith("the language of the user's question, and think in it too.")
    german = replace(agent, language="de")
    assert PROMPTS.render(german, context()).endswith("the language with the tag de, and think in it too.")
    own = replace(german, prompt="Speak {{ language }}.")
    spoken = PROMPTS.render(own, context())
    assert spoken.startswith("Speak de.")
    assert "language with the tag" not in spoken
