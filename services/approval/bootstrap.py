"""Puts the service together: the one place that knows every concrete class."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import grpc
from sqlalchemy.ext.asyncio import AsyncEngine

from proctor.approval.v1 import approval_service_pb2, approval_service_pb2_grpc
from services.approval.adapters.database import Database
from services.approval.adapters.notify_local import LocalBell
from services.approval.adapters.sql_audit import FOLLOWER as AUDIT_FOLLOWER
from services.approval.adapters.sql_audit import SqlAuditLog
from services.approval.adapters.sql_changes import SqlChangeLog
from services.approval.adapters.sql_outbox import FOLLOWER as WEBHOOK_FOLLOWER
from services.approval.adapters.sql_outbox import SqlOutbox
from services.approval.adapters.sql_rules import SqlRules
from services.approval.adapters.sql_store import SqlApprovals
from services.approval.audit import Audit
from services.approval.background import Background, Chore, every, on_bell
from services.approval.decisions import Decisions
from services.approval.feed import Feed, Watches
from services.approval.gate import GateKeeper
from services.approval.links import Links, LinkSigner
from services.approval.ports import Bell, Courier
from services.approval.records import Records
from services.approval.requests import Requests
from services.approval.rpc import ApprovalServicer, UseCases
from services.approval.rules import AllowRules
from services.approval.settings import Settings
from services.approval.telemetry import MeasuredApprovals
from services.approval.webhooks import Webhooks, WebhookTargets
from services.chassis.database import database_url, migrate, open_engine
from services.chassis.platform import Platform
from services.chassis.serve import Service

if TYPE_CHECKING:
    from services.approval.adapters.http_webhook import HttpCourier

SERVICE_NAME = approval_service_pb2.DESCRIPTOR.services_by_name["ApprovalService"].full_name
MIGRATIONS = "services.approval:migrations"


# The audit log trails by this much: its transactions would otherwise stand in the way of the next decision's.
# Whoever reads it has it brought up to date first.
AUDIT_GATHER = 0.2
# And the feed by this: whoever asked or decided has the answer before others are told.
FEED_GATHER = 0.002
# How often changes that everybody has worked off are thrown away, and how often the pending ones are counted.
PRUNE_INTERVAL = 600.0
COUNT_INTERVAL = 15.0


class Parts:
    """The adapters and use cases of one service."""

    def __init__(self, settings: Settings, platform: Platform) -> None:
        url = database_url(settings.database_url, settings.data_dir, "approval")
        clock, ids = platform.clock, platform.ids
        self.settings = settings
        self.clock = clock
        self.engine = open_engine(url)
        database = Database(self.engine)
        self.bell, self.bell_chores = _bell(self.engine, database)
        self.approvals = MeasuredApprovals(SqlApprovals(database, self.bell), platform.telemetry, platform.clock)
        followers = [AUDIT_FOLLOWER, *([WEBHOOK_FOLLOWER] if settings.webhook_urls else [])]
        self.log = SqlChangeLog(database, followers)
        self.records = Records(self.approvals, clock)
        self.rules = AllowRules(SqlRules(database, self.bell), clock, ids)
        self.decisions = Decisions(self.approvals, self.records, clock, ids)
        self.feed = Feed(self.log, self.approvals, capacity=settings.watch_capacity)
        self.audit = Audit(SqlAuditLog(database))
        self.signer = LinkSigner(settings.webhook_secret)
        self.courier = _courier(settings)
        self.webhooks = self._webhooks(database, self.courier) if self.courier else None

    def _webhooks(self, database: Database, courier: Courier) -> Webhooks:
        targets = WebhookTargets(
            urls=self.settings.webhook_urls,
            secret=self.settings.webhook_secret,
            link_base=self.settings.link_base,
            attempts=self.settings.webhook_attempts,
        )
        return Webhooks(SqlOutbox(database), courier, self.signer, targets, self.clock, random.random)

    def use_cases(self) -> UseCases:
        """Return what the servicer calls."""
        operator = self.settings.operator()
        return UseCases(
            requests=Requests(self.approvals, self.records, self.rules, operator, self.clock),
            decisions=self.decisions,
            records=self.records,
            watches=Watches(self.feed, self.records, keep_alive=self.settings.keep_alive.total_seconds()),
            rules=self.rules,
            gate=GateKeeper(operator),
            links=Links(self.signer, self.records, self.decisions),
            audit=self.audit,
        )

    def chores(self) -> list[Chore]:
        """Return the background work."""
        poll = self.settings.poll_interval.total_seconds()
        chores = [
            *self.bell_chores,
            Chore(name="sweep", wait=every(self.settings.sweep_interval.total_seconds()), step=self.records.sweep),
            Chore(name="feed", wait=on_bell(self.bell, poll, gather=FEED_GATHER), step=self.feed.deliver),
            Chore(name="audit", wait=on_bell(self.bell, poll, gather=AUDIT_GATHER), step=self.audit.append),
            Chore(name="prune", wait=every(PRUNE_INTERVAL), step=self.prune),
            Chore(name="count", wait=every(COUNT_INTERVAL), step=self.approvals.observe_waiting),
        ]
        if self.webhooks:
            chores.append(Chore(name="outbox", wait=on_bell(self.bell, poll), step=self.webhooks.enqueue))
            chores.append(Chore(name="courier", wait=on_bell(self.bell, poll), step=self.webhooks.send_due))
        return chores

    async def prune(self) -> int:
        """Throw away old changes that everybody has worked off."""
        return await self.log.prune(self.clock.now() - self.settings.change_retention)


async def build(settings: Settings, platform: Platform) -> Service:
    """Return the service over its own database; `start` migrates it and begins the background work."""
    parts = Parts(settings, platform)
    background = Background(parts.chores())
    servicer = ApprovalServicer(parts.use_cases())

    def register(server: grpc.aio.Server) -> None:
        approval_service_pb2_grpc.add_ApprovalServiceServicer_to_server(servicer, server)

    async def start() -> None:
        await migrate(parts.engine, MIGRATIONS)
        await parts.feed.open()
        if parts.webhooks:
            await parts.webhooks.open()
        background.start()

    async def drain() -> None:
        parts.feed.close()

    async def close() -> None:
        await background.stop()
        if parts.courier:
            await parts.courier.close()
        await parts.engine.dispose()

    return Service(
        name="approval",
        register=register,
        grpc_services=(SERVICE_NAME,),
        start=start,
        drain=drain,
        close=close,
        # The sweep reads the database every second, so it knows first when that is away.
        serving=lambda: background.works("sweep"),
    )


def _bell(engine: AsyncEngine, database: Database) -> tuple[Bell, list[Chore]]:
    if not database.is_postgresql:
        return LocalBell(), []
    # Loaded only where it serves: the driver is PostgreSQL's.
    from services.approval.adapters.notify_postgres import PostgresBell

    bell = PostgresBell(engine)
    return bell, [Chore(name="listen", wait=every(0), step=bell.run)]


def _courier(settings: Settings) -> HttpCourier | None:
    if not settings.webhook_urls:
        return None
    # Loaded only where it serves: most deployments have no webhooks.
    from services.approval.adapters.http_webhook import HttpCourier

    return HttpCourier(settings.webhook_timeout.total_seconds())
