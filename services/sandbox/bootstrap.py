"""Settings in, a service out: the only place that knows every concrete class."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import grpc

from proctor.sandbox.v1 import sandbox_service_pb2_grpc as pb_grpc
from services.chassis.database import database_url, migrate, open_engine
from services.chassis.platform import Platform
from services.chassis.serve import Service
from services.sandbox.adapters.sandboxd_client import SandboxdJail
from services.sandbox.adapters.sql_executions import SqlExecutions
from services.sandbox.adapters.sql_sessions import SqlSessions
from services.sandbox.executions import Capacity, Executions
from services.sandbox.rpc import SandboxServicer
from services.sandbox.sandboxd.config import COLD, WARM, Config
from services.sandbox.sessions import SessionRules, Sessions
from services.sandbox.settings import Backend, Settings
from services.sandbox.watch import Observer

log = logging.getLogger(__name__)

_HOUSEKEEPING_SECONDS = 15.0
# 64 MiB of input files, the code, and their framing.
MAX_REQUEST_BYTES = 66 * 1024 * 1024


async def build(settings: Settings, platform: Platform) -> Service:
    """Return the sandbox service; nothing runs before its `start`."""
    engine = open_engine(database_url(settings.database_url, settings.data_dir, "sandbox"))
    jail = SandboxdJail(supervisor_config(settings))
    rules = SessionRules(
        idle=settings.session_idle,
        life=settings.session_life,
        per_owner=settings.sessions_per_owner,
        total=settings.max_sessions,
    )
    node = settings.node_name
    sessions = Sessions(jail, SqlSessions(engine), rules, platform.clock, platform.ids, node)
    capacity = Capacity(slots=settings.slots, max_waiting=settings.max_waiting, retention=settings.retention)
    observer = Observer(platform.telemetry)
    executions = Executions(
        jail, SqlExecutions(engine), sessions, capacity, observer, platform.clock, platform.ids, node
    )
    housekeeper = _Housekeeper(executions, sessions, lambda: observer.pool(jail.parked))

    async def start() -> None:
        await migrate(engine, "services.sandbox:migrations")
        await executions.recover()
        await sessions.recover()
        await jail.start()
        isolation = await jail.isolation()
        if not isolation.safe:
            log.error("not safe: nothing will run", extra={"event": "sandbox.unsafe", "check": str(isolation.failure)})
        housekeeper.start()

    async def close() -> None:
        await housekeeper.close()
        await executions.close()
        await jail.close()
        await engine.dispose()

    def register(server: grpc.aio.Server) -> None:
        pb_grpc.add_SandboxServiceServicer_to_server(SandboxServicer(executions, sessions, jail), server)

    def serving() -> bool:
        isolation = jail.known_isolation
        return isolation is not None and isolation.safe

    return Service(
        name="sandbox",
        register=register,
        grpc_services=("proctor.sandbox.v1.SandboxService",),
        start=start,
        drain=executions.drain,
        close=close,
        serving=serving,
        max_request_bytes=MAX_REQUEST_BYTES,
    )


def supervisor_config(settings: Settings) -> Config:
    """Return what the supervisor is told."""
    return Config(
        # Not resolved: a virtual environment's Python is a link, and its place says which environment it is.
        python_environment=str(Path.cwd() / settings.python_environment),
        state_dir=str(settings.state_dir),
        backend=WARM if settings.backend is Backend.WARM else COLD,
        bwrap=settings.bwrap,
        slots=settings.slots,
        parked=settings.parked,
        uid_base=settings.uid_base,
        allow_no_cgroup=settings.allow_no_cgroup,
        cgroup=settings.cgroup.value,
        recycle_jobs=settings.recycle_jobs,
        recycle_seconds=settings.recycle_after.total_seconds(),
    )


class _Housekeeper:
    """Ends idle sessions and forgets old results, now and then."""

    def __init__(self, executions: Executions, sessions: Sessions, count: Callable[[], None]) -> None:
        self._count = count
        self._executions = executions
        self._sessions = sessions
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_SECONDS)
            try:
                self._count()
                await self._sessions.sweep()
                await self._executions.prune()
            except Exception:
                log.exception("housekeeping failed", extra={"event": "sandbox.housekeeping_failed"})
