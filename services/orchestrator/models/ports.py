"""The port of a language model: a request in, a stream of events out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from services.chassis.identity import Principal
from services.orchestrator.domain.messages import Message, OutputFormat, Sampling, ToolCall, ToolSpec, Usage
from services.orchestrator.domain.run import OnRetraction


class Purpose(Enum):
    """What a call is for; also the role that names a model."""

    ANSWER = "answer"
    ROUTE = "route"
    REWRITE = "rewrite"
    PLAN = "plan"
    COMPACT = "compact"
    SYNTHESIZE = "synthesize"
    TITLE = "title"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One logical call. `tool_choice` is auto, none, required or a tool's name.

    `call_id` is the id of this model call in the journal; `tenant`, `user` and `conversation_id` serve the chain key of
    stored responses and own models, never the prompt. `on_retraction` says what may happen when the stream breaks
    after its first token: withdraw and start again (EMIT), fail with the partial text (FAIL), or show nothing before
    all of it is safe (HOLD).
    """

    call_id: str
    model: str
    purpose: Purpose
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    sampling: Sampling = field(default_factory=Sampling)
    output: OutputFormat = field(default_factory=OutputFormat)
    tenant: str = ""
    user: str = ""
    conversation_id: str = ""
    on_retraction: OnRetraction = OnRetraction.EMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingPiece:
    """Reasoning text, never empty."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPiece:
    """Answer text, never empty."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPiece:
    """A fragment of a call. `call_id` is ours (unique in the run), stable over the fragments of one call."""

    call_id: str
    name: str
    arguments_fragment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retraction:
    """All pieces so far are withdrawn; the call starts again (after a break, when the request allows it)."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNotice:
    """Something people should know about how the call is served, for example a picture the model cannot see."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTiming:
    """The one measurement of a logical call that span, metric, journal and log share."""

    started_at: datetime
    queued: timedelta
    time_to_first_token: timedelta | None
    total: timedelta
    longest_stall: timedelta
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """The whole reply; always the last event of a stream that did not raise.

    `tool_calls` have canonical arguments with `reason` taken out, or `malformed_arguments`. `finish_reason` is one of
    stop, length, tool_calls, content_filter. `value_json` is the validated structured value when a form was asked for.
    """

    text: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    usage: Usage
    model: str
    timing: CallTiming
    response_id: str = ""
    fallback_from: str = ""
    value_json: bytes = b""


ModelEvent = ThinkingPiece | TextPiece | CallPiece | Retraction | ModelNotice | ModelReply


class ChatModel(Protocol):
    """A language model, or a wrapper around one.

    The stream ends with exactly one ModelReply or raises a ModelError (see errors.py). Closing the iterator stops the
    upstream call at once.
    """

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What the catalogue knows of a model. `window` and `output_limit` in tokens, 0 when unknown."""

    model_id: str
    upstream_name: str
    window: int
    output_limit: int
    capabilities: frozenset[str]
    owner: str = "operator"
    description: str = ""
    fallbacks: tuple[str, ...] = ()


class Catalogue(Protocol):
    """Which models there are and which one serves a purpose by default."""

    def get(self, model_id: str) -> ModelInfo:
        """Return the model, or raise ModelNotFound."""
        ...

    def default(self, purpose: Purpose) -> ModelInfo: ...

    def list(self) -> tuple[ModelInfo, ...]: ...


class PersonalCatalogue(Catalogue, Protocol):
    """A catalogue that also holds users' own models."""

    def get_for(self, model_id: str, principal: Principal) -> ModelInfo:
        """Return a model that `principal` may name: the operator's or their own. Raises ModelNotFound."""
        ...
