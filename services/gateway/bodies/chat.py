"""Body of Chat Completions and the run it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import run_service_pb2 as pb
from services.chassis.canonical import canonical_json
from services.chassis.errors import FieldViolation
from services.gateway import pauses
from services.gateway.bodies.base import Body
from services.gateway.bodies.openai_content import content_parts, text_of, tool_call
from services.gateway.problems import BadInput

AGENT_PREFIX = "agent/"
INSTRUCTION_ROLES = ("system", "developer")


class ChatMessage(BaseModel):
    """One message."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Any = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="allow")

    include_usage: bool = False


class Extension(Body):
    """Our own options, in the member `proctor`."""

    agent: str | None = Field(default=None, max_length=128)
    sources: list[str] | None = Field(default=None, max_length=64)
    attachments: list[str] | None = Field(default=None, max_length=32)
    conversation_id: str | None = Field(default=None, max_length=64)
    footnotes: bool = Field(default=False, description="Add the cited sources to the answer as markdown footnotes.")
    approvals: Literal["tool_call", "wait"] | None = Field(
        default=None, description="Ask the caller by a tool call, or wait until somebody decides elsewhere."
    )


class ChatRequest(BaseModel):
    """A request of Chat Completions. Members we do not use are listed in the answer's `proctor.ignored`."""

    model_config = ConfigDict(extra="allow")

    model: str = ""
    messages: list[ChatMessage] = Field(min_length=1, max_length=2000)
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1, le=2**31 - 1)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=2**31 - 1)
    stop: str | list[str] | None = None
    seed: int | None = Field(default=None, ge=-(2**63), le=2**63 - 1)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = Field(default=None, max_length=128)
    tool_choice: str | dict[str, Any] | None = None
    metadata: dict[str, str] | None = Field(default=None, max_length=16)
    user: str | None = None
    store: bool | None = None
    logprobs: bool | None = None
    proctor: Extension = Field(default_factory=Extension)

    def ignored(self) -> list[str]:
        """Return the members that have no effect here."""
        return sorted(self.model_extra or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Re-sent messages that end with answers to a paused run's calls."""

    run_id: str
    request: pb.ResumeRunRequest


def to_run(body: ChatRequest, *, wait_for_approvals: bool) -> pb.StartRunRequest | Resume:
    """Return the run that the messages ask for, or the paused run they continue."""
    _refuse_unsupported(body)
    resumed = _resume(body.messages)
    if resumed is not None:
        if not wait_for_approvals:
            resumed.request.hold.SetInParent()
        return resumed
    request = pb.StartRunRequest(
        instructions="\n\n".join(text_of(m.content) for m in body.messages if m.role in INSTRUCTION_ROLES),
        on_retraction=pb.OnRetraction.ON_RETRACTION_FAIL,
        client_tools_end_run=bool(body.tools),
        sources=body.proctor.sources or (),
        attachments=body.proctor.attachments or (),
        labels=body.metadata or {},
    )
    if not wait_for_approvals:
        request.hold.SetInParent()
    name_model(request, body.model, body.proctor.agent)
    _set_messages(request, body)
    _set_sampling(request.sampling, body)
    if set_output(request.output, body.response_format or {}):
        request.on_retraction = pb.OnRetraction.ON_RETRACTION_HOLD
    request.client_tools.extend(_client_tool(tool) for tool in body.tools or ())
    request.tool_choice = tool_choice(body.tool_choice)
    return request


def name_model(request: pb.StartRunRequest, model: str, agent: str | None) -> None:
    """Set model and agent: `agent/<name>` chooses an agent, empty and `default` leave both to the service."""
    request.agent_id = agent or ""
    if model.startswith(AGENT_PREFIX):
        request.agent_id = agent or model.removeprefix(AGENT_PREFIX)
    elif model not in {"", "default"}:
        request.model = model


def set_output(output: agent_pb2.OutputFormat, form: dict[str, Any]) -> bool:
    """Set the form of the answer; return whether one was asked for."""
    match form.get("type", "text"):
        case "text":
            return False
        case "json_object":
            output.json_mode = True
        case "json_schema":
            # Chat Completions nests the schema, Responses does not.
            schema = form.get("json_schema", form)
            if not isinstance(schema, dict) or not isinstance(schema.get("schema"), dict):
                raise refused("response_format", "'json_schema' needs an object 'schema'")
            output.json_schema = canonical_json(schema["schema"])
            output.name = str(schema.get("name") or "")
        case other:
            raise refused(
                "response_format", f"the type '{other}' is not supported; use text, json_object or json_schema"
            )
    return True


def tool_choice(choice: str | dict[str, Any] | None) -> str:
    """Return the choice as a run takes it: auto, none, required or a tool's name."""
    if choice is None or isinstance(choice, str):
        return choice or ""
    name = choice.get("name") or (choice.get("function") or {}).get("name")
    if choice.get("type") == "function" and isinstance(name, str):
        return name
    raise refused("tool_choice", "give auto, none, required, or the name of a function")


def refused(field: str, description: str) -> BadInput:
    """Return the error for a member that cannot be served."""
    return BadInput(f"'{field}': {description}", violations=[FieldViolation(field=field, description=description)])


def _refuse_unsupported(body: ChatRequest) -> None:
    if body.n is not None and body.n != 1:
        raise refused("n", "one run gives one answer; send n requests for n answers")
    if body.logprobs:
        raise refused("logprobs", "log probabilities are not available")


def _resume(messages: list[ChatMessage]) -> Resume | None:
    """Return the resume that trailing tool messages are, None when they answer no paused run."""
    answers: list[tuple[str, Any]] = []
    for message in reversed(messages):
        if message.role != "tool":
            break
        answers.append((message.tool_call_id or "", message.content))
    return resume_of(list(reversed(answers)))


def resume_of(answers: list[tuple[str, Any]]) -> Resume | None:
    """Return the resume that answers (call id, content) are; None when none belongs to a paused run."""
    pairs = [(pauses.parse(call_id), content) for call_id, content in answers]
    ours = [(pause, content) for pause, content in pairs if pause is not None]
    if not ours:
        return None
    run_ids = {pause.run_id for pause, _ in ours}
    if len(ours) != len(pairs) or len(run_ids) != 1:
        raise BadInput("answers to a paused run's calls cannot be mixed with other tool results")
    run_id = run_ids.pop()
    decisions = [pauses.decision(pause, content) for pause, content in ours]
    return Resume(run_id=run_id, request=pb.ResumeRunRequest(run_id=run_id, decisions=decisions))


def _set_messages(request: pb.StartRunRequest, body: ChatRequest) -> None:
    messages = [message for message in body.messages if message.role not in INSTRUCTION_ROLES]
    if not messages or messages[-1].role not in {"user", "tool"}:
        raise refused("messages", "the last message must be the user's or a tool's")
    if body.proctor.conversation_id:
        # The conversation knows what came before; only what is new is said.
        request.conversation_id = body.proctor.conversation_id
        request.input.extend(content_parts(messages[-1].content))
        return
    request.history.extend(rendered for message in messages if (rendered := _message(message)) is not None)
    if not request.history or not request.history[-1].parts:
        raise refused("messages", "the last message is empty")


def _message(message: ChatMessage) -> agent_pb2.Message | None:
    """Return a message of the history, None for one that only served a pause."""
    if message.role == "tool":
        call_id = pauses.model_call_id(message.tool_call_id or "")
        if call_id is None:
            return None
        parts = content_parts(message.content) or [agent_pb2.Part(text="(empty)")]
        return agent_pb2.Message(
            role=agent_pb2.Role.ROLE_TOOL, parts=parts, tool_call_id=call_id, tool_name=message.name or ""
        )
    own = [call for each in message.tool_calls or () if (call := _call(each)) is not None]
    parts = content_parts(message.content)
    if message.role == "assistant" and not own and not parts:
        return None
    role = agent_pb2.Role.ROLE_ASSISTANT if message.role == "assistant" else agent_pb2.Role.ROLE_USER
    return agent_pb2.Message(role=role, parts=parts, tool_calls=own, reasoning=message.reasoning_content or "")


def _call(call: dict[str, Any]) -> agent_pb2.ToolCall | None:
    function = call.get("function")
    if call.get("type", "function") != "function" or not isinstance(function, dict):
        raise refused("tool_calls", "only calls of type 'function' are supported")
    call_id = pauses.model_call_id(str(call.get("id") or ""))
    if call_id is None:
        return None
    return tool_call(call_id, str(function.get("name") or ""), str(function.get("arguments") or ""))


def _set_sampling(sampling: agent_pb2.Sampling, body: ChatRequest) -> None:
    if body.temperature is not None:
        sampling.temperature = body.temperature
    if body.top_p is not None:
        sampling.top_p = body.top_p
    most = body.max_completion_tokens or body.max_tokens
    if most is not None:
        sampling.max_output_tokens = most
    if body.seed is not None:
        sampling.seed = body.seed
    sampling.stop.extend([body.stop] if isinstance(body.stop, str) else body.stop or [])
    sampling.reasoning_effort = body.reasoning_effort or ""


def _client_tool(tool: dict[str, Any]) -> agent_pb2.ClientTool:
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict) or not function.get("name"):
        raise refused("tools", "only tools of type 'function' with a name are supported")
    return agent_pb2.ClientTool(
        name=str(function["name"]),
        description=str(function.get("description") or ""),
        parameters_json=canonical_json(function.get("parameters") or {"type": "object", "properties": {}}),
    )
