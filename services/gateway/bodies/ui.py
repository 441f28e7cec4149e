"""Body of the AI SDK's chat transport, and the run it asks for or continues."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import run_service_pb2 as pb
from services.chassis.canonical import canonical_json
from services.gateway import pauses
from services.gateway.bodies.chat import Extension, name_model, refused
from services.gateway.bodies.openai_content import media
from services.gateway.bodies.runs import duration

# Label under which a chat's runs are found again.
CHAT_LABEL = "ui_chat"
Part = dict[str, Any]


class UiMessage(BaseModel):
    """One message as the AI SDK keeps it."""

    model_config = ConfigDict(extra="allow")

    id: str = ""
    role: Literal["system", "user", "assistant"]
    parts: list[Part] = Field(default_factory=list, max_length=1000)


class UiChat(BaseModel):
    """What `DefaultChatTransport` sends, with our own options beside."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(min_length=1, max_length=128)
    messages: list[UiMessage] = Field(min_length=1, max_length=2000)
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    model: str = ""
    proctor: Extension = Field(default_factory=Extension)


def to_resume(body: UiChat) -> pb.ResumeRunRequest | None:
    """Return the resume that approval answers in the last message are; None when it holds none."""
    last = body.messages[-1]
    if last.role != "assistant":
        return None
    answered = [part["approval"] for part in last.parts if part.get("state") == "approval-responded"]
    decisions: list[pb.CallDecision] = []
    run_ids: set[str] = set()
    for approval in answered:
        pause = pauses.parse(str(approval.get("id") or "")) if isinstance(approval, dict) else None
        if pause is None or pause.kind != pauses.APPROVAL or not isinstance(approval.get("approved"), bool):
            raise refused("messages", "an approval answer names a request of this server and says true or false")
        decision = pb.CallDecision(call_id=pause.call_id)
        decision.approval.comment = str(approval.get("reason") or "")
        (decision.approval.approve if approval["approved"] else decision.approval.deny).SetInParent()
        decisions.append(decision)
        run_ids.add(pause.run_id)
    if not decisions:
        return None
    if len(run_ids) != 1:
        raise refused("messages", "answer the approvals of one run at a time")
    return pb.ResumeRunRequest(run_id=run_ids.pop(), decisions=decisions, hold=duration(0))


def to_start(body: UiChat) -> pb.StartRunRequest:
    """Return the run that the messages ask for. The same messages of a chat join the run they began."""
    if body.messages[-1].role != "user":
        raise refused("messages", "the last message must be the user's")
    request = pb.StartRunRequest(
        instructions="\n\n".join(_text(message) for message in body.messages if message.role == "system"),
        hold=duration(0),
        on_retraction=pb.OnRetraction.ON_RETRACTION_FAIL,
        sources=body.proctor.sources or (),
        attachments=body.proctor.attachments or (),
        labels={CHAT_LABEL: body.id},
    )
    name_model(request, body.model, body.proctor.agent)
    for message in body.messages:
        if message.role != "system":
            request.history.extend(_messages(message))
    if not request.history or not request.history[-1].parts:
        raise refused("messages", "the last message is empty")
    return request


def digest_of(body: UiChat) -> str:
    """Return what identifies this state of the chat."""
    said = [[message.id, message.role, message.parts] for message in body.messages]
    return hashlib.sha256(canonical_json(said)).hexdigest()[:32]


def steps_of(body: UiChat) -> dict[str, Part]:
    """Return the steps that the last message shows, by id: a leg after a decision goes on with them."""
    parts = (part for part in body.messages[-1].parts if part.get("type") == "data-step")
    return {str(part["id"]): part["data"] for part in parts if "id" in part and isinstance(part.get("data"), dict)}


def _messages(message: UiMessage) -> list[agent_pb2.Message]:
    """Return a message and, for an assistant's, the results of the calls in it."""
    parts = [part for item in message.parts if (part := _part(item)) is not None]
    if message.role == "user":
        return [agent_pb2.Message(role=agent_pb2.Role.ROLE_USER, parts=parts)]
    calls: list[agent_pb2.ToolCall] = []
    results: list[agent_pb2.Message] = []
    for item in message.parts:
        output = _output(item)
        if output is None:
            continue
        call_id, name = (
            str(item.get("toolCallId") or ""),
            str(item.get("toolName") or item["type"].removeprefix("tool-")),
        )
        calls.append(
            agent_pb2.ToolCall(call_id=call_id, name=name, arguments_json=canonical_json(item.get("input") or {}))
        )
        text = agent_pb2.Part(text=output or "(empty)")
        results.append(
            agent_pb2.Message(role=agent_pb2.Role.ROLE_TOOL, parts=[text], tool_call_id=call_id, tool_name=name)
        )
    said: list[agent_pb2.Message] = []
    if calls:
        said = [agent_pb2.Message(role=agent_pb2.Role.ROLE_ASSISTANT, tool_calls=calls), *results]
    if parts:
        said.append(agent_pb2.Message(role=agent_pb2.Role.ROLE_ASSISTANT, parts=parts))
    return said


def _output(item: Part) -> str | None:
    """Return what a finished tool part gave; None for other parts and unfinished ones."""
    kind = str(item.get("type") or "")
    if kind != "dynamic-tool" and not kind.startswith("tool-"):
        return None
    match item.get("state"):
        case "output-available":
            output = item.get("output")
            return output if isinstance(output, str) else canonical_json(output).decode()
        case "output-error":
            return str(item.get("errorText") or "failed")
        case "output-denied":
            return "The user refused this call."
        case _:
            return None


def _part(item: Part) -> agent_pb2.Part | None:
    match item.get("type"):
        case "text":
            text = str(item.get("text") or "")
            return agent_pb2.Part(text=text) if text else None
        case "file" if not str(item.get("url") or "").startswith("/v1/artifacts/"):
            media_type = str(item.get("mediaType") or "")
            attached = media(item.get("url"), media_type or "application/octet-stream")
            attached.media_type = attached.media_type or media_type
            attached.name = str(item.get("filename") or "")
            is_image = media_type.startswith("image/")
            return agent_pb2.Part(image=attached) if is_image else agent_pb2.Part(file=attached)
        case _:
            return None


def _text(message: UiMessage) -> str:
    return "".join(str(part.get("text") or "") for part in message.parts if part.get("type") == "text")
