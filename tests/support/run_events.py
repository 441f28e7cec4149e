"""Run events by the dozen: a script of kinds becomes a journal with sequences and times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.message import Message

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import events_pb2 as pb

RUN_ID = "r0123456789abcdef"
START = 1_893_499_200  # 2030-01-01T12:00:00Z


def event(
    sequence: int, kind: str, body: Message | None = None, *, run_id: str = RUN_ID, step: str = ""
) -> pb.RunEvent:
    """Return one event of `kind` (snake_case) with `body` as its content."""
    result = pb.RunEvent(run_id=run_id, sequence=sequence, attempt=1, step_id=step)
    result.at.seconds = START + sequence
    content = getattr(result, kind)
    content.SetInParent()
    if body is not None:
        content.CopyFrom(body)
    return result


def journal(script: Iterable[tuple[str, Message | None]], *, run_id: str = RUN_ID, first: int = 1) -> list[pb.RunEvent]:
    """Return the events of a script, numbered from `first`."""
    return [event(first + index, kind, body, run_id=run_id) for index, (kind, body) in enumerate(script)]


def started(question: str = "How long?", model: str = "reader") -> tuple[str, Message]:
    body = pb.RunStarted(
        conversation_id="c1",
        agent_id="handbook",
        agent_name="handbook",
        model=model,
        question=question,
        trace_id="a" * 32,
    )
    return "run_started", body


def thinking(text: str, call: str = "m1") -> tuple[str, Message]:
    return "thinking_delta", pb.ThinkingDelta(text=text, model_call_id=call)


def answer(text: str, call: str = "m1") -> tuple[str, Message]:
    return "answer_delta", pb.AnswerDelta(text=text, model_call_id=call)


def evidence(number: int, title: str = "Leave", url: str = "") -> agent_pb2.Evidence:
    return agent_pb2.Evidence(
        number=number,
        kind=agent_pb2.EvidenceKind.EVIDENCE_KIND_PASSAGE,
        title=title,
        where="Holidays",
        text="25 days a year",
        url=url,
        score=0.8,
        source_id="s1",
        document_id="d1",
        passage_id=f"p{number}",
        identity=f"p{number}",
    )


def found(number: int, **facts: Any) -> tuple[str, Message]:
    return "evidence_added", pb.EvidenceAdded(evidence=evidence(number, **facts))


def completed(text: str, *numbers: int, finish: str = "stop", **facts: Any) -> tuple[str, Message]:
    """Return a completion that cites `numbers`."""
    citations = [agent_pb2.Citation(number=n, cited=True, evidence=evidence(n, **facts)) for n in numbers]
    usage = agent_pb2.Usage(input_tokens=12, output_tokens=7, cached_input_tokens=4, reasoning_tokens=2)
    body = pb.RunCompleted(message_id="msg1", text=text, citations=citations, usage=usage, finish_reason=finish)
    return "run_completed", body


def failed(reason: str = "MODEL_STREAM_BROKEN", partial: str = "") -> tuple[str, Message]:
    return "run_failed", pb.RunFailed(
        reason=reason, message="the model went away", retryable=True, partial_text=partial
    )


def approval_requested(call_id: str = "call_1", tool: str = "run_code") -> tuple[str, Message]:
    body = pb.ApprovalRequested(
        approval_id=f"ap_{call_id}",
        call_id=call_id,
        tool=tool,
        arguments_json=b'{"code":"print(2**64)","n":18446744073709551616}',
        arguments_digest="d" * 64,
        reason="compute the sum",
        policy="run_code asks",
    )
    body.deadline.seconds = START + 120
    return "approval_requested", body


def paused(*call_ids: str, tool: str = "run_code", kind: str = "APPROVAL") -> tuple[str, Message]:
    pending = [
        pb.PendingCall(
            call_id=call_id, kind=pb.PauseKind.Value(f"PAUSE_KIND_{kind}"), approval_id=f"ap_{call_id}", tool=tool
        )
        for call_id in call_ids
    ]
    return "run_paused", pb.RunPaused(pending=pending)


def client_tool(
    call_id: str = "call_9", name: str = "get_weather", arguments: bytes = b'{"city":"Oslo"}'
) -> tuple[str, Message]:
    call = agent_pb2.ToolCall(call_id=call_id, name=name, arguments_json=arguments)
    return "client_tool_requested", pb.ClientToolRequested(call=call)


def proposed(call_id: str = "call_9", name: str = "get_weather") -> tuple[str, Message]:
    call = agent_pb2.ToolCall(call_id=call_id, name=name, arguments_json=b'{"city":"Oslo"}')
    return "tool_call_proposed", pb.ToolCallProposed(call=call, round=1)


ANSWER: list[tuple[str, Message | None]] = [
    started(),
    ("stage_changed", pb.StageChanged(stage=pb.Stage.STAGE_THINKING, text="Thinking")),
    thinking("hm"),
    found(1),
    answer("25 days "),
    answer("a year [1]."),
    completed("25 days a year [1].", 1),
]


def routed(choice: str = "agent", **scores: float) -> tuple[str, Message]:
    body = pb.RouteDecided(choice=choice, explanation="clearly the best")
    body.scores.extend(pb.LabelScore(label=label, score=score) for label, score in scores.items())
    return "route_decided", body


def planned(**titles: str) -> tuple[str, Message]:
    steps = [pb.PlanStep(step_id=step_id, title=title) for step_id, title in titles.items()]
    return "plan_made", pb.PlanMade(complexity="simple", steps=steps)


def step_started(step_id: str, title: str = "") -> tuple[str, Message]:
    return "step_started", pb.StepStarted(step_id=step_id, title=title, kind="research")


def step_finished(step_id: str, summary: str = "", *, failed: bool = False) -> tuple[str, Message]:
    return "step_finished", pb.StepFinished(step_id=step_id, summary=summary, failed=failed)


# Two steps of one title at work at once, of which the second asks a person and goes on after the decision.
STEPS: list[tuple[str, Message | None]] = [
    started(),
    routed("agent", agent=0.9, small_talk=0.1),
    planned(s1="Rates", s2="Rates"),
    step_started("s1", "Rates"),
    step_started("s2", "Rates"),
    step_finished("s1", "72"),
    proposed("call_1", "run_code"),
    approval_requested(),
    paused("call_1"),
]
AFTER_STEPS: list[tuple[str, Message | None]] = [step_finished("s2", "86"), answer("42", "m2"), completed("42")]
