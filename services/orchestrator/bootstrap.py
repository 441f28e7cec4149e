"""Settings → adapters → service: the only place that knows every concrete class."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
from dataclasses import dataclass, field
from datetime import timedelta

from services.chassis import names
from services.chassis.database import database_url
from services.chassis.platform import Platform
from services.chassis.serve import Service
from services.chassis.settings import SettingsError
from services.orchestrator.adapters.agents_toml import check_workflow_tools, load_agents, load_prompts
from services.orchestrator.adapters.blobs import LocalBlobs
from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.adapters.sql.definitions import AGENTS, PROMPTS, SqlDefinitions
from services.orchestrator.adapters.sql.memories import SqlMemories
from services.orchestrator.adapters.sql.own_models import SqlOwnModels
from services.orchestrator.adapters.stored_media import StoredMedia
from services.orchestrator.agents.compose import Surroundings, compose_agents
from services.orchestrator.agents.directory import AgentDirectory, PromptDirectory
from services.orchestrator.agents.known_tools import ToolNames
from services.orchestrator.agents.named_tools import NamedTools
from services.orchestrator.agents.prepare import Preparer
from services.orchestrator.agents.prompt import Prompts
from services.orchestrator.artifacts import Artifacts
from services.orchestrator.budget import Caps
from services.orchestrator.carrying import Carrying
from services.orchestrator.config_faults import told_as_settings
from services.orchestrator.consent import Consents
from services.orchestrator.consult import Consultant
from services.orchestrator.context.attachments import Attachments
from services.orchestrator.context.compaction import Compactor
from services.orchestrator.continuation import READER
from services.orchestrator.execution import Executor
from services.orchestrator.gate import Gate
from services.orchestrator.guardrails.config_file import read_guardrails
from services.orchestrator.guardrails.guarded_model import GuardedModel
from services.orchestrator.guardrails.guards import Guards
from services.orchestrator.journal.feed import Feed, FeedLimits
from services.orchestrator.journal.journals import Journals
from services.orchestrator.journal.ports import LeaseTerms
from services.orchestrator.loop import Loop
from services.orchestrator.mcp.servers import McpServers
from services.orchestrator.memory.memories import Memories
from services.orchestrator.metrics import RunMetrics, StreamMetrics
from services.orchestrator.models.compose import Models, Ownership, build_models
from services.orchestrator.models.own.addresses import UrlGuard
from services.orchestrator.models.own.vault import vault_at, vault_of
from services.orchestrator.models.tokens import warm_up
from services.orchestrator.neighbours import SERVICE, Channels, Neighbours
from services.orchestrator.offer import Offers
from services.orchestrator.reconcile import Reconciler, ReconcileSettings
from services.orchestrator.routing.by_embeddings import EmbeddingClassifier
from services.orchestrator.routing.decide import Thresholds
from services.orchestrator.routing.router import RouterSettings
from services.orchestrator.rpc import ArtifactServicer, RunServicer
from services.orchestrator.rpc_agents import AgentServicer
from services.orchestrator.rpc_conversations import ConversationServicer, UsageServicer
from services.orchestrator.rpc_memories import MemoryServicer
from services.orchestrator.rpc_models import ModelServicer
from services.orchestrator.rpc_register import GRPC_SERVICES, Servicers
from services.orchestrator.rpc_tools import ToolServicer
from services.orchestrator.runner import Runner
from services.orchestrator.runs import Runs
from services.orchestrator.settings import Settings
from services.orchestrator.slots import FairSlots, SlotLimits
from services.orchestrator.speak import Speaker
from services.orchestrator.strategies.compose import Means, compose_strategies
from services.orchestrator.titles import Titler
from services.orchestrator.tools.compose import ToolNeeds, opened_tools, own_tools
from services.orchestrator.tools.http_client import CheckedHttpClient, guard_of
from services.orchestrator.tools.ports import Toolbox
from services.orchestrator.upkeep import Upkeep
from services.orchestrator.workforce import Workforce

_log = logging.getLogger(__name__)
SCOPE = "services.orchestrator"


async def build(settings: Settings, platform: Platform) -> Service:
    """Return the service; nothing works before its `start`. Raises SettingsError for what proctor.toml has wrong."""
    url = database_url(settings.database_url, settings.data_dir, "orchestrator")
    database = await Database.open(url, platform.clock)
    channels = Channels(platform, settings)
    blobs = LocalBlobs(settings.data_dir / "artifacts")
    media = StoredMedia(blobs, channels.retrieval, platform.signer, settings.retrieval_timeout / timedelta(seconds=1))
    try:
        with told_as_settings(settings.config_file):
            models = build_models(
                config=settings.config_file,
                environ=os.environ,
                telemetry=platform.telemetry,
                clock=platform.clock,
                media=media,
                ownership=_ownership(settings, platform, database),
            )
            orchestrator = _Orchestrator(settings, platform, database, channels, models, blobs, media)
    except SettingsError:
        await channels.close()
        await database.close()
        raise
    return Service(
        name="orchestrator",
        register=orchestrator.servicers.register,
        grpc_services=GRPC_SERVICES,
        start=orchestrator.start,
        loaded=orchestrator.loaded,
        drain=orchestrator.drain,
        close=orchestrator.close,
    )


def _ownership(settings: Settings, platform: Platform, database: Database) -> Ownership:
    secret = settings.models_secret
    return Ownership(
        store=SqlOwnModels(database.engine),
        vault=vault_of(secret) if secret else vault_at(settings.data_dir / "models.key"),
        ids=platform.ids,
        guard=UrlGuard(tuple(map(ipaddress.ip_network, settings.model_networks))),
    )


def _caps(settings: Settings) -> Caps:
    return Caps(
        rounds=settings.rounds,
        tool_calls=settings.tool_calls,
        tokens=settings.tokens,
        wall_time=settings.wall_time,
        research_tokens=settings.research_tokens,
        research_wall_time=settings.research_wall_time,
    )


def _router(settings: Settings) -> RouterSettings:
    return RouterSettings(
        thresholds=Thresholds(
            off_topic_below=settings.route_off_topic_below,
            small_talk_from=settings.route_small_talk_from,
            small_talk_topic_below=settings.route_small_talk_topic_below,
            hint_from=settings.route_hint_from,
        ),
        timeout=settings.route_timeout,
    )


@dataclass
class _Background:
    """Tasks that live as long as the service."""

    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()


class _Orchestrator:
    """Everything of one process, wired."""

    def __init__(
        self,
        settings: Settings,
        platform: Platform,
        database: Database,
        channels: Channels,
        models: Models,
        blobs: LocalBlobs,
        media: StoredMedia,
    ) -> None:
        clock, ids = platform.clock, platform.ids
        tracer = platform.telemetry.tracer(SCOPE)
        metrics = RunMetrics(platform.telemetry)
        later = platform.telemetry.later
        self._database, self._channels, self._models = database, channels, models
        self._background = _Background()
        self._loading: list[asyncio.Task[None]] = []
        artifacts = Artifacts(
            records=database.artifacts,
            blobs=blobs,
            clock=clock,
            ids=ids,
            lifetime=settings.artifact_lifetime,
            max_bytes=settings.artifact_bytes,
        )
        others = Neighbours(channels, settings, platform, artifacts, tracer)
        consents = Consents(others.approvals, tracer)
        needs = ToolNeeds(
            retrieval=others.retrieval,
            library=others.library,
            web=others.web,
            memories=Memories(SqlMemories(database.engine), clock),
            sandbox=others.sandbox,
            clock=clock,
            http=CheckedHttpClient(guard_of(settings.http_networks)),
        )
        self._guards = Guards(
            read_guardrails(settings.config_file, os.environ),
            platform.telemetry.counter(SCOPE, names.GUARDRAIL_ACTIONS),
        )
        self._mcp = McpServers(
            settings.config_file,
            os.environ,
            files=artifacts,
            clock=clock,
            ids=ids,
            tracer=tracer,
            greeted=settings.mcp_tenants,
        )
        self._opened = opened = opened_tools(settings.config_file, os.environ)
        toolbox = Toolbox((*own_tools(needs), *opened.tools), (self._mcp, opened.services))
        consents.abandoned = toolbox.abandon
        consultant = Consultant(models.chat, models.catalogue, ids)
        gate = Gate(
            tools=toolbox,
            approvals=others.approvals,
            consents=consents,
            guards=self._guards,
            carrying=Carrying(
                Executor(),
                tracer,
                metrics,
                settings.result_characters,
                content=platform.telemetry.content,
                consultant=consultant,
                later=later,
            ),
            parallel_calls=settings.parallel_calls,
        )
        prompts = Prompts()
        operators = AgentDirectory(load_agents(settings.config_file, prompts))
        check_workflow_tools(
            operators.list(), {tool.definition.name: tool.definition.spec.parameters_json for tool in toolbox.tools}
        )
        agents = compose_agents(
            operators,
            PromptDirectory(load_prompts(settings.config_file, prompts)),
            prompts,
            Surroundings(
                agents=SqlDefinitions(database.engine, AGENTS),
                prompts=SqlDefinitions(database.engine, PROMPTS),
                catalogue=models.catalogue,
                policies=others.approvals,
                sources=others.sources,
                tools=ToolNames(toolbox),
                clock=clock,
                ids=ids,
            ),
        )
        offers = Offers(toolbox, settings.max_tools, later)
        self._embeddings = EmbeddingClassifier(others.embedder)
        means = Means(
            preparer=Preparer(
                others.retrieval, models.catalogue, prompts, Attachments(media, artifacts), NamedTools(gate, prompts)
            ),
            loop=Loop(
                Speaker(GuardedModel(models.chat, self._guards), ids),
                gate,
                Compactor(models.chat, models.catalogue, ids),
                metrics,
            ),
            gate=gate,
            consultant=consultant,
            embeddings=self._embeddings,
            router=_router(settings),
            ids=ids,
            toolbox=toolbox,
            offers=offers,
            agents=agents.roster,
            there=agents.agents,
            operators=operators.list(),
            catalogue=models.catalogue,
            guards=self._guards,
        )
        composed = compose_strategies(means)
        toolbox.provide(composed.workflows)
        runner = Runner(
            strategies=composed.strategies,
            consents=consents,
            catalogue=models.catalogue,
            tracer=tracer,
            metrics=metrics,
            clock=clock,
            ids=ids,
            later=later,
        )
        terms = LeaseTerms(owner=ids.new(), duration=settings.lease, reader=READER)
        streams = StreamMetrics(platform.telemetry)
        self._feed = feed = Feed(database.runs, FeedLimits(), streams.lagged)
        self._journals = Journals(database.runs, feed, database.signals, clock, terms, telemetry=platform.telemetry)
        slots = FairSlots(
            SlotLimits(running=settings.max_runs, per_tenant=settings.max_runs_per_tenant, waiting=settings.max_waiting)
        )
        self._workforce = Workforce(
            runner=runner,
            store=database.runs,
            journals=self._journals,
            slots=slots,
            clock=clock,
            ids=ids,
            max_attempts=settings.max_attempts,
        )
        self._reconciler = Reconciler(
            store=database.runs,
            approvals=others.approvals,
            standing=database.standing,
            workforce=self._workforce,
            service=SERVICE,
            settings=ReconcileSettings(
                parked_every=settings.parked_every / timedelta(seconds=1),
                orphans_every=settings.orphans_every / timedelta(seconds=1),
            ),
            reader=READER,
        )
        self._workforce.parked = self._reconciler.hint
        self._titler = Titler(models.chat, models.catalogue, database.conversations, ids)
        self._workforce.completed = self._titler.completed
        self._runs = Runs(
            store=database.runs,
            journals=self._journals,
            workforce=self._workforce,
            slots=slots,
            agents=agents.roster,
            catalogue=models.catalogue,
            offers=offers,
            conversations=database.conversations,
            approvals=others.approvals,
            standing=database.standing,
            artifacts=artifacts,
            guards=self._guards,
            caps=_caps(settings),
            clock=clock,
            ids=ids,
        )
        self._upkeep = Upkeep(
            store=database.runs,
            artifacts=artifacts,
            clock=clock,
            events_lifetime=settings.events_lifetime,
            runs_lifetime=settings.runs_lifetime,
            usage=database.usage,
            standing=database.standing,
            usage_lifetime=settings.usage_lifetime,
        )
        self.servicers = Servicers(
            runs=RunServicer(self._runs, feed, settings.heartbeat, streams),
            agents=AgentServicer(agents),
            models=ModelServicer(models.catalogue, models.own),
            artifacts=ArtifactServicer(artifacts),
            conversations=ConversationServicer(database.conversations),
            usage=UsageServicer(database.usage, clock),
            memories=MemoryServicer(needs.memories),
            tools=ToolServicer(toolbox, self._mcp),
        )

    async def start(self) -> None:
        await self._models.start()
        await self._journals.start()
        # The encoding's tables take half a second, the model client as long; it must not happen inside a run.
        self._loading = [
            asyncio.create_task(asyncio.to_thread(warm_up), name="token tables"),
            asyncio.create_task(asyncio.to_thread(self._models.load), name="model client"),
        ]
        self._background.tasks = [
            *self._loading,
            asyncio.create_task(self._reconciler.run(), name="reconciler"),
            asyncio.create_task(self._upkeep.run(), name="upkeep"),
            asyncio.create_task(self._mcp.watch(), name="MCP servers"),
            asyncio.create_task(self._opened.watch(), name="databases and HTTP services"),
        ]

    async def loaded(self) -> None:
        await asyncio.wait(self._loading)

    async def drain(self) -> None:
        self._runs.drain()
        await self._background.stop()
        await self._workforce.drain()
        self._feed.close()

    async def close(self) -> None:
        await self._background.stop()
        await self._titler.close()
        await self._embeddings.close()
        await self._mcp.close()
        await self._guards.close()
        await self._journals.close()
        await self._models.close()
        await self._channels.close()
        await self._database.close()
