"""A pause is a protobuf: what is saved comes back, what is new is appended, nothing secret enters."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from proctor.continuation.v1 import continuation_pb2
from services.orchestrator.continuation import ContinuationCorrupt, ContinuationTooNew, decode, encode
from services.orchestrator.domain.agent import Agent, SourceBinding, ToolBinding, ToolPolicy
from services.orchestrator.domain.events import PauseKind, ToolStatus
from services.orchestrator.domain.messages import (
    Budget,
    EvidenceKind,
    MediaPart,
    Message,
    OutputFormat,
    Role,
    Sampling,
    Spent,
    TextPart,
    ToolSpec,
    Usage,
    text_message,
)
from services.orchestrator.domain.run import OnRetraction
from services.orchestrator.domain.state import Pending, Phase, Progress, RunSpec
from services.orchestrator.evidence import EvidencePool, Finding
from services.orchestrator.outcomes import tool_message
from tests.support.orchestrator_kit import ANN, START, tool_call

GOLDEN = Path(__file__).with_name("golden")


def state() -> tuple[RunSpec, Progress]:
    """Return a run in the middle of a round, with something in every field."""
    spec = RunSpec(
        run_id="r1",
        principal=replace(ANN, groups=frozenset({"finance"})),
        agent=Agent(
            agent_id="a1",
            name="helper",
            prompt="Be brief.",
            sources=(SourceBinding(source="handbook"),),
            tools=(ToolBinding(tool="run_code", policy=ToolPolicy.ASK, deadline=timedelta(minutes=5)),),
        ),
        model="m1",
        budget=Budget(rounds=3, tool_calls=4, tokens=5, wall_time=timedelta(minutes=6)),
        conversation_id="conv",
        sampling=Sampling(temperature=0.5, top_p=0.9, max_output_tokens=100, stop=("END",), seed=7),
        output=OutputFormat(json_schema=b'{"type":"object"}', name="out"),
        tools=(ToolSpec(name="run_code", description="Run", parameters_json=b'{"type":"object"}'),),
        tool_choice="required",
        sources=("handbook",),
        attachments=("0" * 32,),
        instructions="Answer in verse.",
        unattended=True,
        on_retraction=OnRetraction.FAIL,
        client_tools_end_run=True,
        answer_message_id="am",
        user_message_id="um",
    )
    pool = EvidencePool()
    pool.add([Finding(kind=EvidenceKind.PASSAGE, title="T", text="x", passage_id="p1", score=0.7)])
    picture = MediaPart(media_type="image/png", is_image=True, artifact_id="1" * 32)
    asked = tool_call("c1", "run_code", code="print(1)")
    done = tool_call("c2", "run_code", code="print(2)")
    progress = Progress(
        messages=[
            text_message(Role.SYSTEM, "sys"),
            Message(role=Role.USER, parts=(TextPart(text="why?"), picture)),
            Message(role=Role.ASSISTANT, tool_calls=(asked, done), reasoning="hm", response_id="resp"),
        ],
        turn_start=1,
        evidence=pool,
        spent=Spent(rounds=1, tool_calls=2, usage=Usage(input_tokens=3), wall_time=timedelta(seconds=4)),
        round=2,
        phase=Phase.CALLS,
        pending=(
            Pending(
                call=asked,
                pause_kind=PauseKind.APPROVAL,
                arguments_digest=b"d" * 32,
                approval_id="ap1",
                deadline=START,
                asked_at=START,
            ),
            Pending(call=done, started=True, result=tool_message(done, "2"), status=ToolStatus.COMPLETED),
        ),
        seen={b"k" * 32},
        unknown_tools=1,
        answer="so far",
        asked_again=True,
        closing_reason="why",
        strategy=b"{}",
        paused_at=START,
        attempt=3,
        sequence=99,
        traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
        next_call_id="call",
    )
    return spec, progress


def stored(*checkpoints: object) -> dict[bytes, bytes]:
    return {s.digest: s.content for checkpoint in checkpoints for s in checkpoint.new_segments}  # type: ignore[attr-defined]


def test_what_is_saved_comes_back() -> None:
    spec, progress = state()
    saved = encode(spec, progress, START)
    spec_again, again = decode(saved.head, stored(saved))
    assert spec_again == spec
    assert again.evidence.items == progress.evidence.items
    for field in (
        "messages turn_start spent round phase pending seen unknown_tools answer asked_again closing_reason strategy "
        "paused_at attempt sequence traceparent next_call_id segments saved_messages saved_evidence"
    ).split():
        assert getattr(again, field) == getattr(progress, field), field


def test_a_round_appends_and_rewrites_nothing() -> None:
    spec, progress = state()
    first = encode(spec, progress, START)
    progress.messages.append(text_message(Role.ASSISTANT, "more"))
    second = encode(spec, progress, START)
    assert [s.kind for s in first.new_segments] == ["agent", "tools", "messages", "evidence"]
    assert [s.kind for s in second.new_segments] == ["messages"]
    _, again = decode(second.head, stored(first, second))
    assert again.messages == progress.messages


def test_nothing_new_writes_only_the_head() -> None:
    spec, progress = state()
    encode(spec, progress, START)
    assert encode(spec, progress, START).new_segments == ()


def test_what_is_fixed_is_written_once_and_anew_with_another_spec() -> None:
    spec, progress = state()
    encode(spec, progress, START)
    known = progress.fixed
    encode(spec, progress, START)
    assert progress.fixed is known
    changed = replace(spec, tools=(), model="m2", instructions="")
    checkpoint = encode(changed, progress, START)
    head = continuation_pb2.Continuation.FromString(checkpoint.head)
    assert (head.run_id, head.v1.model, head.v1.instructions) == ("r1", "m2", "")
    assert list(head.v1.sources) == ["handbook"]
    assert [one.call.call_id for one in head.v1.pending] == [p.call.call_id for p in progress.pending]


def test_a_newer_state_is_left_to_newer_replicas() -> None:
    head = continuation_pb2.Continuation(min_reader=99, run_id="r1").SerializeToString()
    with pytest.raises(ContinuationTooNew, match="needs reader 99"):
        decode(head, {})


def test_a_missing_or_damaged_segment_is_named() -> None:
    spec, progress = state()
    saved = encode(spec, progress, START)
    with pytest.raises(ContinuationCorrupt, match="misses its segment"):
        decode(saved.head, {})
    broken = {digest: content + b"x" for digest, content in stored(saved).items()}
    with pytest.raises(ContinuationCorrupt):
        decode(saved.head, broken)
    with pytest.raises(ContinuationCorrupt):
        decode(b"\xff\xff", {})


def test_a_pause_of_a_short_conversation_writes_at_most_3500_bytes() -> None:
    spec, progress = state()
    saved = encode(spec, progress, START)
    assert len(saved.head) + sum(len(s.content) for s in saved.new_segments) <= 3500


def test_every_released_version_decodes_for_ever() -> None:
    files = sorted(GOLDEN.glob("v*.head"))
    assert files
    for file in files:
        segments = {}
        for path in sorted(GOLDEN.glob(f"{file.stem}.*.segment")):
            segments[bytes.fromhex(path.suffixes[0][1:])] = path.read_bytes()
        spec, progress = decode(file.read_bytes(), segments)
        expected_spec, expected = state()
        assert spec == expected_spec
        assert progress.messages == expected.messages
        assert progress.pending == expected.pending


def write_golden(version: str) -> None:
    """Write the golden files of a released version; run by hand when one is released, never to mend a test."""
    saved = encode(*state(), START)
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / f"{version}.head").write_bytes(saved.head)
    for segment in saved.new_segments:
        (GOLDEN / f"{version}.{segment.digest.hex()}.segment").write_bytes(segment.content)


if __name__ == "__main__":
    write_golden(os.environ["VERSION"])
