"""Steps side by side on every wire: what they write is never the answer, and what is withdrawn of it ends nothing."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from google.protobuf.message import Message
from rich.console import Console

from proctor.client.answer import Answer
from proctor.client.answer import fold as fold_client
from proctor.orchestrator.v1 import events_pb2 as pb
from services.cli.show import RunView
from services.gateway.projections import ag_ui, chat_completions, native, response_state, responses, ui_messages
from tests.support.run_events import answer, completed, event, planned, started, step_finished, step_started, thinking

FINAL = "Rates and limits."
RETRACTED = pb.AnswerRetracted(model_call_id="s1-call", reason="interrupted")
THINKING = pb.StageChanged(stage=pb.Stage.STAGE_THINKING, text="Thinking in a step")
SCRIPT: list[tuple[str, tuple[str, Message | None]]] = [
    ("", started()),
    ("", planned(s1="Rates", s2="Limits")),
    ("s1", step_started("s1", "Rates")),
    ("s2", step_started("s2", "Limits")),
    ("s1", ("stage_changed", THINKING)),
    ("s1", thinking("step one thinks", "s1-call")),
    ("s1", answer("step one writes", "s1-call")),
    ("s2", answer("step two writes", "s2-call")),
    ("s1", ("answer_retracted", RETRACTED)),
    ("s1", answer("step one again", "s1-more")),
    ("s1", step_finished("s1", "72")),
    ("s2", step_finished("s2", "86")),
    ("", answer("Rates ", "m1")),
    ("", answer("and limits.", "m1")),
    ("", completed(FINAL)),
]
EVENTS = [event(n, kind, body, step=step) for n, (step, (kind, body)) in enumerate(SCRIPT, start=1)]


def played(fold: Any, state: Any) -> tuple[Any, list[dict[str, Any]]]:
    frames: list[dict[str, Any]] = []
    for each in EVENTS:
        state, more = fold(state, each)
        frames += more
    return state, frames


def test_chat_completions_shows_steps_as_reasoning_and_only_the_answer_as_content() -> None:
    state, frames = played(chat_completions.fold, chat_completions.State(options=chat_completions.Options()))
    deltas = [choice["delta"] for frame in frames for choice in frame["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == FINAL
    told = "".join(delta.get("reasoning_content", "") for delta in deltas)
    assert told == "Plan:\n1. Rates\n2. Limits\n\nDone: Rates\nDone: Limits\n"
    message = chat_completions.completion(state)["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"], state.error) == (FINAL, told, None)


def test_responses_shows_steps_as_a_reasoning_item_and_the_answer_as_the_only_message() -> None:
    state, frames = played(responses.fold, response_state.State(id="resp_r1"))
    assert [item["type"] for item in state.output] == ["reasoning", "message"]
    assert state.output[0]["content"][0]["text"].endswith("Done: Rates\nDone: Limits\n")
    assert state.output[1]["content"][0]["text"] == FINAL
    assert state.status == "completed"
    assert "step one" not in json.dumps(frames)


def test_the_ui_stream_has_the_answer_alone_as_text_and_no_stage_of_a_step() -> None:
    state, frames = played(ui_messages.fold, ui_messages.State())
    assert "".join(frame["delta"] for frame in frames if frame["type"] == "text-delta") == FINAL
    assert state.ended
    assert not [frame for frame in frames if frame["type"] in ("error", "data-stage")]
    assert "step one" not in json.dumps(frames)
    assert [frame["data"]["state"] for frame in frames if frame["type"] == "data-step"] == [
        "running",
        "running",
        "completed",
        "completed",
    ]


def test_ag_ui_has_the_answer_alone_as_text_and_ends_as_a_success() -> None:
    _, frames = played(ag_ui.fold, ag_ui.State(thread_id="t", run_id="r"))
    assert "".join(frame["delta"] for frame in frames if frame["type"] == "TEXT_MESSAGE_CONTENT") == FINAL
    assert frames[-1]["type"] == "RUN_FINISHED"
    assert frames[-1]["outcome"] == {"type": "success"}
    assert "step one" not in json.dumps(frames)
    assert not [frame for frame in frames if frame.get("name") == "proctor.stage_changed"]


def test_native_events_say_to_which_step_they_belong() -> None:
    encoded = [json.loads(native.encode(each)) for each in EVENTS]
    assert [frame["step_id"] for frame in encoded[4:9]] == ["s1", "s1", "s1", "s2", "s1"]


def test_the_client_library_folds_the_answer_alone() -> None:
    folded = Answer()
    for each in EVENTS[:-1]:
        folded = fold_client(folded, each)
    assert folded.text == FINAL
    assert fold_client(folded, EVENTS[-1]).text == FINAL


def test_the_terminal_shows_the_plan_the_steps_and_only_the_answer() -> None:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    view = RunView(console)
    for each in EVENTS:
        view.show(json.loads(native.encode(each)))
    assert isinstance(console.file, io.StringIO)
    lines = [line for line in console.file.getvalue().splitlines() if line]
    assert lines[1:5] == ["· plan: Rates · Limits", "· Rates: done", "· Limits: done", FINAL]


@pytest.mark.parametrize("step", ["", "s1"])
def test_only_the_withdrawal_of_the_answer_itself_fails_a_wire_that_only_appends(step: str) -> None:
    state = chat_completions.State(options=chat_completions.Options())
    state, _ = chat_completions.fold(state, event(1, "answer_retracted", RETRACTED, step=step))
    assert (state.error is None) is bool(step)
