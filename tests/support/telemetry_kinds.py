"""One run of each kind of agent, told by telemetry: what the contract test of spans, metrics and logs looks at.

Another kind joins by one entry in KINDS: an agent whose script asks for the gated tool once, and waits once before the
last answer.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from services.chassis import names
from services.chassis.logs import JsonFormatter
from tests.support.platform import Recorded
from tests.support.suite import Suite
from tests.support.suite_steps import follow
from tests.support.upstream import Upstream
from tests.support.upstream_script import Reach, Request, Say, Script, Turn, Wait, call, fail, say

GATED = {"tool": "current_time", "policy": "TOOL_POLICY_ASK"}
QUESTION = "What is the mileage rate for cars, canary-question?"
ANSWER = "EUR 0.38 [1], canary-answer."


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of agent: the agent as the API takes it, the model's turns before the last, and the tools it executes."""

    agent: Mapping[str, Any]
    turns: tuple[Script, ...]
    tools: frozenset[str]
    # For agents whose calls come side by side: the turn of a request after `turns`, None for the last answer.
    by_request: Callable[[Request], Turn | None] | None = None
    # Whether the answer is written inside of a step.
    answers_in_a_step: bool = False


def _gated() -> Turn:
    return call("current_time", json.dumps({"reason": "to know the day"}))


def _searching() -> Turn:
    return call("search", json.dumps({"query": QUESTION, "reason": "to look it up"}))


def _agent(kind: str) -> dict[str, Any]:
    return {
        "name": kind,
        "type": f"AGENT_TYPE_{kind.upper()}",
        "sources": [{"source": "handbook"}],
        "tools": [GATED, {"tool": "search"}],
    }


WORKFLOW = f"""
nodes:
  begin: {{type: start, next: look}}
  look: {{type: tool, tool: search, arguments: {{query: "{QUESTION}"}}, next: day}}
  day: {{type: tool, tool: current_time, next: answer}}
  answer: {{type: agent, prompt: "Answer from this: {{{{ nodes.look.text }}}}", next: done}}
  done: {{type: end, output: "{{{{ nodes.answer.text }}}}"}}
"""


def _researching(request: Request) -> Turn | None:
    """Plan two steps; the first searches and asks for the gated tool, the second reports at once; then answer."""
    said = [str(message.get("content") or "") for message in request.messages]
    if "[The research is done:" in request.last_text:
        return None
    if "Plan the research" in request.last_text:
        steps = [{"title": f"Step {n}", "question": f"{QUESTION} Part {n}."} for n in (1, 2)]
        return say(json.dumps({"complexity": "simple", "steps": steps, "questions": []}))
    results = sum(message["role"] == "tool" for message in request.messages)
    if any("[Step 1 of" in text for text in said) and results < 2:
        return (_searching(), _gated())[results]
    return say("What this step found: ", "[1].")


KINDS: Mapping[str, Kind] = {
    "agentic": Kind(
        agent=_agent("agentic"),
        turns=(fail(500), _searching(), _gated()),
        tools=frozenset({"search", "current_time"}),
    ),
    "classic": Kind(agent=_agent("classic"), turns=(fail(500), _gated()), tools=frozenset({"current_time"})),
    "research": Kind(
        agent=_agent("research"),
        turns=(fail(500),),
        by_request=_researching,
        tools=frozenset({"search", "current_time"}),
    ),
    "workflow": Kind(
        agent={**_agent("workflow"), "workflow_yaml": WORKFLOW},
        turns=(fail(500),),
        tools=frozenset({"search", "current_time"}),
        answers_in_a_step=True,
    ),
}


@dataclass(slots=True, kw_only=True)
class Told:
    """What one run told. Times are wall time in seconds: when the model was let go, when the client read it."""

    kind: Kind
    run_id: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    spans: list[ReadableSpan] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    released_at: float = 0.0
    read_at: float = 0.0

    def named(self, *prefixes: str) -> list[ReadableSpan]:
        """Return the spans whose name is or begins with one of `prefixes`, by their start."""
        found = [s for s in self.spans if any(s.name == p or s.name.startswith(f"{p} ") for p in prefixes)]
        return sorted(found, key=lambda span: span.start_time or 0)

    @property
    def legs(self) -> list[ReadableSpan]:
        """Return the legs of the run, in order."""
        return self.named(names.SPAN_INVOKE_AGENT)

    @property
    def calls(self) -> list[ReadableSpan]:
        """Return the logical model calls that answer, in order."""
        chats = [span for span in self.named(names.SPAN_CHAT) if not span.name.startswith(names.SPAN_CHAT_ATTEMPT)]
        return [span for span in chats if value(span, names.LLM_PURPOSE) != "title"]

    def children(self, parent: ReadableSpan) -> list[ReadableSpan]:
        """Return the spans right below `parent`, by their start."""
        below = [s for s in self.spans if s.parent is not None and s.parent.span_id == parent.context.span_id]
        return sorted(below, key=lambda span: span.start_time or 0)

    def parent(self, span: ReadableSpan) -> ReadableSpan | None:
        """Return the span right above `span`, None for a root."""
        return next((s for s in self.spans if span.parent and s.context.span_id == span.parent.span_id), None)

    def above(self, span: ReadableSpan) -> Iterator[ReadableSpan]:
        """Yield the ancestors of `span`, the nearest first."""
        current = self.parent(span)
        while current is not None:
            yield current
            current = self.parent(current)


def value(span: ReadableSpan, name: str) -> Any:
    """Return an attribute, None when it is not set."""
    return (span.attributes or {}).get(name)


def seconds(span: ReadableSpan) -> float:
    """Return how long a span lasted."""
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


@contextmanager
def json_lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Capture what the services log, as they would write it; call what is yielded for the lines."""
    sink = io.StringIO()
    handler = logging.StreamHandler(sink)
    handler.setFormatter(JsonFormatter("suite"))
    logger = logging.getLogger("services")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lambda: [json.loads(line) for line in sink.getvalue().splitlines()]
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


async def tell(kind: Kind, suite: Suite, upstream: Upstream, recorded: Recorded) -> Told:
    """Lead one run of `kind` over an approval to its answer and return all it told."""
    recorded.exporter.clear()
    here, silence, read = asyncio.Event(), Wait(), Wait()
    upstream.reset()
    answer = Turn(steps=(Reach(event=here), silence, Say(pieces=(ANSWER[:9],)), read, Say(pieces=(ANSWER[9:],))))
    choose = kind.by_request
    if choose is None:
        upstream.script(*kind.turns, answer)
    else:
        upstream.script(*kind.turns)
        upstream.default = lambda request: choose(request) or answer
    told = Told(kind=kind)

    async def let_go() -> None:
        await here.wait()
        told.released_at = time.time()
        silence.event.set()

    with json_lines() as lines:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(let_go())
            await _read(told, suite, read.event)
            # A run that failed before its last answer must fail the test, not hold it.
            waiting.cancel()
        told.lines = lines()
    await recorded.whole(names.SPAN_INVOKE_AGENT)
    told.spans = recorded.spans()
    upstream.default = None
    return told


async def _read(told: Told, suite: Suite, first: asyncio.Event) -> None:
    """Follow the run, approve what it asks, and set `first` when a piece of the answer is here."""
    approval_id = ""
    body = {"input": QUESTION, "inline_agent": dict(told.kind.agent)}
    async with aclosing(follow(suite, "POST", "/v1/runs", body=body)) as stream:
        async for event in stream:
            told.events.append(event)
            told.run_id = event["run_id"]
            is_answer = event["kind"] == "answer_delta" and (told.kind.answers_in_a_step or not event.get("step_id"))
            if is_answer and not told.read_at:
                told.read_at = time.time()
                first.set()
            if event["kind"] == "approval_requested":
                approval_id = event["approval_requested"]["approval_id"]
            if event["kind"] == "run_paused":
                reply = await suite.http.post(f"/v1/approvals/{approval_id}/decision", json={"decision": "approve"})
                reply.raise_for_status()
