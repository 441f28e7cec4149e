"""Requests and responses ⇄ use cases."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta

from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import (
    events_pb2,
    model_service_pb2,
    run_service_pb2,
)
from services.chassis.canonical import canonical_json
from services.chassis.errors import FieldViolation, InvalidRequest
from services.orchestrator.codec_reflect import from_pb, timestamp, to_pb
from services.orchestrator.domain.agent import Agent, Searching
from services.orchestrator.domain.messages import (
    Budget,
    Message,
    OutputFormat,
    Part,
    Sampling,
    ToolSpec,
)
from services.orchestrator.domain.run import OnRetraction, Run
from services.orchestrator.models.ports import ModelInfo
from services.orchestrator.ports import Decision
from services.orchestrator.runs import StartRun


def start_run(request: run_service_pb2.StartRunRequest) -> StartRun:
    """Return the command of a request; raise InvalidRequest for JSON that is none."""
    return StartRun(
        request_id=request.request_id,
        digest=request_digest(request),
        input=tuple(from_pb(part, Part) for part in request.input),  # type: ignore[arg-type]
        conversation_id=request.conversation_id,
        history=tuple(from_pb(message, Message) for message in request.history),
        stateless=request.stateless,
        agent_id=request.agent_id,
        inline_agent=from_pb(request.inline_agent, Agent) if request.HasField("inline_agent") else None,
        model=request.model,
        sources=tuple(request.sources),
        attachments=tuple(request.attachments),
        sampling=from_pb(request.sampling, Sampling) if request.HasField("sampling") else Sampling(),
        searching=from_pb(request.searching, Searching) if request.HasField("searching") else Searching(),
        output=from_pb(request.output, OutputFormat) if request.HasField("output") else None,
        client_tools=tuple(_client_tool(i, tool) for i, tool in enumerate(request.client_tools)),
        on_retraction=OnRetraction(request.on_retraction or OnRetraction.EMIT),
        unattended=request.unattended,
        budget=from_pb(request.budget, Budget) if request.HasField("budget") else Budget(),
        labels=dict(request.labels),
        instructions=request.instructions,
        supersede_message_id=request.supersede_message_id,
        client_tools_end_run=request.client_tools_end_run,
        tool_choice=request.tool_choice or "auto",
    )


def request_digest(request: run_service_pb2.StartRunRequest) -> str:
    """Return SHA-256 over what a request asks for: its id and how long its stream is held do not count."""
    same = run_service_pb2.StartRunRequest()
    same.CopyFrom(request)
    same.ClearField("request_id")
    same.ClearField("hold")
    return hashlib.sha256(same.SerializeToString(deterministic=True)).hexdigest()


def _client_tool(index: int, tool: agent_pb2.ClientTool) -> ToolSpec:
    field = f"client_tools[{index}].parameters_json"
    schema = _json(tool.parameters_json or b'{"type":"object"}', field)
    return ToolSpec(
        name=tool.name, description=tool.description, parameters_json=canonical_json(schema), client_side=True
    )


def _json(text: bytes, field: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        violation = FieldViolation(field=field, description=f"is not JSON: {error}")
        raise InvalidRequest(f"{field} is not JSON: {error}", violations=[violation]) from error


def decisions(request: run_service_pb2.ResumeRunRequest) -> tuple[Decision, ...]:
    """Return the decisions of a request."""
    return tuple(_decision(decision) for decision in request.decisions)


def _decision(message: run_service_pb2.CallDecision) -> Decision:
    call_id = message.call_id
    match message.WhichOneof("decision"):
        case "approval":
            return _verdict(call_id, message.approval)
        case "answers":
            answers = message.answers
            return Decision(call_id=call_id, kind="answer", payload_json=answers.answers_json, skipped=answers.skipped)
        case "client_tool":
            result = {"failed": message.client_tool.failed, "parts": _parts(message.client_tool.result)}
            return Decision(call_id=call_id, kind="client_tool", payload_json=canonical_json(result))
        case "continue_with":
            payload = canonical_json(_parts(message.continue_with.input))
            return Decision(call_id=call_id, kind="continue", payload_json=payload)
        case _:
            raise InvalidRequest(f"the decision for call '{call_id}' is empty; send a verdict")


def _verdict(call_id: str, message: run_service_pb2.ApprovalDecision) -> Decision:
    match message.WhichOneof("verdict"):
        case "approve":
            return Decision(call_id=call_id, kind="approve", remember=message.approve.remember, comment=message.comment)
        case "deny":
            return Decision(call_id=call_id, kind="deny", comment=message.comment)
        case "edit":
            payload = message.edit.arguments_json
            return Decision(call_id=call_id, kind="edit", payload_json=payload, comment=message.comment)
        case _:
            raise InvalidRequest(f"the decision for call '{call_id}' has no verdict; send approve, deny or edit")


def _parts(parts: object) -> list[object]:
    return [json_format.MessageToDict(part, preserving_proto_field_name=True) for part in parts]  # type: ignore[attr-defined]


def run_to_pb(run: Run) -> run_service_pb2.Run:
    """Render a run."""
    return run_service_pb2.Run(
        run_id=run.run_id,
        conversation_id=run.conversation_id,
        state=run_service_pb2.RunState.ValueType(run.state),
        agent_id=run.agent_id,
        agent_name=run.agent_name,
        agent_version=run.agent_version,
        model=run.model,
        created_at=timestamp(run.created_at),
        updated_at=timestamp(run.updated_at),
        finished_at=timestamp(run.finished_at) if run.finished_at else None,
        last_sequence=run.last_sequence,
        oldest_sequence=run.oldest_sequence,
        pending=[to_pb(pending, events_pb2.PendingCall) for pending in run.pending],
        attempt=run.attempt,
        usage=to_pb(run.usage, agent_pb2.Usage),
        question=run.question,
        failure=run.failure,
        labels=run.labels,
        trace_id=run.trace_id,
        user=run.user,
        request_id=run.request_id,
    )


def model_to_pb(model: ModelInfo, *, is_default: bool) -> model_service_pb2.Model:
    """Render a model of the catalogue."""
    return model_service_pb2.Model(
        model_id=model.model_id,
        upstream_name=model.upstream_name,
        window=model.window,
        output_limit=model.output_limit,
        capabilities=sorted(model.capabilities),
        is_default=is_default,
        owner=model.owner,
        description=model.description,
    )


def hold_of(message: Duration | None) -> timedelta | None:
    """Return how long a stream stays open over a pause; None is until the pause's own deadline."""
    return message.ToTimedelta() if message is not None else None
