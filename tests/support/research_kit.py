"""A research run around the orchestrator kit: a model that answers by what it is asked for, and restarts."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from services.chassis.canonical import canonical_json
from services.orchestrator.agents.prepare import Preparer
from services.orchestrator.consult import Consultant
from services.orchestrator.continuation import decode, encode
from services.orchestrator.domain.agent import AgentType
from services.orchestrator.domain.events import Event
from services.orchestrator.domain.messages import EvidenceKind, ToolSpec
from services.orchestrator.domain.run import Checkpoint
from services.orchestrator.domain.state import Phase
from services.orchestrator.evidence import Finding
from services.orchestrator.leg import Leg
from services.orchestrator.loop import LoopEnd
from services.orchestrator.models.ports import CallPiece, ModelEvent, ModelReply, ModelRequest, Purpose, TextPiece
from services.orchestrator.strategies.research.plan import Planner
from services.orchestrator.strategies.research.research import ResearchStrategy
from services.orchestrator.tools.ports import Tool, ToolContext, ToolResult
from tests.support.clock import SequentialIds
from tests.support.orchestrator_kit import START, Bench, FakeCatalogue, FakeJournal, FakeTool, bench, reply

Answer = ModelReply | Callable[[ModelRequest], Awaitable[ModelReply]]


@dataclass
class StepJournal(FakeJournal):
    """Also remembers to which step each event belongs."""

    tagged: list[tuple[str, Event]] = field(default_factory=list)

    def delta(self, event: Event, step_id: str = "") -> None:
        self.tagged.append((step_id, event))
        super().delta(event, step_id)

    def save(self, checkpoint: Checkpoint, *events: Event, step_id: str = "") -> None:
        self.tagged += [(step_id, event) for event in events]
        super().save(checkpoint, *events, step_id=step_id)

    async def fact(self, *events: Event, step_id: str = "", checkpoint: Checkpoint | None = None, **rest: Any) -> None:
        self.tagged += [(step_id, event) for event in events]
        await super().fact(*events, step_id=step_id, checkpoint=checkpoint, **rest)

    def steps_of(self, kind: type) -> list[str]:
        """Return the steps of the events of one class."""
        return [step for step, event in self.tagged if isinstance(event, kind)]


@dataclass
class Oracle:
    """Answers by purpose and, for steps, by the words that the step's question holds.

    `steps` maps such words to the replies of that step, one a round. A reply may be a function that waits or raises.
    """

    plan: Sequence[Answer] = ()
    steps: Mapping[str, list[Answer]] = field(default_factory=dict)
    synthesis: Sequence[Answer] = ()
    requests: list[ModelRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan, self.synthesis = list(self.plan), list(self.synthesis)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        answer = self._answers(request).pop(0)
        whole = answer if isinstance(answer, ModelReply) else await answer(request)
        if whole.text:
            yield TextPiece(text=whole.text)
        for call in whole.tool_calls:
            yield CallPiece(call_id=call.call_id, name=call.name, arguments_fragment=call.arguments_json.decode())
        yield whole

    def _answers(self, request: ModelRequest) -> list[Answer]:
        if request.purpose is Purpose.PLAN:
            return cast("list[Answer]", self.plan)
        if request.purpose is Purpose.SYNTHESIZE:
            return cast("list[Answer]", self.synthesis)
        asked = next(m.text for m in request.messages if "[Step " in m.text)
        return next(answers for words, answers in self.steps.items() if words in asked)

    def asked(self, purpose: Purpose) -> list[ModelRequest]:
        """Return the requests of one purpose."""
        return [request for request in self.requests if request.purpose is purpose]


def planned(complexity: str = "simple", *questions: str, ask: Sequence[tuple[str, Sequence[str]]] = ()) -> ModelReply:
    """Return a plan with one step for each question, or what it asks the user."""
    value = {
        "complexity": complexity,
        "steps": [{"title": f"About {question}", "question": f"What of {question}?"} for question in questions],
        "questions": [{"text": text, "options": list(options)} for text, options in ask],
    }
    return replace(reply(json.dumps(value)), value_json=canonical_json(value))


def finding(tool_name: str, **found: Sequence[str]) -> FakeTool:
    """Return a search that finds, for a query, passages of these texts."""

    async def work(arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        texts = found.get(arguments["query"], ())
        if not texts:
            return ToolResult(text="The search found nothing that fits.")
        return ToolResult(text="", findings=tuple(_passage(text) for text in texts))

    return FakeTool(name=tool_name, work=work)


def _passage(text: str) -> Finding:
    return Finding(kind=EvidenceKind.PASSAGE, title=f"Title of {text}", text=text, passage_id=text)


@dataclass
class FakePreparer:
    """Prepares nothing, but as the real one leaves the leg."""

    prepared: int = 0

    async def prepare(self, leg: Leg) -> bool:
        self.prepared += 1
        leg.progress.phase = Phase.ROUND_START
        leg.save()
        return True


@dataclass
class Stand:
    """A research run with its bench."""

    bench: Bench
    journal: StepJournal
    oracle: Oracle
    preparer: FakePreparer = field(default_factory=FakePreparer)
    catalogue: FakeCatalogue = field(default_factory=FakeCatalogue)

    async def run(self) -> tuple[LoopEnd, ModelReply | None]:
        """Let the strategy go on, as a new leg does."""
        made = self.bench
        strategy = ResearchStrategy(
            preparer=cast("Preparer", self.preparer),
            planner=Planner(Consultant(self.oracle, self.catalogue, SequentialIds("plan"))),
            loop=made.loop(self.oracle),  # type: ignore[arg-type]
            gate=made.gate,
            catalogue=self.catalogue,
            ids=SequentialIds("asked"),
        )
        return await strategy.run(made.leg)

    def restart(self, at: int = -1) -> None:
        """Put the leg where checkpoint `at` left it, as another owner finds it."""
        segments: dict[bytes, bytes] = {}
        for checkpoint in self.journal.checkpoints:
            segments |= {segment.digest: segment.content for segment in checkpoint.new_segments}
        leg = self.bench.leg
        spec, progress = decode(self.journal.checkpoints[at].head, segments)
        self.bench.leg = replace(
            leg, spec=spec, progress=progress, dedup=leg.dedup.branch(progress.seen), purpose=Purpose.ANSWER
        )

    def pause(self) -> None:
        """Save as the runner does for a pause, and come back as another owner."""
        self.journal.checkpoints.append(self.bench.leg.checkpoint())
        self.restart()


def stand(oracle: Oracle, *tools: Tool, client_tools: tuple[ToolSpec, ...] = (), **spec: Any) -> Stand:
    """Return a research run before its first step."""
    made = bench(*tools, client_tools=client_tools, **spec)
    journal = StepJournal()
    agent = replace(made.leg.spec.agent, type=AgentType.RESEARCH)
    made.leg = replace(made.leg, spec=replace(made.leg.spec, agent=agent), journal=journal)  # type: ignore[arg-type]
    made.journal = journal
    made.leg.progress.phase = Phase.PREPARE
    journal.checkpoints.append(encode(made.leg.spec, made.leg.progress, START))
    return Stand(bench=made, journal=journal, oracle=oracle)
