"""Body of Responses, and the run it asks for, continues or answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import run_service_pb2 as pb
from services.chassis.canonical import canonical_json
from services.gateway import pauses
from services.gateway.bodies.chat import INSTRUCTION_ROLES, Extension, name_model, refused, set_output, tool_choice
from services.gateway.bodies.openai_content import content_parts, text_of, tool_call
from services.gateway.bodies.runs import duration
from services.gateway.problems import BadInput

APPROVAL_PREFIX = "mcpr_"
ANSWERS = ("function_call_output", "mcp_approval_response")
# Items of earlier responses that say nothing to the model again.
SILENT = ("reasoning", "mcp_approval_request", "mcp_list_tools")


ECHOED = {
    "background",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "previous_response_id",
    "reasoning",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
}


class Reasoning(BaseModel):
    """How much to think."""

    model_config = ConfigDict(extra="allow")

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None


class Text(BaseModel):
    """Form of the answer."""

    model_config = ConfigDict(extra="allow")

    format: dict[str, Any] | None = None


class ResponsesRequest(BaseModel):
    """A request of Responses. Members we do not use are listed in the response's `proctor.ignored`."""

    model_config = ConfigDict(extra="allow")

    model: str = ""
    input: str | list[dict[str, Any]] = ""
    instructions: str | None = Field(default=None, max_length=262_144)
    stream: bool = False
    background: bool = False
    store: bool | None = None
    previous_response_id: str | None = Field(default=None, max_length=200)
    conversation: str | dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = Field(default=None, max_length=128)
    tool_choice: str | dict[str, Any] | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    max_output_tokens: int | None = Field(default=None, ge=1, le=2**31 - 1)
    max_tool_calls: int | None = Field(default=None, ge=0, le=2**31 - 1)
    text: Text | None = None
    reasoning: Reasoning | None = None
    metadata: dict[str, str] | None = Field(default=None, max_length=16)
    proctor: Extension = Field(default_factory=Extension)

    @property
    def items(self) -> list[dict[str, Any]]:
        """The input as items."""
        if isinstance(self.input, str):
            return [{"role": "user", "content": self.input}] if self.input else []
        return self.input

    @property
    def structured(self) -> bool:
        """Whether a form of the answer is asked for."""
        return bool(self.text and self.text.format and self.text.format.get("type", "text") != "text")

    def echo(self) -> dict[str, Any]:
        """Return what the response repeats of its request."""
        given = self.model_dump(include=ECHOED, exclude_none=True, mode="json")
        for tool in given.get("tools", ()):
            tool.setdefault("strict", False)
        return given

    def ignored(self) -> list[str]:
        """Return the members that have no effect here."""
        return sorted(self.model_extra or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseId:
    """Names one leg of a run: the events after a sequence."""

    run_id: str
    after: int = 0

    def __str__(self) -> str:
        return f"resp_{self.run_id}.{self.after}" if self.after else f"resp_{self.run_id}"


def parse_response_id(text: str) -> ResponseId | None:
    """Return the leg that an id names, None when it is not one of ours."""
    prefix, _, rest = text.partition("_")
    run_id, _, after = rest.partition(".")
    if prefix != "resp" or not run_id or len(run_id) > 64 or (after and not (after.isascii() and after.isdigit())):
        return None
    return ResponseId(run_id=run_id, after=int(after or 0)) if len(after) < 19 else None


def to_resume(body: ResponsesRequest) -> pb.ResumeRunRequest | None:
    """Return the resume that trailing answers to a paused run's calls are; None when they are none."""
    answers: list[tuple[pauses.PauseId | None, dict[str, Any]]] = []
    for item in reversed(body.items):
        if item.get("type") not in ANSWERS:
            break
        answers.append((_pause_of(item), item))
    answers.reverse()
    ours = [(pause, item) for pause, item in answers if pause is not None]
    if not ours:
        return None
    run_ids = {pause.run_id for pause, _ in ours}
    if len(ours) != len(answers) or len(run_ids) != 1:
        raise BadInput("answers to a paused run's calls cannot be mixed with other outputs")
    request = pb.ResumeRunRequest(run_id=run_ids.pop(), hold=duration(0))
    request.decisions.extend(_decision(pause, item) for pause, item in ours)
    return request


def to_start(body: ResponsesRequest, conversation_id: str) -> pb.StartRunRequest:
    """Return the run that the input asks for, in a conversation when one is continued."""
    stateless = body.store is False or _has_history(body.items)
    if stateless and conversation_id:
        raise refused("input", "with previous_response_id or conversation send only what is new, and leave store on")
    request = pb.StartRunRequest(
        conversation_id=conversation_id,
        instructions="\n\n".join(_instructions(body)),
        hold=duration(0),
        on_retraction=pb.OnRetraction.ON_RETRACTION_HOLD if body.structured else pb.OnRetraction.ON_RETRACTION_FAIL,
        client_tools_end_run=stateless and bool(body.tools),
        stateless=stateless,
        sources=body.proctor.sources or (),
        attachments=body.proctor.attachments or (),
        labels=body.metadata or {},
        tool_choice=tool_choice(body.tool_choice),
    )
    name_model(request, body.model, body.proctor.agent)
    _set_input(request, body.items, stateless=stateless)
    _set_sampling(request, body)
    set_output(request.output, (body.text.format if body.text else None) or {})
    request.client_tools.extend(_client_tool(tool) for tool in body.tools or ())
    return request


def conversation_of(body: ResponsesRequest) -> str:
    """Return the conversation that the request names, or nothing."""
    named = body.conversation
    return str(named.get("id") or "") if isinstance(named, dict) else named or body.proctor.conversation_id or ""


def _pause_of(item: dict[str, Any]) -> pauses.PauseId | None:
    if item["type"] == "mcp_approval_response":
        pause = pauses.parse(str(item.get("approval_request_id") or "").removeprefix(APPROVAL_PREFIX))
        if pause is None:
            raise refused(
                "approval_request_id", f"'{item.get('approval_request_id')}' is not an approval request of ours"
            )
        return pause
    return pauses.parse(str(item.get("call_id") or ""))


def _decision(pause: pauses.PauseId, item: dict[str, Any]) -> pb.CallDecision:
    if item["type"] != "mcp_approval_response":
        if pause.kind == pauses.APPROVAL:
            raise BadInput("an approval is answered by an 'mcp_approval_response', not by an output; nothing was run")
        return pauses.decision(pause, item.get("output"))
    if pause.kind != pauses.APPROVAL or not isinstance(item.get("approve"), bool):
        raise refused("approve", "an approval response says true or false, and answers an approval request")
    decision = pb.CallDecision(call_id=pause.call_id)
    decision.approval.comment = str(item.get("reason") or "")
    verdict = decision.approval.approve if item["approve"] else decision.approval.deny
    verdict.SetInParent()
    return decision


def _has_history(items: list[dict[str, Any]]) -> bool:
    """Whether the input repeats earlier turns instead of only saying what is new."""
    return any(item.get("role") == "assistant" or item.get("type", "message") != "message" for item in items)


def _instructions(body: ResponsesRequest) -> list[str]:
    said = [body.instructions] if body.instructions else []
    return said + [text_of(item.get("content")) for item in body.items if item.get("role") in INSTRUCTION_ROLES]


def _set_input(request: pb.StartRunRequest, items: list[dict[str, Any]], *, stateless: bool) -> None:
    said = [item for item in items if item.get("role") not in INSTRUCTION_ROLES]
    if not stateless:
        for item in said:
            request.input.extend(content_parts(item.get("content")))
        if not request.input:
            raise refused("input", "there is nothing to answer")
        return
    for item in said:
        request.history.extend(_messages(item))
    last = request.history[-1] if request.history else None
    if last is None or last.role == agent_pb2.Role.ROLE_ASSISTANT or not last.parts:
        raise refused("input", "the last item must be the user's message or a function's output")


def _messages(item: dict[str, Any]) -> list[agent_pb2.Message]:
    """Return an input item as messages of the history; none for items that say nothing again."""
    kind = item.get("type", "message")
    if kind == "message":
        role = "ROLE_ASSISTANT" if item.get("role") == "assistant" else "ROLE_USER"
        parts = content_parts(item.get("content"))
        return [agent_pb2.Message(role=agent_pb2.Role.Value(role), parts=parts)] if parts else []
    if kind in SILENT or kind == "mcp_approval_response":
        return []
    if kind == "mcp_call":
        error = item.get("error")
        told = error.get("content") or error.get("message") if isinstance(error, dict) else error
        output = str(item.get("output") or told or "")
        call_id = str(item.get("id") or "")
        return [_call_message(item, call_id), _result_message(call_id, str(item.get("name") or ""), output)]
    if kind in {"function_call", "function_call_output"}:
        call_id = pauses.model_call_id(str(item.get("call_id") or "")) or ""
        if not call_id:
            return []
        return [
            _call_message(item, call_id)
            if kind == "function_call"
            else _result_message(call_id, "", item.get("output"))
        ]
    raise refused("input", f"items of type '{kind}' are not supported")


def _call_message(item: dict[str, Any], call_id: str) -> agent_pb2.Message:
    call = tool_call(call_id, str(item.get("name") or ""), str(item.get("arguments") or ""))
    return agent_pb2.Message(role=agent_pb2.Role.ROLE_ASSISTANT, tool_calls=[call])


def _result_message(call_id: str, name: str, output: Any) -> agent_pb2.Message:
    parts = content_parts(output) or [agent_pb2.Part(text="(empty)")]
    return agent_pb2.Message(role=agent_pb2.Role.ROLE_TOOL, parts=parts, tool_call_id=call_id, tool_name=name)


def _set_sampling(request: pb.StartRunRequest, body: ResponsesRequest) -> None:
    if body.temperature is not None:
        request.sampling.temperature = body.temperature
    if body.top_p is not None:
        request.sampling.top_p = body.top_p
    if body.max_output_tokens is not None:
        request.sampling.max_output_tokens = body.max_output_tokens
    if body.reasoning is not None and body.reasoning.effort:
        request.sampling.reasoning_effort = body.reasoning.effort
    if body.max_tool_calls is not None:
        request.budget.tool_calls = body.max_tool_calls


def _client_tool(tool: dict[str, Any]) -> agent_pb2.ClientTool:
    if tool.get("type") != "function" or not tool.get("name"):
        raise refused("tools", "only tools of type 'function' with a name; the agent brings its own search and tools")
    return agent_pb2.ClientTool(
        name=str(tool["name"]),
        description=str(tool.get("description") or ""),
        parameters_json=canonical_json(tool.get("parameters") or {"type": "object", "properties": {}}),
    )
