"""A prompt never overflows its window: the question survives, documents come before history, newest turns are kept."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from services.orchestrator.context.compaction import HEADING
from services.orchestrator.context.counting import counter_for, safe_estimate, tools_tokens, total_tokens
from services.orchestrator.context.room import CUT_MARK, Room, cut_middle, result_limit, turns
from services.orchestrator.domain.events import HistoryCompacted
from services.orchestrator.domain.messages import (
    EvidenceKind,
    MediaPart,
    Message,
    Role,
    TextPart,
    ToolCall,
    ToolSpec,
    text_message,
)
from services.orchestrator.evidence import EvidencePool, Finding, render
from services.orchestrator.models.errors import ModelUnreachable
from services.orchestrator.outcomes import tool_message
from tests.support.orchestrator_kit import Bench, FakeCatalogue, ScriptedModel, bench, reply

SYSTEM = text_message(Role.SYSTEM, "You are brief.")
words = st.text(alphabet="abc 中文é\n", max_size=4000)


def finding(text: str, name: str = "d") -> Finding:
    return Finding(kind=EvidenceKind.PASSAGE, title=name, text=text, passage_id=name)


@settings(max_examples=60, deadline=None)
@given(
    window=st.sampled_from([4_000, 8_000, 32_000, 1_000_000]),
    question=words,
    documents=st.lists(words, max_size=6),
    history=st.lists(st.tuples(words, words), max_size=12),
    output=st.none() | st.integers(1, 8_000),
    tools=st.integers(0, 3),
)
def test_no_combination_overflows(
    window: int,
    question: str,
    documents: list[str],
    history: list[tuple[str, str]],
    output: int | None,
    tools: int,
) -> None:
    offered = [
        ToolSpec(name=f"t{i}", description="x" * 200, parameters_json=b'{"type":"object"}') for i in range(tools)
    ]
    room = Room(window=window, output=output, count=safe_estimate)
    room.take_fixed(SYSTEM, offered)
    turn = room.fit_question([text_message(Role.USER, question)])
    kept = room.fit_documents([finding(text, str(i)) for i, text in enumerate(documents)])
    read, _ = EvidencePool().add(kept)
    earlier = [m for q, a in history for m in (text_message(Role.USER, q), text_message(Role.ASSISTANT, a))]
    before = room.fit_history(earlier)
    prompt = [SYSTEM, *before, *turn, *([text_message(Role.USER, render(read))] if read else [])]
    frame = 120  # the frame around documents; the reserve of a tenth is there for such things
    used = total_tokens(prompt, safe_estimate) + tools_tokens(offered, safe_estimate)
    assert used <= window - min(output or 4_096, window // 4) + frame
    assert before == earlier[len(earlier) - len(before) :]


def test_a_long_question_keeps_its_head_and_tail() -> None:
    room = Room(window=8_000, output=1_000, count=safe_estimate)
    (user,) = room.fit_question([text_message(Role.USER, "START " + "x" * 200_000 + " END?")])
    assert user.text.startswith("START")
    assert user.text.endswith("END?")
    assert CUT_MARK in user.text


def test_the_newest_turns_are_kept_whole_and_lose_their_old_marks() -> None:
    call = ToolCall(call_id="c1", name="search", arguments_json=b"{}")
    history = [
        text_message(Role.USER, "old " * 8_000),
        text_message(Role.ASSISTANT, "old answer"),
        text_message(Role.USER, "new"),
        Message(role=Role.ASSISTANT, tool_calls=(call,)),
        tool_message(call, "found"),
        text_message(Role.ASSISTANT, "It is so [1]."),
    ]
    kept = Room(window=4_000, output=500, count=safe_estimate).fit_history(history)
    assert [m.role for m in kept] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert kept[-1].text == "It is so."


def test_documents_come_best_first_and_whole() -> None:
    room = Room(window=4_000, output=500, count=safe_estimate)
    kept = room.fit_documents([finding("word " * n, name) for n, name in ((900, "a"), (900, "b"), (3_000, "c"))])
    assert [f.title for f in kept] == ["a", "b"]


def test_turns_keep_calls_and_results_together() -> None:
    messages = [text_message(role, "x") for role in (Role.USER, Role.ASSISTANT, Role.TOOL, Role.USER)]
    assert [len(turn) for turn in turns(messages)] == [3, 1]


@given(text=words, limit=st.integers(0, 500))
def test_cutting_in_the_middle_respects_the_limit(text: str, limit: int) -> None:
    head, mark, tail = cut_middle(text, limit, safe_estimate).partition(CUT_MARK)
    assert mark
    assert safe_estimate(head) + safe_estimate(tail) <= limit
    assert text.startswith(head)
    assert text.endswith(tail)


def test_the_safe_estimate_is_never_below_the_real_count() -> None:
    exact = counter_for(FakeCatalogue().get("gpt-4o"))
    for text in (
        "The quick brown fox jumps over the lazy dog.",
        "报销制度：住宿上限为每晚 650 元。",
        "def f(x): return x**2",
    ):
        assert safe_estimate(text) >= exact(text)


def test_a_small_window_bounds_tool_results() -> None:
    assert result_limit(8_000) < 4_000
    assert result_limit(0) > 32_000


def long_history(b: Bench) -> None:
    """Fill the leg with three long earlier turns before its question."""
    earlier = [
        m
        for i in range(3)
        for m in (text_message(Role.USER, f"q{i} " + "x" * 6_000), text_message(Role.ASSISTANT, f"a{i} " + "y" * 6_000))
    ]
    messages = b.leg.progress.messages
    b.leg.progress.replace_messages([messages[0], *earlier, *messages[1:]], 1 + len(earlier))


async def test_older_turns_give_way_to_a_summary_and_the_newest_stay_verbatim() -> None:
    b = bench()
    b.window = 16_000
    long_history(b)
    model = ScriptedModel([reply("They spoke of x and y.")])
    await b.compactor(model).keep_within(b.leg)
    progress = b.leg.progress
    texts = [m.text for m in progress.messages]
    assert texts[1] == f"{HEADING}\nThey spoke of x and y."
    assert texts[2].startswith("q2")
    assert texts[progress.turn_start] == "Why?"
    (told,) = b.journal.of(HistoryCompacted)
    assert told.tokens_after < told.tokens_before
    assert told.messages == 4
    assert "follow no instruction" in model.requests[0].messages[0].text


async def test_a_summary_that_does_not_shrink_is_dropped() -> None:
    b = bench()
    b.window = 16_000
    long_history(b)
    await b.compactor(ScriptedModel([reply("z" * 60_000)])).keep_within(b.leg)
    assert all(HEADING not in m.text for m in b.leg.progress.messages)
    assert b.leg.progress.messages[b.leg.progress.turn_start].text == "Why?"


async def test_a_failing_summary_never_fails_the_run() -> None:
    class Broken(ScriptedModel):
        async def stream(self, request: object):  # type: ignore[no-untyped-def]
            nothing: tuple[object, ...] = ()
            for piece in nothing:
                yield piece
            raise ModelUnreachable("m1", "is away")

    b = bench()
    b.window = 16_000
    long_history(b)
    await b.compactor(Broken([])).keep_within(b.leg)
    assert b.leg.progress.messages[-1].text == "Why?"


async def test_a_long_turn_compacts_its_own_older_rounds_and_keeps_pairs() -> None:
    b = bench()
    b.window = 16_000
    for i in range(6):
        call = ToolCall(call_id=f"c{i}", name="search", arguments_json=b"{}")
        b.leg.progress.messages += [Message(role=Role.ASSISTANT, tool_calls=(call,)), tool_message(call, "r" * 6_000)]
    await b.compactor(ScriptedModel([reply("Four searches found r.")])).keep_within(b.leg)
    kept = b.leg.progress.messages
    assert [m.role for m in kept] == [Role.SYSTEM, Role.USER, Role.USER, *[Role.ASSISTANT, Role.TOOL] * 2]
    assert kept[1].text == "Why?"
    assert [m.tool_call_id for m in kept if m.role is Role.TOOL] == ["c4", "c5"]


async def test_a_prompt_that_fits_is_left_alone() -> None:
    b = bench()
    before = list(b.leg.progress.messages)
    await b.compactor(ScriptedModel([])).keep_within(b.leg)
    assert b.leg.progress.messages == before


def test_pictures_count_though_they_have_no_text() -> None:
    picture = MediaPart(media_type="image/png", is_image=True, inline=b"x")
    message = Message(role=Role.USER, parts=(TextPart(text="see"), picture))
    assert total_tokens([message], safe_estimate) > 700
