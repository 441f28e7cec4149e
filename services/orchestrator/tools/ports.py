"""The port of a tool: what it says of itself, what it is given, what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from functools import lru_cache
from typing import Any, Protocol, TypeGuard, runtime_checkable

from services.chassis.identity import Principal
from services.orchestrator.domain.agent import Searching
from services.orchestrator.domain.events import PauseKind, ProgressStream
from services.orchestrator.domain.messages import Artifact, MediaPart, Message, Sampling, ToolSpec
from services.orchestrator.evidence import Finding
from services.orchestrator.models.ports import Purpose

DEFAULT_DEADLINE = timedelta(seconds=60)


class Effect(Enum):
    """What a repeated execution means after a crash.

    READ may run again. IDEMPOTENT runs again under the same key without a second effect. SIDE_EFFECT never runs again.
    """

    READ = "read"
    IDEMPOTENT = "idempotent"
    SIDE_EFFECT = "side_effect"


class Consent(Enum):
    """A tool's own default when no policy speaks of it."""

    ALLOW = "allow"
    ASK = "ask"
    ASK_EVERY_CALL = "ask_every_call"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """What a tool says of itself. `title` is for people; `repeatable` exempts it from exact dedup.

    `unique` allows one execution a conversation; `cooldown` refuses another call of the same name within that time.
    `per_turn` is how often it may be called in one turn. A `pause_kind` other than APPROVAL means that people answer
    the call (within `answer_time`) and nothing runs. A `narrowable` tool may be left out when there are more tools than
    a model takes and the question is about something else. The text of a `foreign` tool's result is the word of a
    stranger, and is framed as such. A `bound_only` tool is offered only to agents that name it. The result of one
    with `direct_output` is the answer.
    """

    spec: ToolSpec
    title: str
    effect: Effect
    consent: Consent
    repeatable: bool = False
    unique: bool = False
    cooldown: timedelta | None = None
    deadline: timedelta = DEFAULT_DEADLINE
    pause_kind: PauseKind = PauseKind.APPROVAL
    answer_time: timedelta | None = None
    per_turn: int | None = None
    narrowable: bool = False
    foreign: bool = False
    bound_only: bool = False
    direct_output: bool = False

    @property
    def name(self) -> str:
        """Name the model calls it by."""
        return self.spec.name


class ShowProgress(Protocol):
    """Shows output while a tool works; `fraction` of it is done, where that is known."""

    def __call__(self, stream: ProgressStream, text: str, fraction: float | None = None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolQuestions:
    """What a tool must ask the user in the middle of its work: questions in ask_user's form, as a JSON list.

    `state` is what it needs to go on: saved with the run, opaque to everybody else, without any secret.
    """

    questions_json: bytes
    state: bytes
    answer_time: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A call that goes on: its own state, and the answers by question id.

    They are empty when the user skipped the questions, None when nobody answered.
    """

    state: bytes
    answers: Mapping[str, Any] | None


class Consult(Protocol):
    """Asks a model on behalf of the run, which pays for it."""

    def window(self, purpose: Purpose) -> int:
        """Return the tokens that the model takes which would be asked, 0 when unknown."""
        ...

    async def ask(self, purpose: Purpose, messages: tuple[Message, ...], sampling: Sampling) -> str:
        """Return the reply's text. Raises ModelError."""
        ...


def _never(text: str) -> bool:
    del text
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What one execution is given besides its arguments.

    `key` is `run/round/call`, the same after a crash. `consult` asks a model. `mentioned` tells whether a text stands
    in what the user wrote or a tool returned. `progress` shows output while the tool works. `answerable` says
    that somebody is there who could answer questions; `resumed` is set when the call goes on after its own.
    """

    run_id: str
    call_id: str
    key: str
    principal: Principal
    conversation_id: str
    sources: tuple[str, ...]
    progress: ShowProgress
    questions: tuple[str, ...] = ()
    consult: Consult | None = None
    mentioned: Callable[[str], bool] = _never
    answerable: bool = True
    resumed: Resumed | None = None
    searching: Searching = field(default_factory=Searching)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool returns: text for the model, findings to be numbered, files, pictures for the next round.

    `unknown` says that nobody knows whether it took effect. With `questions` it returns nothing yet: the run asks them
    and runs the tool again with the answers.
    """

    text: str
    findings: tuple[Finding, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    images: tuple[MediaPart, ...] = ()
    failed: bool = False
    notices: tuple[tuple[str, str], ...] = field(default=())
    unknown: bool = False
    questions: ToolQuestions | None = None

    @property
    def size(self) -> int:
        """Bytes of the text and of what was found, before anything is cut."""
        return sum(len(text.encode(errors="replace")) for text in (self.text, *(f.text for f in self.findings)))


class Tool(Protocol):
    """Something an agent may call. `run` may raise: the gate turns it into a result."""

    @property
    def definition(self) -> ToolDefinition: ...

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult: ...


@runtime_checkable
class Conditional(Protocol):
    """What a tool implements beside Tool when it is not there for everybody at every time."""

    async def withheld(self, principal: Principal) -> str:
        """Return why `principal` cannot have the tool now, empty when they can. Asked at each start of a run: quick."""
        ...


@runtime_checkable
class Abandonable(Protocol):
    """What a tool implements beside Tool when something stays open while its questions wait for an answer."""

    async def abandon(self, state: bytes) -> None:
        """Let go of what was left open with `state`: nobody will answer."""
        ...


@runtime_checkable
class Tailored(Protocol):
    """What a tool implements beside Tool when it looks different to different principals."""

    def spec_for(self, principal: Principal) -> ToolSpec:
        """Return the tool as the model of `principal` sees it, under the same name."""
        ...


def is_conditional(tool: Tool) -> TypeGuard[Conditional]:
    """Whether the tool says for whom it is there. For hot paths: to look for a protocol's methods is slow."""
    return implements(type(tool), Conditional)


def is_tailored(tool: Tool) -> TypeGuard[Tailored]:
    """Whether the tool looks different to different principals. For hot paths, as `is_conditional`."""
    return implements(type(tool), Tailored)


@lru_cache
def implements(kind: type, protocol: type) -> bool:
    """Whether a class has the methods of a protocol that is checkable at runtime; looked up once."""
    return issubclass(kind, protocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provided:
    """Tools that come and go, with reasons for those that are missing and what is to be known of them."""

    tools: tuple[Tool, ...] = ()
    withheld: Mapping[str, str] = field(default_factory=dict)
    instructions: str = ""
    notices: tuple[tuple[str, str], ...] = ()


class ToolProvider(Protocol):
    """Tools that live elsewhere and differ by principal."""

    async def tools(self, principal: Principal, patterns: tuple[str, ...]) -> Provided:
        """Return the principal's tools that a pattern names (a name, or its beginning and a star; none: all). Quick."""
        ...

    async def find(self, principal: Principal, name: str) -> Tool | None:
        """Return one tool; None when there is none of that name. Raises ServiceError when that cannot be known now."""
        ...


@runtime_checkable
class Choosable(Protocol):
    """What a provider implements beside ToolProvider when it has tools that are found by their full name only."""

    async def everything(self, principal: Principal) -> Sequence[Tool]:
        """Return all tools that `principal` may give an agent."""
        ...


class Toolbox:
    """Tools by name: the suite's own, and those of `providers`."""

    def __init__(self, tools: tuple[Tool, ...], providers: tuple[ToolProvider, ...] = ()) -> None:
        self._tools = {tool.definition.name: tool for tool in sorted(tools, key=lambda tool: tool.definition.name)}
        self.providers = providers

    def provide(self, provider: ToolProvider) -> None:
        """Take another provider, asked last."""
        self.providers = (*self.providers, provider)

    def get(self, name: str) -> Tool | None:
        """Return one of the suite's own tools, or None."""
        return self._tools.get(name)

    async def find(self, principal: Principal, name: str) -> Tool | None:
        """Return a tool, or None. Raises ServiceError when its provider cannot be reached."""
        if own := self._tools.get(name):
            return own
        for provider in self.providers:
            if tool := await provider.find(principal, name):
                return tool
        return None

    async def abandon(self, principal: Principal, name: str, state: bytes) -> None:
        """Tell a tool that its questions will not be answered. Raises ServiceError as `find` does."""
        tool: object = await self.find(principal, name)
        if isinstance(tool, Abandonable):
            await tool.abandon(state)

    @property
    def names(self) -> tuple[str, ...]:
        """Names, sorted."""
        return tuple(self._tools)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All tools, by name."""
        return tuple(self._tools.values())
