"""Use cases of runs: start, resume, cancel, look up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from opentelemetry import trace

from services.chassis.canonical import canonical_json
from services.chassis.clock import Clock, Ids
from services.chassis.errors import InvalidRequest, Unavailable
from services.chassis.identity import Principal
from services.chassis.logs import bound
from services.orchestrator.agents.opening import opens_with_call
from services.orchestrator.agents.roster import Roster
from services.orchestrator.artifacts import Artifacts
from services.orchestrator.budget import Caps
from services.orchestrator.context.counting import safe_estimate, total_tokens
from services.orchestrator.context.room import DEFAULT_OUTPUT
from services.orchestrator.continuation import encode
from services.orchestrator.dedup import ConversationMemory
from services.orchestrator.domain.agent import Agent, Searching, SourceBinding
from services.orchestrator.domain.events import Notice, PauseKind, RunStarted
from services.orchestrator.domain.messages import (
    Budget,
    Message,
    OutputFormat,
    Part,
    Role,
    Sampling,
    ToolSpec,
)
from services.orchestrator.domain.run import (
    NewRun,
    OnRetraction,
    Run,
    RunNotFound,
    RunNotPaused,
    RunState,
)
from services.orchestrator.domain.state import Progress, RunSpec
from services.orchestrator.guardrails.guards import NOTICE, Guards
from services.orchestrator.journal.journals import Journals
from services.orchestrator.journal.ports import RunCursor, RunStore
from services.orchestrator.models.ports import ModelInfo, PersonalCatalogue, Purpose
from services.orchestrator.offer import Offer, Offers
from services.orchestrator.ports import Approvals, Conversations, Decision, Standing
from services.orchestrator.runner import Start
from services.orchestrator.slots import FairSlots
from services.orchestrator.speak import THINKING
from services.orchestrator.titles import first_title
from services.orchestrator.workforce import Workforce

SEE_ALL = "runs:all"
KEYS = "keys"
QUESTION_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRun:
    """What a caller asks for. `digest` is SHA-256 over the request without its id."""

    request_id: str
    digest: str
    input: tuple[Part, ...] = ()
    conversation_id: str = ""
    history: tuple[Message, ...] = ()
    stateless: bool = False
    agent_id: str = ""
    inline_agent: Agent | None = None
    model: str = ""
    sources: tuple[str, ...] = ()
    attachments: tuple[str, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    searching: Searching = field(default_factory=Searching)
    output: OutputFormat | None = None
    client_tools: tuple[ToolSpec, ...] = ()
    on_retraction: OnRetraction = OnRetraction.EMIT
    unattended: bool = False
    budget: Budget = field(default_factory=Budget)
    labels: dict[str, str] = field(default_factory=dict)
    instructions: str = ""
    supersede_message_id: str = ""
    client_tools_end_run: bool = False
    tool_choice: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run as it was admitted, or as it stands when the request `joined` one that it started before."""

    run: Run
    joined: bool


class Runs:
    """Starts, resumes and stops runs on behalf of principals."""

    def __init__(
        self,
        *,
        store: RunStore,
        journals: Journals,
        workforce: Workforce,
        slots: FairSlots,
        agents: Roster,
        catalogue: PersonalCatalogue,
        offers: Offers,
        conversations: Conversations,
        approvals: Approvals,
        standing: Standing,
        artifacts: Artifacts,
        guards: Guards,
        caps: Caps,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._store = store
        self._journals = journals
        self._workforce = workforce
        self._slots = slots
        self._agents = agents
        self._catalogue = catalogue
        self._offers = offers
        self._conversations = conversations
        self._approvals = approvals
        self._standing = standing
        self._artifacts = artifacts
        self._guards = guards
        self._caps = caps
        self._clock = clock
        self._ids = ids
        self._draining = False

    async def start(self, principal: Principal, command: StartRun) -> Started:
        """Admit a run and set it going, or return the one that this request started before.

        Raises InvalidRequest, AgentNotFound, PromptNotFound, ModelNotFound, RequestIdReused, QuotaExceeded, Overloaded,
        Unavailable, InputRefused.
        """
        if self._draining:
            raise Unavailable("this replica is shutting down; try again", retry_after=1.0)
        self._slots.check()
        command, told = await self._guarded(principal, command)
        agent = await self._agent(principal, command)
        model = self._model(principal, command, agent)
        # A caller that ends runs for its own tools, or an unattended run, has nobody who could answer a question.
        answerable = not command.unattended and not command.client_tools_end_run and not command.history
        run_id = self._ids.new()
        with bound(run_id=run_id):
            offer = await self._offers.make(
                principal, agent, command.client_tools, command.tool_choice, _question(command), answerable=answerable
            )
        spec = self._spec(run_id, principal, command, agent, model.model_id, offer)
        messages, turn_start, user = await self._messages(principal, command, spec)
        progress = Progress(messages=messages, turn_start=turn_start, next_call_id=self._ids.new())
        new = self._new_run(command, spec, progress, user, principal.key_id)
        started = RunStarted(
            conversation_id=spec.conversation_id,
            agent_id=agent.agent_id,
            agent_name=agent.name,
            agent_version=agent.version,
            model=spec.model,
            user_message_id=spec.user_message_id,
            trace_id=new.run.trace_id,
            question=progress.messages[progress.turn_start].text.strip(),
            prompt_name=agent.prompt_name,
            prompt_version=agent.prompt_version,
        )
        notices = [Notice(code=code, text=text) for code, text in (*told, *offer.notices)]
        # Text of a call that the admission tells of need not wait for another commit.
        announced = opens_with_call(spec, messages[turn_start:]) and not self._slots.would_wait(principal.tenant)
        admitted = await self._journals.admit(new, started, *notices, *([THINKING] if announced else []))
        if admitted.journal is not None:
            memory = ConversationMemory.decode(admitted.tool_memory)
            self._workforce.begin(admitted.journal, spec, progress, Start(announced=announced), memory)
        return Started(run=admitted.run, joined=admitted.journal is None)

    async def resume(self, principal: Principal, run_id: str, decisions: tuple[Decision, ...], text: str) -> Run:
        """Bring decisions to a paused run and wake it; returns the run as it was.

        A finished run, or one that works, is returned as it is when no decision comes along. Raises RunNotPaused when
        one does, InvalidRequest for a call that does not wait, and what the approval service says of a wrong decision.
        Identity and quota are checked again first, so that a refusal (KeyEnded, QuotaExceeded) uses no decision up.
        """
        run = await self.get(principal, run_id)
        if run.state is RunState.PAUSED:
            await self._standing.check(run)
        if text:
            decisions = (*decisions, await self._free_text(principal, run, text))
        if not decisions:
            if run.state is RunState.PAUSED:
                await self._workforce.take_up(run_id, "decision")
            return run
        if run.state is not RunState.PAUSED:
            raise RunNotPaused(run_id, run.state)
        waiting = {pending.call_id: pending for pending in run.pending}
        for decision in decisions:
            if decision.call_id not in waiting:
                known = ", ".join(sorted(waiting)) or "none"
                raise InvalidRequest(
                    f"run '{run_id}' does not wait for call '{decision.call_id}'; it waits for: {known}",
                    metadata={"run_id": run_id, "call_id": decision.call_id},
                )
        records = {}
        async with self._workforce.expecting(run_id):
            for decision in decisions:
                approval_id = waiting[decision.call_id].approval_id
                records[approval_id] = await self._approvals.decide(principal, approval_id, run_id, decision)
            await self._workforce.take_up(run_id, "decision", records)
        return run

    async def _free_text(self, principal: Principal, run: Run, text: str) -> Decision:
        """Return `text` as the answer to the only question or continue that waits; refuse it beside an approval."""
        if len(run.pending) == 1:
            (pending,) = run.pending
            if pending.kind is PauseKind.CONTINUE:
                payload = canonical_json([{"text": text}])
                return Decision(call_id=pending.call_id, kind="continue", payload_json=payload)
            if pending.kind is PauseKind.QUESTION:
                records = await self._approvals.get(principal, [pending.approval_id])
                asked = records[pending.approval_id].question_ids if records else ()
                if len(asked) == 1:
                    return Decision(
                        call_id=pending.call_id, kind="answer", payload_json=canonical_json({asked[0]: text})
                    )
        raise InvalidRequest(
            f"run '{run.run_id}' does not wait for one free answer; send typed decisions for its pending calls",
            metadata={"run_id": run.run_id},
        )

    async def cancel(self, principal: Principal, run_id: str) -> Run:
        """Ask a run to stop, wherever it works; returns it as it was when that was recorded."""
        await self.get(principal, run_id)
        run = await self._journals.request_cancel(principal.tenant, run_id, principal.user)
        works_here = self._workforce.cancel(run_id, principal.user)
        if run.state is RunState.PAUSED and not works_here:
            await self._workforce.cancel_parked(run_id, principal.user)
        return run

    async def get(self, principal: Principal, run_id: str) -> Run:
        """Return a run of the principal's own (of the tenant with the scope `runs:all`), or raise RunNotFound."""
        run = await self._store.get(principal.tenant, run_id)
        if run.user != principal.user and not _sees_all(principal):
            raise RunNotFound(run_id)
        return run

    async def page(
        self,
        principal: Principal,
        *,
        states: tuple[RunState, ...],
        conversation_id: str,
        limit: int,
        after: tuple[datetime, str] | None,
    ) -> tuple[Run, ...]:
        """Return the principal's runs, newest first, those after the cursor (created at, run id)."""
        cursor = RunCursor(created_at=after[0], run_id=after[1]) if after else None
        runs = await self._store.list(
            principal.tenant,
            principal.user,
            states=states,
            conversation_id=conversation_id,
            limit=limit,
            after=cursor,
        )
        return tuple(runs)

    async def end_key(self, principal: Principal, key_id: str) -> None:
        """Let no run that was started with a key go on after a pause. Raises PermissionDenied."""
        principal.require(KEYS)
        await self._standing.end_key(principal.tenant, key_id)

    def drain(self) -> None:
        """Admit nothing any more."""
        self._draining = True

    async def _guarded(self, principal: Principal, command: StartRun) -> tuple[StartRun, tuple[tuple[str, str], ...]]:
        """Return the command with the user's words as guardrails let them pass, and notices; raise InputRefused.

        It comes before anything is kept, so that what is hidden stands nowhere.
        """
        parts, told = await self._guards.parts(command.input, principal.tenant)
        history, more = await self._guards.history(command.history, principal.tenant)
        notices = tuple((NOTICE, text) for text in dict.fromkeys((*told, *more)))
        if parts is not command.input or history is not command.history:
            command = replace(command, input=parts, history=history)
        return command, notices

    # --- what a run is made of ------------------------------------------------------------------------------------

    async def _agent(self, principal: Principal, command: StartRun) -> Agent:
        if command.inline_agent is not None and command.agent_id:
            raise InvalidRequest("agent_id and inline_agent exclude each other; send one")
        if command.inline_agent is not None:
            agent = await self._agents.inline(principal, command.inline_agent)
        else:
            agent = await self._agents.get(principal, command.agent_id)
        if command.sources:
            marked = {binding.source: binding for binding in agent.sources}
            chosen = tuple(marked.get(source, SourceBinding(source=source)) for source in command.sources)
            agent = replace(agent, sources=chosen)
        searching = agent.searching.overridden(command.searching)
        return agent if searching == agent.searching else replace(agent, searching=searching)

    def _model(self, principal: Principal, command: StartRun, agent: Agent) -> ModelInfo:
        wanted = command.model or agent.model
        if not wanted:
            return self._catalogue.default(Purpose.ANSWER)
        if command.model or command.inline_agent is not None:
            return self._catalogue.get_for(wanted, principal)
        # A kept agent brings its owner's model to whoever may use the agent.
        return self._catalogue.get(wanted)

    def _spec(
        self, run_id: str, principal: Principal, command: StartRun, agent: Agent, model: str, offer: Offer
    ) -> RunSpec:
        stateless = command.stateless or bool(command.history)
        if stateless and command.conversation_id:
            raise InvalidRequest("history and conversation_id exclude each other; send one")
        return RunSpec(
            run_id=run_id,
            principal=replace(principal, actor="orchestrator", key_id=""),
            agent=agent,
            model=model,
            budget=self._caps.of(agent.type).resolve(agent.budget, command.budget),
            conversation_id="" if stateless else command.conversation_id or self._ids.new(),
            sampling=_overridden(agent.sampling, command.sampling),
            output=command.output if command.output is not None else agent.output,
            tools=offer.tools,
            tool_choice=command.tool_choice or "auto",
            sources=offer.sources,
            attachments=command.attachments,
            instructions="\n\n".join(part for part in (command.instructions, offer.instructions) if part),
            unattended=command.unattended,
            on_retraction=command.on_retraction,
            client_tools_end_run=command.client_tools_end_run,
            answer_message_id=self._ids.new(),
            user_message_id="" if stateless else self._ids.new(),
        )

    async def _messages(
        self, principal: Principal, command: StartRun, spec: RunSpec
    ) -> tuple[list[Message], int, Message | None]:
        """Return (all messages without the prompt, index of this turn's first one, the message to be stored)."""
        user = None
        if command.input or command.attachments:
            files = await self._artifacts.parts(principal, command.attachments)
            user = Message(
                role=Role.USER,
                parts=(*command.input, *files),
                message_id=spec.user_message_id,
                created_at=self._clock.now(),
            )
        if command.history:
            earlier = list(command.history)
        elif command.conversation_id:
            earlier = await self._earlier(principal, command.conversation_id, command.supersede_message_id)
        else:
            earlier = []
        messages = [*earlier, user] if user else earlier
        starts = [i for i, message in enumerate(messages) if message.role is Role.USER]
        if not starts or (user is None and messages[-1].role is Role.ASSISTANT):
            raise InvalidRequest("there is no question: send input, or a history that ends with a user or tool message")
        return messages, starts[-1], user if spec.conversation_id else None

    async def _earlier(self, principal: Principal, conversation_id: str, superseded: str) -> list[Message]:
        """Return the conversation's messages, those before the one that is superseded when one is."""
        stored = await self._conversations.history(principal.tenant, principal.user, conversation_id)
        earlier: list[Message] = []
        for entry in stored:
            if superseded and entry.message.message_id == superseded:
                break
            earlier.append(entry.message)
        return earlier

    def _new_run(
        self, command: StartRun, spec: RunSpec, progress: Progress, user: Message | None, key_id: str
    ) -> NewRun:
        now = self._clock.now()
        question = progress.messages[progress.turn_start].text.strip()
        context = trace.get_current_span().get_span_context()
        run = Run(
            run_id=spec.run_id,
            tenant=spec.principal.tenant,
            user=spec.principal.user,
            state=RunState.RUNNING,
            agent_id=spec.agent.agent_id,
            agent_name=spec.agent.name,
            agent_version=spec.agent.version,
            model=spec.model,
            created_at=now,
            updated_at=now,
            conversation_id=spec.conversation_id,
            request_id=command.request_id or self._ids.new(),
            question=question[:QUESTION_CHARACTERS],
            labels=command.labels,
            trace_id=f"{context.trace_id:032x}" if context.is_valid else "",
        )
        reserved = command.sampling.max_output_tokens or DEFAULT_OUTPUT
        reserved += total_tokens(progress.messages, safe_estimate)
        return NewRun(
            run=run,
            request_digest=command.digest,
            checkpoint=encode(spec, progress, now),
            user_message=user,
            title="" if command.conversation_id or not spec.conversation_id else first_title(question),
            supersede_message_id=command.supersede_message_id,
            key_id=key_id,
            reserved_tokens=reserved,
        )


def _sees_all(principal: Principal) -> bool:
    return SEE_ALL in principal.scopes or "*" in principal.scopes


def _question(command: StartRun) -> str:
    """Return the text of what is asked."""
    if command.input:
        return Message(role=Role.USER, parts=command.input).text
    return next((message.text for message in reversed(command.history) if message.role is Role.USER), "")


def _overridden(base: Sampling, over: Sampling) -> Sampling:
    """Return `base` with the fields that `over` sets."""
    return Sampling(
        temperature=base.temperature if over.temperature is None else over.temperature,
        top_p=base.top_p if over.top_p is None else over.top_p,
        max_output_tokens=base.max_output_tokens if over.max_output_tokens is None else over.max_output_tokens,
        stop=over.stop or base.stop,
        seed=base.seed if over.seed is None else over.seed,
        reasoning_effort=over.reasoning_effort or base.reasoning_effort,
    )
