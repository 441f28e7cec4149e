"""Run state ⇄ `Continuation` protobuf: a small head and immutable, content-addressed segments. No secret enters it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from proctor.agent.v1 import agent_pb2
from proctor.continuation.v1 import continuation_pb2 as pb
from services.chassis.errors import ServiceError
from services.chassis.identity import Principal
from services.orchestrator.codec_reflect import from_pb, timestamp, to_pb
from services.orchestrator.domain.agent import Agent
from services.orchestrator.domain.events import PauseKind, ToolStatus
from services.orchestrator.domain.messages import (
    Budget,
    Evidence,
    Message,
    OutputFormat,
    Sampling,
    Spent,
    ToolCall,
    ToolSpec,
)
from services.orchestrator.domain.run import Checkpoint, OnRetraction, Segment
from services.orchestrator.domain.state import Pending, Phase, Progress, RunSpec, SegmentRef
from services.orchestrator.evidence import EvidencePool

# The version of this reader, and the oldest one that understands what this writer writes.
READER = 2
MIN_READER = 1
# Steps beside the run's own loop, and tools that ask in the middle, came with the second: an older reader would forget
# them.
MIN_READER_OF_BRANCHES = 2


class ContinuationTooNew(ServiceError):
    """The saved state needs a newer version of the service."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "CONTINUATION_TOO_NEW"


class ContinuationCorrupt(ServiceError):
    """The saved state is damaged."""

    code = grpc.StatusCode.DATA_LOSS
    reason = "CONTINUATION_CORRUPT"


def encode(spec: RunSpec, progress: Progress, now: datetime) -> Checkpoint:
    """Return the checkpoint of a run, with the segments that `progress` has not saved yet, and count them as saved."""
    new = [segment for segment in _new_segments(spec, progress) if _refer(progress, segment)]
    progress.saved_messages = len(progress.messages)
    progress.saved_evidence = len(progress.evidence)
    branches = []
    for step_id, branch in progress.branches.items():
        new += [segment for segment in _new_messages(branch) if _refer(branch, segment)]
        branch.saved_messages = len(branch.messages)
        branches.append(pb.BranchV1(step_id=step_id, **_place(branch)))
    state = pb.StateV1(
        attempt=progress.attempt,
        sequence=progress.sequence,
        traceparent=progress.traceparent,
        paused_at=timestamp(progress.paused_at) if progress.paused_at else None,
        branches=branches,
        **_place(progress),
    )
    asks = any(pending.tool_state for pending in progress.pending)
    reader = MIN_READER_OF_BRANCHES if branches or asks else MIN_READER
    head = pb.Continuation(min_reader=reader, saved_at=timestamp(now), v1=state)
    if progress.fixed is None or progress.fixed[0] is not spec:
        progress.fixed = (spec, _fixed(spec))
    # Two encoded messages behind each other are one that has the fields of both.
    content = progress.fixed[1] + head.SerializeToString()
    return Checkpoint(head=content, min_reader=reader, new_segments=tuple(new))


def _fixed(spec: RunSpec) -> bytes:
    """Return the part of a head that stays the same for as long as the spec does."""
    state = pb.StateV1(
        principal=pb.PrincipalV1(
            tenant=spec.principal.tenant,
            user=spec.principal.user,
            scopes=sorted(spec.principal.scopes),
            groups=sorted(spec.principal.groups),
        ),
        conversation_id=spec.conversation_id,
        model=spec.model,
        sampling=to_pb(spec.sampling, agent_pb2.Sampling),
        output=to_pb(spec.output, agent_pb2.OutputFormat),
        budget=to_pb(spec.budget, agent_pb2.Budget),
        unattended=spec.unattended,
        on_retraction=int(spec.on_retraction),
        client_tools_end_run=spec.client_tools_end_run,
        tool_choice=spec.tool_choice,
        sources=spec.sources,
        attachments=spec.attachments,
        answer_message_id=spec.answer_message_id,
        user_message_id=spec.user_message_id,
        instructions=spec.instructions,
    )
    return pb.Continuation(run_id=spec.run_id, v1=state).SerializeToString()


def decode(head: bytes, segments: Mapping[bytes, bytes]) -> tuple[RunSpec, Progress]:
    """Return what `encode` saved. `segments` maps digests to contents.

    Raises ContinuationTooNew for a state that needs a later reader, ContinuationCorrupt for damage.
    """
    try:
        message = pb.Continuation.FromString(head)
    except DecodeError as error:
        raise ContinuationCorrupt("the saved state cannot be read; restore it from a backup") from error
    if message.min_reader > READER:
        raise ContinuationTooNew(
            f"run '{message.run_id}' needs reader {message.min_reader}, this one is {READER}; upgrade this replica",
            metadata={"run_id": message.run_id},
        )
    if message.WhichOneof("state") != "v1":
        raise ContinuationCorrupt(f"run '{message.run_id}' has no state", metadata={"run_id": message.run_id})
    state = message.v1
    contents = _Contents(message.run_id, state, segments)
    spec = RunSpec(
        run_id=message.run_id,
        principal=Principal(
            tenant=state.principal.tenant,
            user=state.principal.user,
            scopes=frozenset(state.principal.scopes),
            groups=frozenset(state.principal.groups),
        ),
        agent=contents.agent,
        model=state.model,
        budget=from_pb(state.budget, Budget),
        conversation_id=state.conversation_id,
        sampling=from_pb(state.sampling, Sampling),
        output=from_pb(state.output, OutputFormat),
        tools=contents.tools,
        tool_choice=state.tool_choice,
        sources=tuple(state.sources),
        attachments=tuple(state.attachments),
        instructions=state.instructions,
        unattended=state.unattended,
        on_retraction=OnRetraction(state.on_retraction),
        client_tools_end_run=state.client_tools_end_run,
        answer_message_id=state.answer_message_id,
        user_message_id=state.user_message_id,
    )
    progress = _progress(state, contents.messages, EvidencePool(contents.evidence))
    progress.paused_at = _optional_time(state, "paused_at")
    progress.attempt = state.attempt
    progress.sequence = state.sequence
    progress.traceparent = state.traceparent
    progress.saved_evidence = len(contents.evidence)
    for branch in state.branches:
        messages = _messages_of(message.run_id, branch, segments)
        progress.branches[branch.step_id] = _progress(branch, messages, progress.evidence)
    return spec, progress


def segment_digests(head: bytes) -> tuple[bytes, ...]:
    """Return the digests of the segments that a head refers to."""
    state = pb.Continuation.FromString(head).v1
    branches = [ref for branch in state.branches for ref in branch.segments]
    return tuple(ref.digest for ref in (*state.segments, *branches))


def _new_segments(spec: RunSpec, progress: Progress) -> list[Segment]:
    segments = []
    if not any(ref.kind == "agent" for ref in progress.segments):
        segments += [_agent_segment(spec.agent), _tools_segment(spec.tools)]
    segments += _new_messages(progress)
    if found := progress.evidence.items[progress.saved_evidence :]:
        evidence = pb.EvidenceSegmentV1(evidence=[to_pb(e, agent_pb2.Evidence) for e in found])
        segments.append(_segment("evidence", evidence.SerializeToString(deterministic=True)))
    return segments


# Most runs have the same few agents and tools, which are encoded once.
@lru_cache(maxsize=64)
def _agent_segment(agent: Agent) -> Segment:
    message = pb.AgentSegmentV1(agent=to_pb(agent, agent_pb2.Agent))
    return _segment("agent", message.SerializeToString(deterministic=True))


@lru_cache(maxsize=64)
def _tools_segment(tools: tuple[ToolSpec, ...]) -> Segment:
    message = pb.ToolsSegmentV1(tools=[to_pb(tool, pb.ToolSpecV1) for tool in tools])
    return _segment("tools", message.SerializeToString(deterministic=True))


def _new_messages(progress: Progress) -> list[Segment]:
    unsaved = progress.messages[progress.saved_messages :]
    if not unsaved:
        return []
    messages = pb.MessagesSegmentV1(messages=[to_pb(m, agent_pb2.Message) for m in unsaved])
    return [_segment("messages", messages.SerializeToString(deterministic=True))]


def _segment(kind: str, content: bytes) -> Segment:
    return Segment(digest=hashlib.sha256(content).digest(), kind=kind, content=content)


def _refer(progress: Progress, segment: Segment) -> bool:
    """Append a reference to `segment`; tell whether its bytes still have to be written."""
    ref = SegmentRef(digest=segment.digest, kind=segment.kind)
    known = ref in progress.segments
    progress.segments.append(ref)
    return not known


def _place(progress: Progress) -> dict[str, Any]:
    """Return the fields that tell where a run, or one of its steps, stands; both messages have them."""
    return {
        "spent": to_pb(progress.spent, agent_pb2.Spent),
        "round": progress.round,
        "phase": pb.Phase.ValueType(progress.phase),
        "pending": [_pending_to_pb(p) for p in progress.pending],
        "segments": [pb.SegmentRefV1(digest=ref.digest, kind=ref.kind) for ref in progress.segments],
        "seen": [pb.SeenCallV1(key=key) for key in sorted(progress.seen)],
        "unknown_tools": progress.unknown_tools,
        "answer_so_far": progress.answer,
        "asked_again": progress.asked_again,
        "closing_reason": progress.closing_reason,
        "turn_start": progress.turn_start,
        "next_call_id": progress.next_call_id,
        "strategy": pb.StrategyV1(progress_json=progress.strategy),
    }


def _progress(place: pb.StateV1 | pb.BranchV1, messages: list[Message], evidence: EvidencePool) -> Progress:
    """Return what `_place` told."""
    return Progress(
        messages=messages,
        turn_start=place.turn_start,
        evidence=evidence,
        spent=from_pb(place.spent, Spent),
        round=place.round,
        phase=Phase(place.phase),
        pending=tuple(_pending_from_pb(p) for p in place.pending),
        seen={entry.key for entry in place.seen},
        unknown_tools=place.unknown_tools,
        answer=place.answer_so_far,
        asked_again=place.asked_again,
        closing_reason=place.closing_reason,
        strategy=place.strategy.progress_json,
        next_call_id=place.next_call_id,
        segments=[SegmentRef(digest=ref.digest, kind=ref.kind) for ref in place.segments],
        saved_messages=len(messages),
    )


def _pending_to_pb(pending: Pending) -> pb.PendingV1:
    return pb.PendingV1(
        call=to_pb(pending.call, agent_pb2.ToolCall),
        pause_kind=int(pending.pause_kind or 0),
        arguments_digest=pending.arguments_digest,
        approval_id=pending.approval_id,
        deadline=timestamp(pending.deadline) if pending.deadline else None,
        started=pending.started,
        result=to_pb(pending.result, agent_pb2.Message) if pending.result else None,
        status=agent_pb2.ToolStatus.ValueType(pending.status or 0),
        asked_at=timestamp(pending.asked_at) if pending.asked_at else None,
        announced=pending.announced,
        questions_json=pending.questions_json,
        tool_state=pending.tool_state,
        asks=pending.asks,
        edited_arguments_json=pending.edited_json,
    )


def _pending_from_pb(message: pb.PendingV1) -> Pending:
    return Pending(
        call=from_pb(message.call, ToolCall),
        pause_kind=PauseKind(message.pause_kind) if message.pause_kind else None,
        arguments_digest=message.arguments_digest,
        approval_id=message.approval_id,
        deadline=_optional_time(message, "deadline"),
        started=message.started,
        result=from_pb(message.result, Message) if message.HasField("result") else None,
        status=ToolStatus(message.status) if message.status else None,
        asked_at=_optional_time(message, "asked_at"),
        announced=message.announced,
        questions_json=message.questions_json,
        tool_state=message.tool_state,
        asks=message.asks,
        edited_json=message.edited_arguments_json,
    )


def _optional_time(message: pb.PendingV1 | pb.StateV1, name: str) -> datetime | None:
    return getattr(message, name).ToDatetime(tzinfo=UTC) if message.HasField(name) else None  # type: ignore[arg-type]


def _content(run_id: str, ref: pb.SegmentRefV1, segments: Mapping[bytes, bytes]) -> bytes:
    content = segments.get(ref.digest)
    if content is None or hashlib.sha256(content).digest() != ref.digest:
        raise ContinuationCorrupt(
            f"run '{run_id}' misses its segment {ref.digest.hex()[:12]} ({ref.kind}); restore it from a backup",
            metadata={"run_id": run_id},
        )
    return content


def _messages(content: bytes) -> list[Message]:
    return [from_pb(m, Message) for m in pb.MessagesSegmentV1.FromString(content).messages]


def _messages_of(run_id: str, branch: pb.BranchV1, segments: Mapping[bytes, bytes]) -> list[Message]:
    return [m for ref in branch.segments for m in _messages(_content(run_id, ref, segments))]


class _Contents:
    """The segments of a state, decoded."""

    def __init__(self, run_id: str, state: pb.StateV1, segments: Mapping[bytes, bytes]) -> None:
        self.messages: list[Message] = []
        self.evidence: list[Evidence] = []
        self.tools: tuple[ToolSpec, ...] = ()
        agent: Agent | None = None
        for ref in state.segments:
            content = _content(run_id, ref, segments)
            match ref.kind:
                case "agent":
                    agent = from_pb(pb.AgentSegmentV1.FromString(content).agent, Agent)
                case "tools":
                    self.tools = tuple(from_pb(t, ToolSpec) for t in pb.ToolsSegmentV1.FromString(content).tools)
                case "messages":
                    self.messages += _messages(content)
                case "evidence":
                    items = pb.EvidenceSegmentV1.FromString(content).evidence
                    self.evidence += [from_pb(e, Evidence) for e in items]
                case _:
                    raise ContinuationCorrupt(f"run '{run_id}' has a segment of unknown kind '{ref.kind}'")
        if agent is None:
            raise ContinuationCorrupt(f"run '{run_id}' names no agent", metadata={"run_id": run_id})
        self.agent = agent
