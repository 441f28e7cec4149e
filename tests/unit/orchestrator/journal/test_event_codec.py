"""The event codec: every class round-trips, the direct encoder equals protobuf's, frames equal real responses."""

from __future__ import annotations

import dataclasses
import typing
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import events_pb2, run_service_pb2
from services.orchestrator import codec_events
from services.orchestrator.codec_events import EventEncoder, decode, frame, kind_of, merge_deltas, stamped
from services.orchestrator.codec_reflect import duration, from_pb, to_pb
from services.orchestrator.domain import agent, messages
from services.orchestrator.domain.events import (
    AnswerDelta,
    Event,
    Notice,
    ProgressStream,
    RunCancelled,
    RunPaused,
    StampedEvent,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallProgress,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AT = datetime(2026, 3, 1, 12, 30, 5, 123456, tzinfo=UTC)

EVENT_CLASSES = [cls for arm in typing.get_args(Event) for cls in (typing.get_args(arm) or (arm,))]

_text = st.text(max_size=12)
_times = st.integers(0, 7_000_000_000_000_000).map(lambda micros: EPOCH + timedelta(microseconds=micros))
for _type, _strategy in {
    str: _text,
    int: st.integers(min_value=0, max_value=2**31 - 1),
    float: st.floats(min_value=0, max_value=1),
    datetime: _times,
}.items():
    st.register_type_strategy(_type, _strategy)

_media = st.builds(
    messages.MediaPart, media_type=_text, is_image=st.booleans(), name=_text, inline=st.binary(max_size=8)
) | st.builds(messages.MediaPart, media_type=_text, is_image=st.booleans(), url=st.text(min_size=1, max_size=9))
_output = st.one_of(
    st.builds(messages.OutputFormat, json_mode=st.booleans(), name=_text, json_schema=st.just(b"")),
    st.builds(messages.OutputFormat, json_mode=st.just(value=False), name=_text, json_schema=st.binary(min_size=1)),
)
st.register_type_strategy(messages.MediaPart, _media)
st.register_type_strategy(messages.OutputFormat, _output)


def reference(run_id: str, attempt: int, event: AnswerDelta | ThinkingDelta, sequence: int, step_id: str) -> bytes:
    message = events_pb2.RunEvent(run_id=run_id, sequence=sequence, attempt=attempt, step_id=step_id)
    message.at.FromDatetime(AT)
    arm = message.answer_delta if isinstance(event, AnswerDelta) else message.thinking_delta
    arm.text, arm.model_call_id = event.text, event.model_call_id
    arm.SetInParent()
    return message.SerializeToString()


@pytest.mark.parametrize("cls", EVENT_CLASSES, ids=lambda cls: cls.__name__)
def test_an_event_class_has_exactly_the_fields_of_its_message(cls: type) -> None:
    message = getattr(events_pb2, cls.__name__)
    assert {f.name for f in dataclasses.fields(cls)} == {f.name for f in message.DESCRIPTOR.fields}


def test_every_arm_of_run_event_has_a_class() -> None:
    descriptor: typing.Any = events_pb2.RunEvent.DESCRIPTOR
    arms = descriptor.oneofs_by_name["event"].fields
    assert {field.message_type.name for field in arms} == {cls.__name__ for cls in EVENT_CLASSES}
    terminal = {arm.number for arm in arms if arm.name in ("run_completed", "run_failed", "run_cancelled")}
    assert terminal == codec_events.TERMINAL_KINDS


@given(data=st.data())
@pytest.mark.parametrize("cls", EVENT_CLASSES, ids=lambda cls: cls.__name__)
def test_an_event_survives_encoding(cls: type[Event], data: st.DataObject) -> None:
    event = data.draw(st.from_type(cls))
    recorded = decode(EventEncoder("r1", 2).encode(event, sequence=7, at=AT, step_id="s"))
    assert recorded == codec_events.Recorded(
        run_id="r1", sequence=7, at=AT, attempt=2, step_id="s", event=recorded.event
    )
    assert recorded.event == event


@given(
    run_id=st.text(min_size=1, max_size=200),
    attempt=st.integers(0, 2**31 - 1),
    sequence=st.integers(1, 2**62),
    text=st.text(max_size=300),
    call=_text,
    step_id=_text,
    thinking=st.booleans(),
)
def test_the_direct_encoder_writes_the_bytes_protobuf_writes(
    run_id: str, attempt: int, sequence: int, text: str, call: str, step_id: str, thinking: bool
) -> None:
    event = (ThinkingDelta if thinking else AnswerDelta)(text=text, model_call_id=call)
    written = EventEncoder(run_id, attempt).encode(event, sequence=sequence, at=AT, step_id=step_id)
    assert written == reference(run_id, attempt, event, sequence, step_id)


@given(st.lists(st.text(max_size=300), max_size=5))
def test_a_frame_equals_the_serialized_response(texts: list[str]) -> None:
    encoder = EventEncoder("r1", 1)
    batch = [
        StampedEvent(sequence=i, payload=encoder.encode(AnswerDelta(text=t, model_call_id="m"), sequence=i, at=AT))
        for i, t in enumerate(texts, start=1)
    ]
    response = run_service_pb2.StartRunResponse(
        events=[events_pb2.RunEvent.FromString(event.payload) for event in batch]
    )
    assert frame(batch) == response.SerializeToString()


def test_an_arm_without_content_is_still_present() -> None:
    event = RunCancelled(cancelled_by="")
    assert decode(EventEncoder("r1", 1).encode(event, sequence=1, at=AT)).event == event


def test_an_unknown_kind_decodes_to_no_event() -> None:
    # Field 900 as a length-delimited field of zero bytes: an arm of a later version.
    payload = events_pb2.RunEvent(run_id="r1", sequence=3).SerializeToString() + b"\xa2\x38\x00"
    assert decode(payload).event is None


def stamp(sequence: int, event: Event, step_id: str = "") -> StampedEvent:
    payload = EventEncoder("r1", 1).encode(event, sequence=sequence, at=AT, step_id=step_id)
    return stamped(sequence, kind_of(event), payload)


def test_merging_joins_only_neighbouring_deltas_of_one_text_and_keeps_the_last_sequence() -> None:
    batch = [
        stamp(1, AnswerDelta(text="a", model_call_id="m1")),
        stamp(2, AnswerDelta(text="b", model_call_id="m1")),
        stamp(3, AnswerDelta(text="c", model_call_id="m2")),
        stamp(4, ThinkingDelta(text="d", model_call_id="m2")),
        stamp(5, Notice(code="n", text="t")),
        stamp(6, ThinkingDelta(text="e", model_call_id="m2")),
        stamp(7, ThinkingDelta(text="f", model_call_id="m2"), step_id="s"),
        stamp(8, ToolCallDelta(call_id="c", name="run", arguments_fragment="{", model_call_id="m")),
        stamp(9, ToolCallDelta(call_id="c", name="", arguments_fragment="}", model_call_id="m")),
        stamp(10, ToolCallProgress(call_id="c", stream=ProgressStream.STDOUT, text="x", fraction=0.5)),
        stamp(11, ToolCallProgress(call_id="c", stream=ProgressStream.STDOUT, text="y")),
        stamp(12, ToolCallProgress(call_id="c", stream=ProgressStream.STDERR, text="z")),
    ]
    merged = [(event.sequence, decode(event.payload).event) for event in merge_deltas(batch)]
    assert merged == [
        (2, AnswerDelta(text="ab", model_call_id="m1")),
        (3, AnswerDelta(text="c", model_call_id="m2")),
        (4, ThinkingDelta(text="d", model_call_id="m2")),
        (5, Notice(code="n", text="t")),
        (6, ThinkingDelta(text="e", model_call_id="m2")),
        (7, ThinkingDelta(text="f", model_call_id="m2")),
        (9, ToolCallDelta(call_id="c", name="run", arguments_fragment="{}", model_call_id="m")),
        (11, ToolCallProgress(call_id="c", stream=ProgressStream.STDOUT, text="xy", fraction=0.5)),
        (12, ToolCallProgress(call_id="c", stream=ProgressStream.STDERR, text="z")),
    ]


def test_pauses_and_terminal_events_are_marked() -> None:
    assert stamp(1, RunPaused(pending=(), deadline=None)).pause
    assert stamp(2, RunCancelled(cancelled_by="u")).terminal


@given(st.from_type(agent.Agent))
def test_an_agent_survives_encoding(value: agent.Agent) -> None:
    assert from_pb(to_pb(value, agent_pb2.Agent), agent.Agent) == value


@given(st.from_type(messages.Message))
def test_a_message_survives_encoding(value: messages.Message) -> None:
    assert from_pb(to_pb(value, agent_pb2.Message), messages.Message) == value


def test_a_missing_enum_without_default_is_refused() -> None:
    with pytest.raises(ValueError, match="0 is not a valid Role"):
        from_pb(agent_pb2.Message(), messages.Message)


@given(st.integers(-(10**17), 10**17))
def test_a_duration_is_written_as_protobuf_writes_it(microseconds: int) -> None:
    delta = timedelta(microseconds=microseconds)
    plain = Duration()
    plain.FromTimedelta(delta)
    assert duration(delta) == plain
    assert plain.ToTimedelta() == delta
