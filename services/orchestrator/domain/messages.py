"""What agents and models exchange. Mirrors `proctor.agent.v1`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum


class Role(IntEnum):
    """Who speaks. Numbers equal the proto's."""

    SYSTEM = 1
    USER = 2
    ASSISTANT = 3
    TOOL = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaPart:
    """A picture or file: bytes inline, an artifact of ours, or a URL that the provider fetches itself."""

    media_type: str
    is_image: bool
    name: str = ""
    inline: bytes = b""
    artifact_id: str = ""
    url: str = ""


Part = TextPart | MediaPart


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call as the model asked for it. `arguments_json` is canonical JSON without `reason`, empty when malformed."""

    call_id: str
    name: str
    arguments_json: bytes = b""
    reason: str = ""
    malformed_arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation."""

    role: Role
    parts: tuple[Part, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    tool_name: str = ""
    reasoning: str = ""
    response_id: str = ""
    message_id: str = ""
    created_at: datetime | None = None

    @property
    def text(self) -> str:
        """All text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


def text_message(role: Role, text: str) -> Message:
    """Return a message of one text part."""
    return Message(role=role, parts=(TextPart(text=text),))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it. `parameters_json` is a canonical JSON Schema; `reason` is injected when sent."""

    name: str
    description: str
    parameters_json: bytes
    client_side: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens and money of one or more model calls; `cost_micros` in millionths of a currency unit."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0
    cost_micros: int = 0
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost_micros=self.cost_micros + other.cost_micros,
            estimated=self.estimated or other.estimated,
        )

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters; None leaves the model's default."""

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    reasoning_effort: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFormat:
    """Form of the answer: plain text by default, any JSON object, or JSON of a schema (canonical bytes)."""

    json_mode: bool = False
    json_schema: bytes = b""
    name: str = ""

    @property
    def is_text(self) -> bool:
        """Whether no form was asked for."""
        return not self.json_mode and not self.json_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Caps of a run; None takes the service's default (cost: no cap)."""

    rounds: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    wall_time: timedelta | None = None
    cost_micros: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What was spent of a budget. Waiting for people is not wall time."""

    rounds: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    wall_time: timedelta = timedelta()


class EvidenceKind(IntEnum):
    """What a piece of evidence is. Numbers equal the proto's."""

    PASSAGE = 1
    SUMMARY = 2
    WEB = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One source the model has read, with its number. `score` is negative when the search gave none."""

    number: int
    kind: EvidenceKind
    title: str
    text: str
    identity: str
    where: str = ""
    url: str = ""
    score: float = -1.0
    source_id: str = ""
    document_id: str = ""
    passage_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A piece of evidence and whether the answer cites it."""

    number: int
    cited: bool
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file kept by the orchestrator."""

    artifact_id: str
    name: str
    media_type: str
    size: int
    sha256: str
    expires_at: datetime | None = None
