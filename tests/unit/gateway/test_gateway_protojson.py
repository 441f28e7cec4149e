"""The JSON form of messages: what it shares with proto3 JSON, where it differs, and that the fast path is no other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from proctor.orchestrator.v1 import events_pb2, run_service_pb2
from services.chassis.errors import InvalidRequest
from services.gateway.projections import native
from services.gateway.protojson import from_json, to_json, to_json_bytes
from tests.support import run_events as script

TEXT = st.text(max_size=50)


@given(text=TEXT, call=TEXT, step=TEXT, sequence=st.integers(0, 2**63 - 1), nanos=st.integers(0, 999_999_999))
@pytest.mark.parametrize("kind", ["answer_delta", "thinking_delta"])
def test_the_direct_encoder_equals_the_plain_path(
    kind: str, text: str, call: str, step: str, sequence: int, nanos: int
) -> None:
    event = events_pb2.RunEvent(run_id="r", sequence=sequence, attempt=2, step_id=step)
    getattr(event, kind).text = text
    getattr(event, kind).model_call_id = call
    event.at.seconds, event.at.nanos = 1_893_499_200, nanos
    assert native.encode(event) == to_json_bytes(event)


def test_a_delta_without_a_time_has_none() -> None:
    event = events_pb2.RunEvent(run_id="r", sequence=1)
    event.answer_delta.text = "x"
    assert native.encode(event) == to_json_bytes(event)
    assert "at" not in json.loads(native.encode(event))


def test_embedded_json_keeps_its_integers_and_order() -> None:
    value = to_json(script.journal([script.approval_requested()])[0])["approval_requested"]
    assert value["arguments_json"] == {"code": "print(2**64)", "n": 18446744073709551616}
    assert isinstance(value["arguments_json"]["n"], int)
    assert value["parameters_json"] is None


def test_text_is_the_same_value() -> None:
    for event in script.journal(
        [*script.ANSWER, script.approval_requested(), script.client_tool(arguments=b"{broken")]
    ):
        assert json.loads(to_json_bytes(event)) == to_json(event)
    assert b'"n":18446744073709551616' in to_json_bytes(script.journal([script.approval_requested()])[0])


def test_everything_else_is_proto3_json() -> None:
    for event in script.journal(script.ANSWER):
        ours = to_json(event)
        theirs = json_format.MessageToDict(
            event, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        assert _with_numbers(theirs) == _without_embedded(ours)


def test_json_goes_in_as_it_came_out() -> None:
    request = run_service_pb2.StartRunRequest(request_id="q", conversation_id="c")
    request.history.add(role=2).parts.add(text="hi")
    request.history[0].tool_calls.add(call_id="c", name="f", arguments_json=b'{"n":18446744073709551616}')
    request.output.json_schema = b'{"type":"object"}'
    request.hold.seconds = 3
    assert from_json(to_json(request), run_service_pb2.StartRunRequest()) == request


def test_what_does_not_fit_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="inptu"):
        from_json({"inptu": 1}, run_service_pb2.StartRunRequest())


def test_a_frame_carries_sequence_kind_and_one_line_of_data() -> None:
    event = script.event(7, "answer_delta", events_pb2.AnswerDelta(text="a\nb\r\n\u2028c"))
    lines = native.frame(event).split(b"\n")
    assert lines[:2] == [b"id: 7", b"event: answer_delta"]
    assert lines[2].startswith(b"data: {")
    assert lines[3:] == [b"", b""]


def _with_numbers(value: Any) -> Any:
    """proto3 JSON writes 64-bit integers as strings; ours as numbers."""
    if isinstance(value, dict):
        return {
            key: int(item)
            if key in {"sequence", "size"} or (key.endswith(("_tokens", "_micros")) and isinstance(item, str))
            else _with_numbers(item)
            for key, item in value.items()
            if not key.endswith("_json")
        }
    return [_with_numbers(item) for item in value] if isinstance(value, list) else value


def _without_embedded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_embedded(item) for key, item in value.items() if not key.endswith("_json")}
    return [_without_embedded(item) for item in value] if isinstance(value, list) else value
