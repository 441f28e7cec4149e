"""Answers pass the guardrails as they come; a refused one is withdrawn, fails the run, or is never shown."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from services.orchestrator.domain.messages import ToolCall
from services.orchestrator.domain.run import OnRetraction
from services.orchestrator.guardrails.guarded_model import GuardedModel
from services.orchestrator.guardrails.guards import Guards
from services.orchestrator.guardrails.patterns import Patterns
from services.orchestrator.guardrails.ports import Checked, FailMode, Guardrail, OutputRefused, Refused, Stage, Verdict
from services.orchestrator.guardrails.recognisers import Kind
from services.orchestrator.guardrails.redaction import Redaction
from services.orchestrator.models.ports import (
    CallPiece,
    ModelEvent,
    ModelNotice,
    ModelReply,
    ModelRequest,
    Purpose,
    Retraction,
    TextPiece,
    ThinkingPiece,
)
from tests.support.orchestrator_kit import reply

BOTH = frozenset({Stage.INPUT, Stage.OUTPUT})
REQUEST = ModelRequest(call_id="m1", model="m", purpose=Purpose.ANSWER, messages=(), tenant="t1")
HIDES = Guardrail(name="private", check=Redaction((Kind.EMAIL,)), stages=BOTH, fail=FailMode.CLOSED, quick=True)
NO_PRICES = Guardrail(
    name="prices",
    check=Patterns([re.compile("EUR")], "prices are not told"),
    stages=BOTH,
    fail=FailMode.CLOSED,
    quick=True,
)


@dataclass
class Scripted:
    """Gives its events, and tells whether they were all taken."""

    events: Sequence[ModelEvent]
    taken: list[ModelEvent] = field(default_factory=list)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        for event in self.events:
            self.taken.append(event)
            yield event


@dataclass
class Whole:
    """A check of the whole text: gives a verdict, or fails."""

    verdict: Verdict | Exception

    async def judge(self, text: str, stage: Stage, tenant: str) -> Verdict:
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict


def said(*pieces: str, end: ModelReply | None = None) -> Scripted:
    return Scripted([*(TextPiece(text=piece) for piece in pieces), end or reply("".join(pieces))])


async def run(
    model: Scripted, *guardrails: Guardrail, mode: OnRetraction = OnRetraction.EMIT, purpose: Purpose = Purpose.ANSWER
) -> list[ModelEvent]:
    request = replace(REQUEST, on_retraction=mode, purpose=purpose)
    guarded = GuardedModel(model, Guards(guardrails))
    return [event async for event in guarded.stream(request)]


def shown(events: list[ModelEvent]) -> str:
    """Return the text that stands at the end."""
    text = ""
    for event in events:
        if isinstance(event, TextPiece):
            text += event.text
        elif isinstance(event, Retraction):
            text = ""
    return text


def last(events: list[ModelEvent]) -> ModelReply:
    assert isinstance(events[-1], ModelReply)
    return events[-1]


@pytest.mark.parametrize("mode", list(OnRetraction))
async def test_personal_data_is_hidden_across_pieces_and_in_what_is_kept(mode: OnRetraction) -> None:
    whole = reply("Write to ann@example.com now.", reasoning="ann@example.com is hers")
    model = Scripted(
        [ThinkingPiece(text="ann@exa"), ThinkingPiece(text="mple.com is hers"), TextPiece(text="Write to an"),
         TextPiece(text="n@example"), TextPiece(text=".com now."), replace(whole, value_json=b'["ann@example.com"]')]
    )  # fmt: skip

    events = await run(model, HIDES, mode=mode)

    assert shown(events) == "Write to [e-mail] now."
    assert "".join(e.text for e in events if isinstance(e, ThinkingPiece)) == "[e-mail] is hers"
    kept = last(events)
    assert (kept.text, kept.reasoning, kept.value_json) == (
        "Write to [e-mail] now.",
        "[e-mail] is hers",
        b'["[e-mail]"]',
    )
    (notice,) = [e for e in events if isinstance(e, ModelNotice)]
    assert notice.text == "'private' changed the answer: [e-mail] ×1."


async def test_a_refused_answer_is_withdrawn_as_soon_as_it_is_seen_and_its_tokens_still_count() -> None:
    call = ToolCall(call_id="c", name="pay", arguments_json=b"{}")
    model = said("It costs ", "5 EUR. " + "x" * 200, "more", "and more", end=reply("…", call))

    events = await run(model, NO_PRICES)

    at = next(i for i, e in enumerate(events) if isinstance(e, Retraction))
    assert shown(events[:at]).startswith("It costs 5 EUR")
    assert not any(isinstance(e, TextPiece) and "more" in e.text for e in events)
    assert shown(events) == "This answer was withheld: prices are not told"
    kept = last(events)
    assert (kept.text, kept.tool_calls, kept.finish_reason) == (shown(events), (), "content_filter")
    assert kept.usage.output_tokens == 5
    assert len(model.taken) == len(model.events)


async def test_where_nothing_can_be_withdrawn_the_call_fails_with_its_clock() -> None:
    with pytest.raises(OutputRefused, match="prices are not told") as caught:
        await run(said("5 EUR"), NO_PRICES, mode=OnRetraction.FAIL)

    assert caught.value.timing is not None
    assert caught.value.reason == "OUTPUT_REFUSED"


async def test_held_answers_show_nothing_of_what_is_refused() -> None:
    events = await run(said("5 ", "EUR"), NO_PRICES, mode=OnRetraction.HOLD)

    assert [e.text for e in events if isinstance(e, TextPiece)] == ["This answer was withheld: prices are not told"]
    assert not any(isinstance(e, Retraction) for e in events)


async def test_a_good_answer_comes_as_it_is_with_its_calls() -> None:
    call = CallPiece(call_id="c", name="search", arguments_fragment="{}")
    model = Scripted([TextPiece(text="Fine"), call, TextPiece(text=" so far."), reply("Fine so far.")])

    assert await run(model, NO_PRICES) == list(model.events)
    assert await run(model, NO_PRICES, mode=OnRetraction.HOLD) == list(model.events)


async def test_a_retraction_from_below_begins_the_text_anew() -> None:
    model = Scripted([TextPiece(text="ann@exam"), Retraction(reason="broke"), TextPiece(text="Hi."), reply("Hi.")])

    events = await run(model, HIDES)

    assert shown(events) == "Hi."
    assert last(events).text == "Hi."


@pytest.mark.parametrize(("fail", "stands"), [(FailMode.OPEN, "Hello"), (FailMode.CLOSED, "withheld")])
async def test_a_check_that_fails_opens_or_closes_as_it_is_told(fail: FailMode, stands: str) -> None:
    broken = Guardrail(name="remote", check=Whole(OSError("down")), stages=BOTH, fail=fail)

    assert stands in shown(await run(said("Hello"), broken))


@pytest.mark.parametrize("mode", [OnRetraction.EMIT, OnRetraction.HOLD])
async def test_a_service_may_put_another_text_in_its_place(mode: OnRetraction) -> None:
    check = Whole(Checked(text="Hello, friend", changes=("politer",)))
    polite = Guardrail(name="polite", check=check, stages=BOTH, fail=FailMode.OPEN)

    events = await run(said("Hel", "lo"), polite, mode=mode)

    assert shown(events) == "Hello, friend"
    assert last(events).text == "Hello, friend"


async def test_only_what_people_read_is_guarded() -> None:
    model = said("5 EUR")
    refused = Guardrail(
        name="no", check=Whole(Refused(reason="no")), stages=frozenset({Stage.INPUT}), fail=FailMode.OPEN
    )
    elsewhere = replace(NO_PRICES, tenants=frozenset({"t2"}))

    assert shown(await run(model, NO_PRICES, purpose=Purpose.PLAN)) == "5 EUR"
    assert shown(await run(model, refused, elsewhere)) == "5 EUR"
