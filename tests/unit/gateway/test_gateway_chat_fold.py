"""Chat Completions as a fold: chunks that append up to the final text, one id, and each way to end."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from proctor.orchestrator.v1 import events_pb2
from services.gateway.projections import chat_completions as chat
from tests.support import run_events as script

Script = list[tuple[str, Message | None]]


def play(events: Script, **options: Any) -> tuple[chat.State, list[dict[str, Any]]]:
    state = chat.State(options=chat.Options(**options))
    frames: list[dict[str, Any]] = []
    for event in script.journal(events):
        state, more = chat.fold(state, event)
        frames += more
    return state, frames


def content(frames: list[dict[str, Any]]) -> str:
    deltas = [choice["delta"] for frame in frames for choice in frame.get("choices", ())]
    return "".join(delta.get("content") or "" for delta in deltas)


def test_chunks_have_one_id_and_append_to_the_final_text() -> None:
    state, frames = play(script.ANSWER)
    assert {frame["id"] for frame in frames} == {f"chatcmpl-{script.RUN_ID}"}
    assert frames[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert content(frames) == "25 days a year [1]."
    assert frames[-1]["choices"][0]["finish_reason"] == "stop"
    assert frames[-1]["proctor"]["sources"][0]["title"] == "Leave"
    whole = chat.completion(state)
    assert whole["choices"][0]["message"]["content"] == "25 days a year [1]."
    assert whole["choices"][0]["message"]["reasoning_content"] == "hm"
    assert whole["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
    assert whole["usage"]["total_tokens"] == 19


def test_usage_comes_in_a_chunk_of_its_own_when_asked() -> None:
    _, frames = play(script.ANSWER, include_usage=True)
    assert frames[-1]["choices"] == []
    assert frames[-1]["usage"]["completion_tokens"] == 7


def test_text_that_was_never_streamed_comes_with_the_end() -> None:
    _, frames = play([script.started(), script.completed("whole")])
    assert content(frames) == "whole"
    _, frames = play([script.started(), script.answer("who"), script.completed("whole")])
    assert content(frames) == "whole"


def test_a_later_model_call_begins_a_paragraph() -> None:
    events: Script = [script.started(), script.answer("Let me look."), script.answer("25 days", "m2")]
    state, frames = play([*events, script.completed("25 days.")])
    assert content(frames) == "Let me look.\n\n25 days."
    assert chat.completion(state)["choices"][0]["message"]["content"] == "25 days."


def test_text_of_steps_is_no_answer() -> None:
    state = chat.State(options=chat.Options())
    for event in [
        script.event(1, "run_started"),
        script.event(2, "answer_delta", events_pb2.AnswerDelta(text="inner"), step="s1"),
    ]:
        state, _ = chat.fold(state, event)
    assert state.sent == ""


def test_a_structured_answer_is_sent_once_and_whole() -> None:
    events: Script = [script.started(), script.answer("thinking aloud"), script.completed('{"days":25}')]
    _, frames = play(events, structured=True)
    assert content(frames) == '{"days":25}'


@pytest.mark.parametrize("cut", range(1, 12))
def test_footnotes_turn_marks_wherever_the_stream_cuts_them(cut: int) -> None:
    text = "25 [1] a[7]."
    events: Script = [
        script.started(),
        script.found(1),
        script.answer(text[:cut]),
        script.answer(text[cut:]),
        script.completed(text, 1),
    ]
    state, frames = play(events, footnotes=True)
    assert content(frames) == "25 [^1] a[7].\n\n[^1]: Leave, Holidays"
    assert chat.completion(state)["choices"][0]["message"]["content"] == content(frames)


def test_the_callers_tools_end_the_completion_with_their_own_ids() -> None:
    state, frames = play([script.started(), script.proposed(), script.completed("", finish="tool_calls")])
    call = frames[-2]["choices"][0]["delta"]["tool_calls"][0]
    assert (call["index"], call["id"], call["function"]["name"]) == (0, "call_9", "get_weather")
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
    assert frames[-1]["choices"][0]["finish_reason"] == "tool_calls"
    message = chat.completion(state)["choices"][0]["message"]
    assert message["content"] is None
    assert "index" not in message["tool_calls"][0]


def test_a_pending_approval_is_a_call_that_names_its_run() -> None:
    state, frames = play([script.started(), script.approval_requested(), script.paused("call_1")])
    call = frames[-2]["choices"][0]["delta"]["tool_calls"][0]
    assert call["id"] == f"pause.approval.{script.RUN_ID}.call_1"
    assert call["function"]["name"] == "proctor_approval"
    asked = json.loads(call["function"]["arguments"])
    assert (asked["tool"], asked["reason"]) == ("run_code", "compute the sum")
    assert str(asked["arguments"]["n"]) == "18446744073709551616"
    assert state.finish_reason == "tool_calls"


def test_when_waiting_a_pause_says_nothing() -> None:
    events: Script = [script.started(), script.approval_requested(), script.paused("call_1"), script.answer("ok")]
    state, frames = play([*events, script.completed("ok")], wait_for_approvals=True)
    assert content(frames) == "ok"
    assert state.calls == ()


def test_events_that_stop_early_are_told_as_an_error() -> None:
    state, _ = play([script.started(), script.approval_requested(), script.paused("call_1")], wait_for_approvals=True)
    state, frames = chat.unfinished(state)
    assert (frames[0]["error"]["code"], state.error_status) == ("deadline_exceeded", 504)
    assert chat.unfinished(state) == (state, [])


def test_a_failure_is_an_error_chunk_with_what_was_written() -> None:
    state, frames = play([script.started(), script.answer("par"), script.failed("CONTEXT_OVERFLOW")])
    error = frames[-1]["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "context_overflow")
    assert error["proctor"]["partial_text"] == "par"
    assert state.error_status == 400


def test_a_withdrawn_answer_is_a_failure_on_an_append_only_wire() -> None:
    retracted: tuple[str, Message] = "answer_retracted", events_pb2.AnswerRetracted(model_call_id="m1", reason="cut")
    state, frames = play([script.started(), script.answer("par"), retracted, script.answer("new", "m2")])
    assert "error" in frames[-1]
    assert state.sent == "par"


def test_a_continued_run_is_another_completion() -> None:
    state = chat.State(options=chat.Options(model="reader"))
    for event in script.journal([("run_resumed", None), script.answer("x"), script.completed("x")], first=9):
        state, _ = chat.fold(state, event)
    assert state.id == f"chatcmpl-{script.RUN_ID}-9"
    assert state.model == "reader"


@given(cuts=st.lists(st.integers(0, 40), max_size=6))
def test_any_cutting_of_the_deltas_gives_the_same_text(cuts: list[int]) -> None:
    text = "The rule [1] gives 25 days; see [2] and x[0]."
    edges = [0, *sorted(cuts), len(text)]
    deltas = [script.answer(text[a:b]) for a, b in pairwise(edges)]
    _, frames = play([script.started(), *deltas, script.completed(text)])
    assert content(frames) == text


def test_the_fold_does_not_change_its_argument() -> None:
    state = chat.State(options=chat.Options())
    before = replace(state)
    chat.fold(state, script.journal(script.ANSWER)[0])
    assert state == before
