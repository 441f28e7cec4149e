"""Bodies of the run routes. Names are those of the protos, so that most of a body maps as it stands."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from google.protobuf.duration_pb2 import Duration
from pydantic import Field, model_validator

from proctor.orchestrator.v1 import run_service_pb2 as pb
from services.gateway.bodies.base import Body
from services.gateway.protojson import from_json

CallId = Annotated[str, Field(min_length=1, max_length=128)]
Seconds = Annotated[float, Field(ge=0, le=86_400, description="Seconds; 0 ends the stream right after a pause.")]


class Media(Body):
    """Bytes with a type: base64 inline, a stored artifact, or a URL for the model provider to fetch."""

    media_type: str = Field(default="", max_length=255)
    name: str | None = Field(default=None, max_length=255)
    inline: str | None = Field(default=None, description="The bytes in base64.")
    artifact_id: str | None = Field(default=None, max_length=64)
    url: str | None = Field(default=None, max_length=8192)


class Part(Body):
    """One piece of a message: exactly one of text, image and file."""

    text: str | None = None
    image: Media | None = None
    file: Media | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Part:
        if sum(value is not None for value in (self.text, self.image, self.file)) != 1:
            raise ValueError("give exactly one of 'text', 'image' and 'file'")
        return self


Content = Annotated[str | list[Part], Field(description="Text, or parts in order.")]


class ToolCall(Body):
    """A call in an earlier assistant message."""

    call_id: CallId
    name: str = Field(min_length=1, max_length=128)
    arguments_json: dict[str, Any] = Field(default_factory=dict)


class Message(Body):
    """One earlier message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Content = ""
    tool_calls: list[ToolCall] = Field(default_factory=list, max_length=128)
    tool_call_id: str | None = Field(default=None, max_length=128)
    tool_name: str | None = Field(default=None, max_length=128)
    reasoning: str | None = None


class Sampling(Body):
    """Sampling; what is left out is the agent's or the model's."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    max_output_tokens: int | None = Field(default=None, ge=1, le=2**31 - 1)
    stop: list[str] | None = Field(default=None, max_length=16)
    seed: int | None = Field(default=None, ge=-(2**63), le=2**63 - 1)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None


class Searching(Body):
    """How sources are searched; what is left out is the agent's or the retrieval service's."""

    retriever: str = Field(default="", max_length=64, description="Named retriever, such as hybrid or lexical.")
    top_k: int = Field(default=0, ge=0, le=50, description="Most passages of one search; 0 is 6.")
    max_characters: int = Field(default=0, ge=0, le=200_000, description="Of all its passages; 0 is 12,000.")


class Output(Body):
    """Form of the answer."""

    json_mode: bool | None = None
    json_schema: dict[str, Any] | None = None
    name: str | None = Field(default=None, max_length=64)


class ClientTool(Body):
    """A tool the caller executes itself."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str = Field(default="", max_length=16_384)
    parameters_json: dict[str, Any] = Field(default_factory=dict)


class Budget(Body):
    """Caps that lower the agent's."""

    rounds: int | None = Field(default=None, ge=1, le=2**31 - 1)
    tool_calls: int | None = Field(default=None, ge=0, le=2**31 - 1)
    tokens: int | None = Field(default=None, ge=1, le=2**63 - 1)
    cost_micros: int | None = Field(default=None, ge=0, le=2**63 - 1)
    wall_time: Seconds | None = None


class StartRun(Body):
    """What to ask. `input` alone is enough."""

    input: Content = ""
    conversation_id: str | None = Field(default=None, max_length=64)
    history: list[Message] | None = Field(default=None, max_length=2000)
    agent_id: str | None = Field(default=None, max_length=128, description="Id or name; left out: the default agent.")
    inline_agent: dict[str, Any] | None = Field(default=None, description="A whole agent (proctor.agent.v1.Agent).")
    model: str | None = Field(default=None, max_length=256)
    sources: list[str] | None = Field(default=None, max_length=64)
    attachments: list[str] | None = Field(default=None, max_length=32)
    sampling: Sampling | None = None
    searching: Searching | None = None
    output: Output | None = None
    client_tools: list[ClientTool] | None = Field(default=None, max_length=128)
    hold: Seconds | None = None
    on_disconnect: Literal["continue", "cancel"] | None = None
    on_retraction: Literal["emit", "fail", "hold"] | None = None
    unattended: bool | None = None
    budget: Budget | None = None
    labels: dict[str, str] | None = Field(default=None, max_length=16)
    instructions: str | None = Field(default=None, max_length=262_144)
    supersede_message_id: str | None = Field(default=None, max_length=64)
    client_tools_end_run: bool | None = None
    tool_choice: str | None = Field(default=None, max_length=128)
    request_id: str | None = Field(default=None, max_length=128, description="A retry with the same id and body joins.")

    def to_proto(self) -> pb.StartRunRequest:
        """Return the request as the orchestrator takes it; `request_id` stays empty when none was given."""
        value = self.given()
        if "input" in value:
            value["input"] = parts(value["input"])
        if "history" in value:
            value["history"] = [_message(message) for message in value["history"]]
        if "hold" in value:
            value["hold"] = seconds(value["hold"])
        if "wall_time" in value.get("budget", {}):
            value["budget"]["wall_time"] = seconds(value["budget"]["wall_time"])
        for name in ("on_disconnect", "on_retraction"):
            if name in value:
                value[name] = f"{name}_{value[name]}".upper()
        return from_json(value, pb.StartRunRequest())


class ApprovalVerdict(Body):
    """A decision on an approval."""

    verdict: Literal["approve", "deny", "edit"]
    arguments: dict[str, Any] | None = Field(default=None, description="For edit: the arguments to run instead.")
    remember: Literal["once", "conversation", "always"] | None = None
    comment: str = Field(default="", max_length=4096)

    @model_validator(mode="after")
    def _arguments_for_edit_only(self) -> ApprovalVerdict:
        if (self.verdict == "edit") != (self.arguments is not None):
            raise ValueError("'arguments' goes with the verdict 'edit', and only with it")
        if self.remember is not None and self.verdict != "approve":
            raise ValueError("'remember' goes with the verdict 'approve' only")
        return self

    def to_proto(self) -> pb.ApprovalDecision:
        """Return the decision."""
        value: dict[str, Any] = {"comment": self.comment}
        if self.verdict == "edit":
            value["edit"] = {"arguments_json": self.arguments}
        elif self.verdict == "deny":
            value["deny"] = {}
        else:
            remember = {"remember": f"ALLOW_SCOPE_{self.remember.upper()}"} if self.remember else {}
            value["approve"] = remember
        return from_json(value, pb.ApprovalDecision())


class Answers(Body):
    """Answers to questions."""

    answers: dict[str, Any] = Field(default_factory=dict)
    skipped: bool = False


class ClientToolResult(Body):
    """What the caller's tool gave."""

    result: Content = ""
    failed: bool = False


class ContinueWith(Body):
    """The message to go on with; without one the run ends."""

    input: Content = ""


class Decision(Body):
    """One decision for one pending call: exactly one of the four kinds."""

    call_id: CallId
    approval: ApprovalVerdict | None = None
    answers: Answers | None = None
    client_tool: ClientToolResult | None = None
    continue_with: ContinueWith | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Decision:
        kinds = (self.approval, self.answers, self.client_tool, self.continue_with)
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("give exactly one of 'approval', 'answers', 'client_tool' and 'continue_with'")
        return self

    def to_proto(self) -> pb.CallDecision:
        """Return the decision."""
        decision = pb.CallDecision(call_id=self.call_id)
        if self.approval is not None:
            decision.approval.CopyFrom(self.approval.to_proto())
        elif self.answers is not None:
            value: dict[str, Any] = {"skipped": self.answers.skipped}
            if not self.answers.skipped:
                value["answers_json"] = self.answers.answers
            from_json({"answers": value}, decision)
        elif self.client_tool is not None:
            result = {"result": parts(self.client_tool.given().get("result", "")), "failed": self.client_tool.failed}
            from_json({"client_tool": result}, decision)
        elif self.continue_with is not None:
            from_json({"continue_with": {"input": parts(self.continue_with.given().get("input", ""))}}, decision)
        return decision


class ResumeRun(Body):
    """Decisions, or free text that answers the only pending question."""

    decisions: list[Decision] = Field(default_factory=list, max_length=128)
    text: str = Field(default="", max_length=262_144)
    after: int = Field(
        default=0, ge=0, le=2**63 - 1, description="Stream events after this sequence; 0: from the resume on."
    )
    hold: Seconds | None = None

    def to_proto(self, run_id: str) -> pb.ResumeRunRequest:
        """Return the request."""
        request = pb.ResumeRunRequest(run_id=run_id, text=self.text, after_sequence=self.after)
        request.decisions.extend(decision.to_proto() for decision in self.decisions)
        if self.hold is not None:
            request.hold.CopyFrom(duration(self.hold))
        return request


def parts(content: str | list[Any]) -> list[Any]:
    """Return content as a list of parts; empty text is no part."""
    if isinstance(content, str):
        return [{"text": content}] if content else []
    return content


def seconds(value: float) -> str:
    """Return seconds as proto3 JSON has a duration."""
    return f"{value:.3f}s"


def duration(value: float) -> Duration:
    """Return seconds as a protobuf duration."""
    result = Duration()
    result.FromMilliseconds(round(value * 1000))
    return result


def _message(value: dict[str, Any]) -> dict[str, Any]:
    content = value.pop("content", "")
    return {**value, "role": f"ROLE_{value['role'].upper()}", "parts": parts(content)}
