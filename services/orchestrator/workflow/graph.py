"""What a workflow is: nodes, their edges, and the state they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

# How many nodes a run may enter, unless the workflow says otherwise, and the most that it may say.
DEFAULT_STEPS = 100
MAX_STEPS = 1000


class Kind(Enum):
    """What a node does."""

    START = "start"
    AGENT = "agent"
    TOOL = "tool"
    CODE = "code"
    HTTP = "http"
    STATE = "state"
    CONDITION = "condition"
    PARALLEL = "parallel"
    APPROVAL = "approval"
    QUESTION = "question"
    NOTE = "note"
    END = "end"


class Type(Enum):
    """Type of a value. ANY is known only when the workflow runs."""

    STRING = "string"
    INT = "int"
    DOUBLE = "double"
    BOOL = "bool"
    LIST = "list"
    MAP = "map"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable of the state: its type and what it is at the start."""

    type: Type
    default: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a failing node is tried in all, and the seconds before each further try, doubled each time."""

    attempts: int = 1
    wait_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWork:
    """Where the run begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWork:
    """An agent answers `prompt` (a template): the named one, or one made of `instructions`, `tools` and `sources`.

    With an `output` (a JSON Schema) its answer is a value of that form. With `history` it reads the conversation.
    """

    prompt: str = "{{ input }}"
    agent: str = ""
    instructions: str = ""
    model: str = ""
    tools: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    output: Mapping[str, Any] = field(default_factory=dict)
    history: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolWork:
    """A tool is called with `arguments` (values)."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeWork:
    """Python runs in the sandbox. `inputs` (values) stand in a dict of that name; what it prints is the result."""

    code: str
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpWork:
    """An HTTP request. All but the method are values; `body` is sent as JSON unless it is a text."""

    url: str
    method: str = "GET"
    headers: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWork:
    """Variables are set to what their CEL expressions give; all expressions see the state as it was before."""

    set: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Where a condition leads when its CEL expression holds."""

    when: str
    next: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionWork:
    """The first branch that holds is taken, `otherwise` when none does."""

    branches: tuple[Branch, ...]
    otherwise: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelWork:
    """The branches that begin at these nodes run side by side until each has come to `join`; then that goes on."""

    branches: tuple[str, ...]
    join: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalWork:
    """A person approves `message` (a template) and `details` (values, which they may edit), or denies.

    `group` with `quorum` says who must agree. A refusal, also by time, leads to `denied`; without it the node fails.
    """

    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    denied: str = ""
    group: str = ""
    quorum: int = 0
    deadline_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionWork:
    """The user is asked; questions are those of the tool `ask_user`, their texts are templates."""

    questions: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteWork:
    """Tells the user `text` (a template) in passing. Without a way to it, it is a remark on the drawing."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndWork:
    """The run ends: with `output` (a template) or `value` (values), or as failed with `fail` (a template)."""

    output: str = ""
    value: Any = None
    fail: str = ""


Work = (
    StartWork
    | AgentWork
    | ToolWork
    | CodeWork
    | HttpWork
    | StateWork
    | ConditionWork
    | ParallelWork
    | ApprovalWork
    | QuestionWork
    | NoteWork
    | EndWork
)

# Fields that are templates, and fields that are values.
TEMPLATE_FIELDS: dict[type[Work], tuple[str, ...]] = {
    AgentWork: ("prompt", "instructions"),
    ApprovalWork: ("message",),
    NoteWork: ("text",),
    EndWork: ("output", "fail"),
}
VALUE_FIELDS: dict[type[Work], tuple[str, ...]] = {
    ToolWork: ("arguments",),
    CodeWork: ("inputs",),
    HttpWork: ("url", "headers", "query", "body"),
    ApprovalWork: ("details",),
    QuestionWork: ("questions",),
    EndWork: ("value",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A way from one node to another. `on_error` is taken when the node fails."""

    target: str
    label: str = ""
    on_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node. `timeout_seconds` of 0 is no limit of its own; people's time does not count."""

    node_id: str
    kind: Kind
    work: Work
    title: str = ""
    next: str = ""
    on_error: str = ""
    retry: Retry = field(default_factory=Retry)
    timeout_seconds: float = 0.0

    @property
    def label(self) -> str:
        """What people are shown."""
        return self.title or self.node_id

    def edges(self) -> tuple[Edge, ...]:
        """Return the ways out, in the order in which they are written."""
        return tuple(self._edges())

    def _edges(self) -> Iterator[Edge]:
        match self.work:
            case ConditionWork(branches=branches, otherwise=otherwise):
                yield from (Edge(target=branch.next, label=branch.when) for branch in branches)
                yield Edge(target=otherwise, label="else")
            case ParallelWork(branches=starts):
                yield from (Edge(target=start) for start in starts)
            case ApprovalWork(denied=denied):
                yield Edge(target=self.next, label="approved" if denied else "")
                if denied:
                    yield Edge(target=denied, label="denied")
            case EndWork():
                return
            case _:
                if self.next:
                    yield Edge(target=self.next)
        if self.on_error:
            yield Edge(target=self.on_error, label="error", on_error=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A whole workflow. `parameters` is the JSON Schema of what it takes, in expressions `args`.

    As a tool it is described by `description`; with `direct_output` its output is the answer of the agent that called
    it. `steps` bounds how many nodes one run enters.
    """

    nodes: Mapping[str, Node]
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    direct_output: bool = False
    state: Mapping[str, Variable] = field(default_factory=dict)
    steps: int = DEFAULT_STEPS

    @property
    def start(self) -> Node:
        """The node where a run begins; a checked workflow has exactly one."""
        return next(node for node in self.nodes.values() if node.kind is Kind.START)
