"""An orchestrator for gateway tests: real RPCs over a socket, runs that follow a script, faults on request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import Message

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import (
    agent_service_pb2,
    agent_service_pb2_grpc,
    artifact_service_pb2,
    artifact_service_pb2_grpc,
    events_pb2,
    model_service_pb2,
    model_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
)
from services.chassis.errors import ServiceError, TooLarge
from services.chassis.identity import Principal, current_principal
from services.chassis.serve import Service
from tests.support.run_events import ANSWER, journal
from tests.support.servers import nothing

TERMINAL = ("run_completed", "run_failed", "run_cancelled")


class RunNotFound(ServiceError):
    code = grpc.StatusCode.NOT_FOUND
    reason = "RUN_NOT_FOUND"


class RequestIdReused(ServiceError):
    code = grpc.StatusCode.ALREADY_EXISTS
    reason = "REQUEST_ID_REUSED"


class EventsPruned(ServiceError):
    code = grpc.StatusCode.OUT_OF_RANGE
    reason = "EVENTS_PRUNED"


@dataclass
class FakeRun:
    """A run: its owner, its events so far, and what was asked of it."""

    run_id: str
    owner: Principal
    request: run_service_pb2.StartRunRequest
    events: list[events_pb2.RunEvent] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: bool = False
    watchers: int = 0
    bytes_sent: int = 0

    def append(self, *script: tuple[str, Message | None]) -> None:
        """Write events and wake the watchers."""
        first = self.events[-1].sequence + 1 if self.events else 1
        self.events += journal(script, run_id=self.run_id, first=first)
        self.changed.set()
        self.changed = asyncio.Event()

    @property
    def ended(self) -> bool:
        return bool(self.events) and self.events[-1].WhichOneof("event") in TERMINAL

    @property
    def paused(self) -> bool:
        return bool(self.events) and self.events[-1].WhichOneof("event") == "run_paused"


class FakeOrchestrator(
    run_service_pb2_grpc.RunServiceServicer,
    agent_service_pb2_grpc.AgentServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
    artifact_service_pb2_grpc.ArtifactServiceServicer,
):
    """Runs play `script`; streams of `breaks` end UNAVAILABLE after so many events; `refuse` is raised by StartRun."""

    def __init__(self) -> None:
        self.script: list[tuple[str, Message | None]] = list(ANSWER)
        self.after_resume: list[tuple[str, Message | None]] = []
        self.runs: dict[str, FakeRun] = {}
        self.by_request: dict[str, FakeRun] = {}
        self.breaks: list[int] = []
        self.refuse: ServiceError | None = None
        self.oldest = 0
        self.batch = 3
        self.watches: list[run_service_pb2.WatchRunRequest] = []
        self.resumes: list[run_service_pb2.ResumeRunRequest] = []
        self.artifacts: dict[str, tuple[agent_pb2.Artifact, bytes]] = {}
        # Keys that were told as revoked, with their tenant.
        self.ended_keys: list[tuple[str, str]] = []
        # Agents as they were sent to be kept.
        self.saved: list[agent_pb2.Agent] = []
        self.principals: list[Principal] = []

    # --- RunService

    async def StartRun(self, request: Any, context: Any) -> Any:
        if self.refuse is not None:
            raise self.refuse
        principal = current_principal()
        self.principals.append(principal)
        key = f"{principal.tenant}/{principal.user}/{request.request_id}"
        run = self.by_request.get(key)
        if run is None:
            run = FakeRun(run_id=f"run{len(self.runs) + 1}", owner=principal, request=request)
            self.runs[run.run_id] = self.by_request[key] = run
            run.append(*self.script)
        elif run.request != request:
            raise RequestIdReused("this request id came with another body")
        async for batch in self._follow(run, 0, request):
            yield run_service_pb2.StartRunResponse(events=batch)

    async def WatchRun(self, request: Any, context: Any) -> Any:
        self.watches.append(request)
        run = self._run(request.run_id)
        if request.after_sequence < self.oldest:
            raise EventsPruned("that sequence is gone", metadata={"oldest": str(self.oldest)})
        async for batch in self._follow(run, request.after_sequence, request, replay=request.replay_only):
            yield run_service_pb2.WatchRunResponse(events=batch)

    async def ResumeRun(self, request: Any, context: Any) -> Any:
        self.resumes.append(request)
        run = self._run(request.run_id)
        after = request.after_sequence or run.events[-1].sequence
        if run.paused:
            run.append(("run_resumed", events_pb2.RunResumed(cause="decision")), *self.after_resume)
        async for batch in self._follow(run, after, request):
            yield run_service_pb2.ResumeRunResponse(events=batch)

    async def CancelRun(self, request: Any, context: Any) -> Any:
        run = self._run(request.run_id)
        if not run.ended:
            run.cancelled = True
            run.append(("run_cancelled", events_pb2.RunCancelled(cancelled_by=current_principal().user)))
        return run_service_pb2.CancelRunResponse(state=run_service_pb2.RunState.RUN_STATE_RUNNING)

    async def GetRun(self, request: Any, context: Any) -> Any:
        return run_service_pb2.GetRunResponse(run=self._summary(self._run(request.run_id)))

    async def ListRuns(self, request: Any, context: Any) -> Any:
        tenant = current_principal().tenant
        mine = [self._summary(run) for run in self.runs.values() if run.owner.tenant == tenant]
        runs = [run for run in mine if not request.states or run.state in request.states]
        return run_service_pb2.ListRunsResponse(runs=reversed(runs))

    def _run(self, run_id: str) -> FakeRun:
        run = self.runs.get(run_id)
        if run is None or run.owner.tenant != current_principal().tenant:
            raise RunNotFound(f"there is no run '{run_id}'")
        return run

    def _summary(self, run: FakeRun) -> run_service_pb2.Run:
        states = {
            "run_completed": run_service_pb2.RunState.RUN_STATE_COMPLETED,
            "run_failed": run_service_pb2.RunState.RUN_STATE_FAILED,
            "run_cancelled": run_service_pb2.RunState.RUN_STATE_CANCELLED,
            "run_paused": run_service_pb2.RunState.RUN_STATE_PAUSED,
        }
        kind = run.events[-1].WhichOneof("event") or ""
        conversation = "" if run.request.history else "c1"
        pending = run.events[-1].run_paused.pending if run.paused else ()
        return run_service_pb2.Run(
            run_id=run.run_id,
            conversation_id=conversation,
            state=states.get(kind, run_service_pb2.RunState.RUN_STATE_RUNNING),
            last_sequence=run.events[-1].sequence,
            pending=pending,
            user=run.owner.user,
            request_id=run.request.request_id,
            labels=run.request.labels,
        )

    async def _follow(self, run: FakeRun, after: int, request: Any, *, replay: bool = False) -> AsyncIterator[Any]:
        left = self.breaks.pop(0) if self.breaks else None
        run.watchers += 1
        try:
            while True:
                changed = run.changed
                fresh = [event for event in run.events if event.sequence > after]
                for index in range(0, len(fresh), self.batch):
                    batch = fresh[index : index + self.batch]
                    if left is not None:
                        batch, left = batch[:left], left - len(batch)
                    if batch:
                        yield batch
                        after = batch[-1].sequence
                        run.bytes_sent += sum(event.ByteSize() for event in batch)
                    if left is not None and left <= 0:
                        raise _Broken("the replica goes away")
                if run.events[-1].sequence > after:
                    continue  # more came while a batch was on its way
                holds = request.HasField("hold") and request.hold.ToSeconds() == 0
                if run.ended or replay or (run.paused and holds):
                    return
                await changed.wait()
        finally:
            run.watchers -= 1

    async def EndKey(self, request: Any, context: Any) -> Any:
        self.ended_keys.append((current_principal().tenant, request.key_id))
        return run_service_pb2.EndKeyResponse()

    # --- AgentService, ModelService

    async def ListAgents(self, request: Any, context: Any) -> Any:
        agents = [agent_pb2.Agent(agent_id="handbook", name="handbook", description="Answers from the handbook")]
        return agent_service_pb2.ListAgentsResponse(agents=agents)

    async def GetAgent(self, request: Any, context: Any) -> Any:
        return agent_service_pb2.GetAgentResponse(agent=agent_pb2.Agent(agent_id=request.agent_id))

    async def CreateAgent(self, request: Any, context: Any) -> Any:
        self.saved.append(request.agent)
        return agent_service_pb2.CreateAgentResponse(agent=request.agent)

    async def UpdateAgent(self, request: Any, context: Any) -> Any:
        self.saved.append(request.agent)
        return agent_service_pb2.UpdateAgentResponse(agent=request.agent)

    async def DeleteAgent(self, request: Any, context: Any) -> Any:
        return agent_service_pb2.DeleteAgentResponse()

    async def ListAgentVersions(self, request: Any, context: Any) -> Any:
        return agent_service_pb2.ListAgentVersionsResponse(versions=self.saved[-1:])

    async def ListPrompts(self, request: Any, context: Any) -> Any:
        return agent_service_pb2.ListPromptsResponse(prompts=[agent_pb2.Prompt(name="polite")])

    async def GetPrompt(self, request: Any, context: Any) -> Any:
        return agent_service_pb2.GetPromptResponse(prompt=agent_pb2.Prompt(name=request.prompt_id))

    async def CreatePrompt(self, request: Any, context: Any) -> Any:
        return agent_service_pb2.CreatePromptResponse(prompt=request.prompt)

    async def UpdatePrompt(self, request: Any, context: Any) -> Any:
        return agent_service_pb2.UpdatePromptResponse(prompt=request.prompt)

    async def DeletePrompt(self, request: Any, context: Any) -> Any:
        return agent_service_pb2.DeletePromptResponse()

    async def ListPromptVersions(self, request: Any, context: Any) -> Any:
        return agent_service_pb2.ListPromptVersionsResponse(versions=[agent_pb2.Prompt(name=request.prompt_id)])

    async def CreateModel(self, request: Any, context: Any) -> Any:
        return model_service_pb2.CreateModelResponse(model=_own(request.definition))

    async def UpdateModel(self, request: Any, context: Any) -> Any:
        return model_service_pb2.UpdateModelResponse(model=_own(request.definition))

    async def DeleteModel(self, request: Any, context: Any) -> Any:
        return model_service_pb2.DeleteModelResponse()

    async def ListModels(self, request: Any, context: Any) -> Any:
        model = model_service_pb2.Model(model_id="reader", is_default=True, owner="operator", window=8000)
        return model_service_pb2.ListModelsResponse(models=[model])

    # --- ArtifactService

    async def GetArtifact(self, request: Any, context: Any) -> Any:
        artifact, data = self.artifacts[request.artifact_id]
        yield artifact_service_pb2.GetArtifactResponse(artifact=artifact)
        for index in range(0, len(data), 65536):
            yield artifact_service_pb2.GetArtifactResponse(chunk=data[index : index + 65536])

    async def UploadAttachment(self, request_iterator: Any, context: Any) -> Any:
        name, size = "", 0
        async for message in request_iterator:
            if message.HasField("header"):
                name = message.header.name
            size += len(message.chunk)
        if size > 10_000_000:
            raise TooLarge("an attachment may have 10 MB")
        return artifact_service_pb2.UploadAttachmentResponse(
            artifact=agent_pb2.Artifact(artifact_id="f" * 32, name=name, size=size)
        )


def _own(definition: model_service_pb2.ModelDefinition) -> model_service_pb2.Model:
    return model_service_pb2.Model(
        model_id="own-1", own=True, name=definition.name, base_url=definition.base_url, has_key=bool(definition.api_key)
    )


class _Broken(ServiceError):
    code = grpc.StatusCode.UNAVAILABLE
    reason = "UNAVAILABLE"


def orchestrator_service(fake: FakeOrchestrator) -> Service:
    """Return the fake as a service that the test servers can run."""

    def register(server: grpc.aio.Server) -> None:
        run_service_pb2_grpc.add_RunServiceServicer_to_server(fake, server)
        agent_service_pb2_grpc.add_AgentServiceServicer_to_server(fake, server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(fake, server)
        artifact_service_pb2_grpc.add_ArtifactServiceServicer_to_server(fake, server)

    names = ("RunService", "AgentService", "ModelService", "ArtifactService")
    return _service("orchestrator", register, (f"proctor.orchestrator.v1.{name}" for name in names))


def _service(name: str, register: Callable[[grpc.aio.Server], None], services: Iterable[str]) -> Service:
    return Service(
        name=name, register=register, grpc_services=tuple(services), start=nothing, drain=nothing, close=nothing
    )
