"""Bodies of the agent and prompt routes. What a GET returns may be changed and sent back as it is."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from proctor.agent.v1 import agent_pb2
from services.gateway.bodies import runs
from services.gateway.bodies.base import Body
from services.gateway.bodies.runs import seconds
from services.gateway.protojson import from_json

Name = Annotated[str, Field(max_length=128)]


def _word(value: Any) -> Any:
    """Read an enum's word from the name that a GET returns: AGENT_TYPE_CLASSIC is classic."""
    if not isinstance(value, str):
        return value
    for prefix in ("AGENT_TYPE_", "EXPOSURE_", "TOOL_POLICY_"):
        value = value.removeprefix(prefix)
    word = value.lower()
    return {"unspecified": "default", "react": "classic"}.get(word, word)


def _seconds(value: Any) -> Any:
    """Read seconds from a number, or from the text that a GET returns: `90s`."""
    if isinstance(value, str) and value.endswith("s"):
        try:
            return float(value[:-1])
        except ValueError:
            return value
    return value


def _filled(value: Any) -> Any:
    """Leave out what is empty."""
    return {name: item for name, item in value.items() if item != ""} if isinstance(value, dict) else value


def _source(value: Any) -> Any:
    return {"source": value} if isinstance(value, str) else value


def _tool(value: Any) -> Any:
    return {"tool": value} if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0, le=2_678_400, description="Seconds, or `90s`.")]


class SourceBinding(Body):
    """A source of an agent; a text alone is its name."""

    source: str = Field(min_length=1, max_length=128)
    exposure: Annotated[Literal["default", "prefetch", "agentic"], BeforeValidator(_word)] = "default"


class ToolBinding(Body):
    """A tool of an agent with its policy; a text alone is its name."""

    tool: str = Field(min_length=1, max_length=128)
    policy: Annotated[Literal["default", "allow", "ask", "deny", "quorum"], BeforeValidator(_word)] = "default"
    when: str = Field(default="", max_length=4096, description="CEL over `args` and `principal`.")
    quorum: int = Field(default=0, ge=0, le=2**31 - 1)
    group: Name = ""
    deadline: Seconds | None = None
    four_eyes: bool = False


class Budget(runs.Budget):
    """Caps of a run."""

    wall_time: Seconds | None = None


class Agent(Body):
    """An agent. Id, owner and time are the service's; the version is the one that was read."""

    name: Name = ""
    description: str = Field(default="", max_length=4096)
    type: Annotated[Literal["default", "classic", "agentic", "research", "workflow"], BeforeValidator(_word)] = (
        "agentic"
    )
    model: str = Field(default="", max_length=256)
    prompt: str = Field(default="", max_length=262_144, description="Jinja template of its own.")
    prompt_name: str = Field(default="", max_length=128, description="A kept prompt instead.")
    prompt_version: int = Field(default=0, ge=0, le=2**31 - 1, description="0 is the newest.")
    sources: list[Annotated[SourceBinding, BeforeValidator(_source)]] = Field(default_factory=list, max_length=128)
    tools: list[Annotated[ToolBinding, BeforeValidator(_tool)]] = Field(default_factory=list, max_length=256)
    budget: Budget | None = None
    output: Annotated[runs.Output, BeforeValidator(_filled)] | None = None
    sampling: Annotated[runs.Sampling, BeforeValidator(_filled)] | None = None
    searching: Annotated[runs.Searching, BeforeValidator(_filled)] | None = None
    workflow_yaml: str = Field(default="", max_length=1_048_576)
    router_json: dict[str, Any] | None = None
    language: str = Field(default="", max_length=35)
    shared: bool = Field(default=False, description="Whether everybody of the tenant may use it.")
    version: int = Field(default=0, ge=0, le=2**31 - 1, description="The version that was read; 0 overwrites.")
    agent_id: str | None = Field(default=None, max_length=128, description="Ignored.")
    owner: str | None = Field(default=None, max_length=256, description="Ignored.")
    read_only: bool | None = Field(default=None, description="Ignored.")
    updated_at: str | None = Field(default=None, max_length=64, description="Ignored.")

    def to_proto(self) -> agent_pb2.Agent:
        """Return the agent without what the service sets."""
        value = self.model_dump(
            exclude_none=True, mode="json", exclude={"agent_id", "owner", "read_only", "updated_at"}
        )
        value["type"] = _named("AGENT_TYPE", value["type"])
        for source in value["sources"]:
            source["exposure"] = _named("EXPOSURE", source["exposure"])
        for tool in value["tools"]:
            tool["policy"] = _named("TOOL_POLICY", tool["policy"])
            if "deadline" in tool:
                tool["deadline"] = seconds(tool["deadline"])
        if "wall_time" in value.get("budget", {}):
            value["budget"]["wall_time"] = seconds(value["budget"]["wall_time"])
        if self.output is not None:
            value["output"] = self.output.given()
        return from_json(value, agent_pb2.Agent())


class SaveAgent(Body):
    """An agent to be kept, or only to be checked."""

    agent: Agent
    validate_only: bool = False


class Prompt(Body):
    """A prompt. Id, owner and time are the service's; the version is the one that was read."""

    name: Name = ""
    description: str = Field(default="", max_length=4096)
    template: str = Field(default="", max_length=262_144, description="Jinja; docs/agents.md has its variables.")
    shared: bool = False
    version: int = Field(default=0, ge=0, le=2**31 - 1, description="The version that was read; 0 overwrites.")
    prompt_id: str | None = Field(default=None, max_length=128, description="Ignored.")
    owner: str | None = Field(default=None, max_length=256, description="Ignored.")
    read_only: bool | None = Field(default=None, description="Ignored.")
    updated_at: str | None = Field(default=None, max_length=64, description="Ignored.")

    def to_proto(self) -> agent_pb2.Prompt:
        """Return the prompt without what the service sets."""
        value = self.model_dump(exclude={"prompt_id", "owner", "read_only", "updated_at"}, mode="json")
        return from_json(value, agent_pb2.Prompt())


class SavePrompt(Body):
    """A prompt to be kept, or only to be checked."""

    prompt: Prompt
    validate_only: bool = False


def _named(prefix: str, word: str) -> str:
    return f"{prefix}_{'UNSPECIFIED' if word == 'default' else word.upper()}"
