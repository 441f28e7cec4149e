"""AG-UI's RunAgentInput, and the run it asks for or continues."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import run_service_pb2 as pb
from services.chassis.canonical import canonical_json
from services.gateway import pauses
from services.gateway.bodies.chat import INSTRUCTION_ROLES, Extension, name_model, refused
from services.gateway.bodies.openai_content import media, tool_call
from services.gateway.bodies.runs import duration
from services.gateway.problems import BadInput


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class AgMessage(_Open):
    """One message."""

    id: str = ""
    role: Literal["developer", "system", "assistant", "user", "tool", "reasoning", "activity"]
    content: Any = None
    toolCalls: list[dict[str, Any]] | None = None  # noqa: N815  # the wire's name
    toolCallId: str | None = None  # noqa: N815


class AgTool(_Open):
    """A tool the caller executes."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str = ""
    parameters: Any = None


class ResumeEntry(_Open):
    """An answer to one interrupt."""

    interruptId: str = Field(min_length=1, max_length=300)  # noqa: N815
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class AgInput(_Open):
    """What an AG-UI client sends; our own options go into `forwardedProps.proctor`."""

    threadId: str = Field(min_length=1, max_length=128)  # noqa: N815
    runId: str = Field(min_length=1, max_length=100)  # noqa: N815
    messages: list[AgMessage] = Field(default_factory=list, max_length=2000)
    tools: list[AgTool] = Field(default_factory=list, max_length=128)
    context: list[dict[str, Any]] = Field(default_factory=list, max_length=100)
    resume: list[ResumeEntry] = Field(default_factory=list, max_length=128)
    forwardedProps: Any = None  # noqa: N815

    @property
    def extension(self) -> Extension:
        """Our own options."""
        given = self.forwardedProps.get("proctor") if isinstance(self.forwardedProps, dict) else None
        try:
            return Extension.model_validate(given or {})
        except ValidationError as error:
            raise refused("forwardedProps.proctor", error.errors()[0]["msg"]) from error


def to_resume(body: AgInput) -> pb.ResumeRunRequest | None:
    """Return the resume that the answers are; None when there are none."""
    decisions: list[pb.CallDecision] = []
    run_ids: set[str] = set()
    for entry in body.resume:
        pause = pauses.parse(entry.interruptId)
        if pause is None:
            raise refused("resume", f"'{entry.interruptId[:80]}' is not an interrupt of this server")
        decisions.append(pauses.decision(pause, _answer(pause, entry)))
        run_ids.add(pause.run_id)
    if not decisions:
        return None
    if len(run_ids) != 1:
        raise refused("resume", "answer the interrupts of one run at a time")
    return pb.ResumeRunRequest(run_id=run_ids.pop(), decisions=decisions, hold=duration(0))


def to_start(body: AgInput, model: str = "") -> pb.StartRunRequest:
    """Return the run that the messages ask for."""
    extension = body.extension
    said = [_plain(message.content) for message in body.messages if message.role in INSTRUCTION_ROLES]
    said += [f"{item.get('description', '')}: {item.get('value', '')}" for item in body.context]
    request = pb.StartRunRequest(
        instructions="\n\n".join(said),
        hold=duration(0),
        on_retraction=pb.OnRetraction.ON_RETRACTION_FAIL,
        client_tools_end_run=bool(body.tools),
        sources=extension.sources or (),
        attachments=extension.attachments or (),
        client_tools=[_tool(tool) for tool in body.tools],
    )
    name_model(request, model, extension.agent)
    request.history.extend(message for each in body.messages if (message := _message(each)) is not None)
    last = request.history[-1] if request.history else None
    if last is None or last.role == agent_pb2.Role.ROLE_ASSISTANT or not last.parts:
        raise refused("messages", "the last message must be the user's or a tool's")
    return request


def _answer(pause: pauses.PauseId, entry: ResumeEntry) -> str:
    """Return the payload as the text that decides; giving up refuses or skips, it never allows."""
    if entry.status == "cancelled":
        return "deny" if pause.kind == pauses.APPROVAL else "skip" if pause.kind == pauses.QUESTIONS else ""
    payload = entry.payload
    if pause.kind == pauses.APPROVAL and isinstance(payload, dict) and isinstance(payload.get("approved"), bool):
        rest = {name: value for name, value in payload.items() if name != "approved"}
        verdict = (
            "edit" if payload["approved"] and "arguments" in rest else "approve" if payload["approved"] else "deny"
        )
        return json.dumps({"decision": verdict, **rest})
    return payload if isinstance(payload, str) else json.dumps(payload)


def _message(message: AgMessage) -> agent_pb2.Message | None:
    match message.role:
        case "user":
            return agent_pb2.Message(role=agent_pb2.Role.ROLE_USER, parts=_parts(message.content))
        case "assistant":
            calls = [_call(call) for call in message.toolCalls or ()]
            parts = _parts(message.content)
            if not calls and not parts:
                return None
            return agent_pb2.Message(role=agent_pb2.Role.ROLE_ASSISTANT, parts=parts, tool_calls=calls)
        case "tool":
            parts = _parts(message.content) or [agent_pb2.Part(text="(empty)")]
            return agent_pb2.Message(role=agent_pb2.Role.ROLE_TOOL, parts=parts, tool_call_id=message.toolCallId or "")
        case _:
            return None


def _parts(content: Any) -> list[agent_pb2.Part]:
    if isinstance(content, str) or content is None:
        return [agent_pb2.Part(text=content)] if content else []
    if not isinstance(content, list):
        raise BadInput("a message's 'content' is text or a list of parts")
    return [_part(item) for item in content if isinstance(item, dict)]


def _part(item: dict[str, Any]) -> agent_pb2.Part:
    kind, source = item.get("type"), item.get("source")
    if kind == "text":
        return agent_pb2.Part(text=str(item.get("text") or ""))
    if not isinstance(source, dict):
        raise BadInput(f"a part of type '{kind}' needs a 'source'")
    media_type = str(source.get("mimeType") or "")
    url = source.get("value") if source.get("type") == "url" else f"data:{media_type};base64,{source.get('value')}"
    attached = media(url, media_type or "application/octet-stream")
    return agent_pb2.Part(image=attached) if kind == "image" else agent_pb2.Part(file=attached)


def _call(call: dict[str, Any]) -> agent_pb2.ToolCall:
    function = call.get("function")
    named = function if isinstance(function, dict) else {}
    return tool_call(str(call.get("id") or ""), str(named.get("name") or ""), str(named.get("arguments") or ""))


def _tool(tool: AgTool) -> agent_pb2.ClientTool:
    parameters = tool.parameters or {"type": "object", "properties": {}}
    return agent_pb2.ClientTool(
        name=tool.name, description=tool.description, parameters_json=canonical_json(parameters)
    )


def _plain(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in _parts(content))
