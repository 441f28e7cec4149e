"""Before the first round: documents are fetched where the agent wants that, and the prompt is put together."""

from __future__ import annotations

from dataclasses import replace

from services.orchestrator.agents.exposure import expose
from services.orchestrator.agents.named_tools import NamedTools
from services.orchestrator.agents.opening import opens_with_call
from services.orchestrator.agents.prompt import PromptContext, Prompts
from services.orchestrator.context.attachments import Attachments
from services.orchestrator.context.counting import counter_for
from services.orchestrator.context.room import Room
from services.orchestrator.domain.events import EvidenceAdded, Fact, Notice, Stage, StageChanged
from services.orchestrator.domain.messages import Message, Role, TextPart, text_message
from services.orchestrator.domain.state import Phase
from services.orchestrator.evidence import NOTHING_FOUND, render
from services.orchestrator.leg import Leg
from services.orchestrator.models.model_settings import VISION
from services.orchestrator.models.ports import Catalogue
from services.orchestrator.ports import Retrieval


class Preparer:
    """Makes the prompt of an agent."""

    def __init__(
        self,
        retrieval: Retrieval,
        catalogue: Catalogue,
        prompts: Prompts,
        attachments: Attachments,
        named_tools: NamedTools,
    ) -> None:
        self._retrieval = retrieval
        self._attachments = attachments
        self._catalogue = catalogue
        self._prompts = prompts
        self._named_tools = named_tools

    async def prepare(self, leg: Leg) -> bool:
        """Fetch, build the prompt, and save what came of it: afterwards the first round can begin.

        False when a tool that the template names waits for a person: it is called again once there is a decision.
        """
        spec, progress = leg.spec, leg.progress
        context = _context(leg)
        results = await self._named_tools.run(leg, context)
        if results is None:
            return False
        context = replace(context, results=results)
        facts: list[Fact] = []
        model = self._catalogue.get(spec.model)
        room = Room(window=model.window, output=spec.sampling.max_output_tokens, count=counter_for(model))
        system = self._system(leg, context)
        room.take_fixed(system, spec.tools)
        said = progress.messages[progress.turn_start :]
        read, notices = await self._attachments.read(
            said, spec.principal, spec.run_id, sees=VISION in model.capabilities
        )
        facts += notices
        turn = room.fit_question(read)
        documents = await self._fetch(leg, room, facts)
        if documents and self._prompts.places_documents(spec.agent):
            system = self._system(leg, replace(context, documents=documents))
        elif documents:
            turn = _with_documents(turn, documents)
        history = room.fit_history(progress.messages[: progress.turn_start])
        progress.replace_messages([system, *history, *turn], 1 + len(history))
        progress.pending = ()
        progress.phase = Phase.ROUND_START
        # A crash before it is written costs a search, which is made again; a prompt alone is not even written.
        if facts or not opens_with_call(spec, said):
            leg.save(*facts)
        return True

    def _system(self, leg: Leg, context: PromptContext) -> Message:
        spec = leg.spec
        text = self._prompts.render(spec.agent, context)
        return text_message(Role.SYSTEM, f"{text}\n\n{spec.instructions}" if spec.instructions else text)

    async def _fetch(self, leg: Leg, room: Room, facts: list[Fact]) -> str:
        """Return the documents that the agent prefetches, numbered and rendered; empty when it fetches none."""
        spec = leg.spec
        sources = expose(spec.agent).prefetch
        question = _question(leg)
        if sources is None or not question:
            return ""
        leg.journal.delta(StageChanged(stage=Stage.RETRIEVING, text="Searching the documents"), step_id=leg.step_id)
        earlier = tuple(m.text for m in leg.progress.messages[: leg.progress.turn_start] if m.role is Role.USER)
        result = await self._retrieval.search(
            spec.principal, question, sources=sources, history=earlier[-6:], how=spec.agent.searching
        )
        facts += [Notice(code=notice.code, text=notice.text) for notice in result.notices]
        if not result.findings:
            facts.append(Notice(code="no_results", text="The search found nothing that fits the question."))
            return NOTHING_FOUND
        findings = room.fit_documents(result.findings)
        if len(findings) < len(result.findings):
            left_out = len(result.findings) - len(findings)
            facts.append(
                Notice(code="documents_cut", text=f"{left_out} documents found do not fit the model's window.")
            )
        read, new = leg.progress.evidence.add(findings)
        facts += [EvidenceAdded(evidence=item) for item in new]
        return render(read) if read else ""


def _context(leg: Leg) -> PromptContext:
    return PromptContext(
        today=leg.clock.now(),
        tools=tuple(tool.name for tool in leg.spec.tools),
        user=leg.spec.principal.user,
        question=_question(leg),
    )


def _question(leg: Leg) -> str:
    turn = leg.progress.messages[leg.progress.turn_start :]
    return next((m.text for m in reversed(turn) if m.role is Role.USER), "").strip()


def _with_documents(turn: list[Message], documents: str) -> list[Message]:
    """Put the documents behind the question, in the user's turn: they are data, and the system prompt stays stable."""
    last = max(i for i, message in enumerate(turn) if message.role is Role.USER)
    user = turn[last]
    placed = replace(user, parts=(*user.parts, TextPart(text=f"\n\n{documents}")))
    return [*turn[:last], placed, *turn[last + 1 :]]
