"""An agent as data. Mirrors `proctor.agent.v1.Agent`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum

from services.orchestrator.domain.messages import Budget, OutputFormat, Sampling


class AgentType(IntEnum):
    """Which strategy an agent follows. Numbers equal the proto's."""

    CLASSIC = 1
    AGENTIC = 2
    RESEARCH = 3
    WORKFLOW = 4


class Exposure(IntEnum):
    """How an agent may use a source. Numbers equal the proto's; DEFAULT is the agent type's own."""

    DEFAULT = 0
    PREFETCH = 1
    AGENTIC = 2


class ToolPolicy(IntEnum):
    """How an agent's tool is allowed. Numbers equal the proto's; DEFAULT is the tool's own."""

    DEFAULT = 0
    ALLOW = 1
    ASK = 2
    DENY = 3
    QUORUM = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBinding:
    """A source an agent reads, by id or name."""

    source: str
    exposure: Exposure = Exposure.DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Searching:
    """How sources are searched for an agent; what is empty is left to the retrieval service."""

    retriever: str = ""
    top_k: int = 0
    max_characters: int = 0

    def overridden(self, over: Searching) -> Searching:
        """Return this with the fields that `over` sets."""
        return Searching(
            retriever=over.retriever or self.retriever,
            top_k=over.top_k or self.top_k,
            max_characters=over.max_characters or self.max_characters,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolBinding:
    """A tool of an agent and its policy; `when` is CEL over `args` and `principal`, empty is always."""

    tool: str
    policy: ToolPolicy = ToolPolicy.DEFAULT
    when: str = ""
    quorum: int = 0
    group: str = ""
    deadline: timedelta | None = None
    four_eyes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An agent's definition. `agent_id` equals `name` for the operator's agents.

    `prompt` is its own template, or `prompt_name` and `prompt_version` (0: the newest) refer to a kept one; what a run
    was given holds both, the template that was read and where it came from.
    """

    agent_id: str
    name: str
    type: AgentType = AgentType.AGENTIC
    description: str = ""
    model: str = ""
    prompt: str = ""
    sources: tuple[SourceBinding, ...] = ()
    tools: tuple[ToolBinding, ...] = ()
    budget: Budget = field(default_factory=Budget)
    output: OutputFormat = field(default_factory=OutputFormat)
    sampling: Sampling = field(default_factory=Sampling)
    workflow_yaml: str = ""
    version: int = 1
    read_only: bool = True
    router_json: bytes = b""
    language: str = ""
    owner: str = ""
    shared: bool = False
    prompt_name: str = ""
    prompt_version: int = 0
    updated_at: datetime | None = None
    searching: Searching = field(default_factory=Searching)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt that agents refer to by name. Mirrors `proctor.agent.v1.Prompt`."""

    prompt_id: str
    name: str
    template: str
    description: str = ""
    version: int = 1
    read_only: bool = True
    owner: str = ""
    shared: bool = False
    updated_at: datetime | None = None
