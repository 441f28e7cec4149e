"""Serving: one gRPC server with health, reflection and our interceptors, from start to drain."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import grpc
import uvloop
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from services.chassis import names
from services.chassis.health import HealthMonitor, wait_for_health
from services.chassis.huge_pages import gather_heap
from services.chassis.interceptors.chain import Chain
from services.chassis.interceptors.concurrency import Concurrency
from services.chassis.interceptors.deadline import Deadline
from services.chassis.interceptors.errors import Errors
from services.chassis.interceptors.identity import Identity
from services.chassis.interceptors.tracing import Tracing
from services.chassis.interceptors.validation import Validation
from services.chassis.logs import configure_logs
from services.chassis.platform import Platform, PlatformSettings, open_platform
from services.chassis.settings import SettingsError, load

log = logging.getLogger(__name__)

Hook = Callable[[], Awaitable[None]]


def _always() -> bool:
    return True


async def _at_once() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What a bootstrap's `build` returns: how to register, start, drain and close one service.

    `grpc_services` are full names for health and reflection. After `start` the service is SERVING for as long as
    `serving()` says so. `loaded` returns when all is there that it loads while it serves already. `drain` stops
    admitting and finishes or hands back what is in progress; `close` releases everything and runs also when `start`
    failed. A service without gRPC (`grpc_services` empty) opens no server here.
    """

    name: str
    register: Callable[[grpc.aio.Server], None]
    grpc_services: tuple[str, ...]
    start: Hook
    drain: Hook
    close: Hook
    serving: Callable[[], bool] = _always
    loaded: Hook = _at_once
    # Largest request, where it is more than what every server takes (files that come with a call).
    max_request_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Bounds of one server. Seconds, bytes, calls."""

    max_message_bytes: int = 8 * 1024 * 1024
    unary_deadline: float = 60.0
    # A stream lives as long as its connection; then the client watches again, perhaps another replica.
    stream_deadline: float = 3600.0
    max_connection_age: float = 3600.0
    connection_age_grace: float = 60.0
    concurrent_calls: int = 1000
    concurrent_streams: int = 1000
    stop_grace: float = 20.0


class RunningServer:
    """A server that serves; `address` is where, with the real port."""

    def __init__(self, service: Service, server: grpc.aio.Server, address: str, monitor: HealthMonitor) -> None:
        self.address = address
        self.loaded = service.loaded
        self._service = service
        self._server = server
        self._monitor = monitor

    async def stop(self, grace: float) -> None:
        """Tell health NOT_SERVING, drain the service, give calls `grace` seconds, and release everything."""
        log.info("draining", extra={"event": names.EVENT_SERVICE_DRAINING})
        await self._monitor.stop()
        try:
            await self._service.drain()
        finally:
            await self._server.stop(grace)
            await self._service.close()
        log.info("stopped", extra={"event": names.EVENT_SERVICE_STOPPED})


async def start_server(
    service: Service, listen: str, platform: Platform, limits: ServerLimits | None = None
) -> RunningServer:
    """Serve `service` on `listen` (`unix:/path` or `host:port`, port 0 picks one) and return once it is started.

    When `start` fails the service is closed, and the failure goes on.
    """
    limits = limits or ServerLimits()
    server = grpc.aio.server(
        interceptors=[interceptors(platform, limits)], options=_options(limits, service.max_request_bytes)
    )
    monitor = HealthMonitor(service.grpc_services, service.serving)
    service.register(server)
    health_pb2_grpc.add_HealthServicer_to_server(monitor.servicer, server)
    reflection.enable_server_reflection([*service.grpc_services, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    address = _bind(server, listen, platform)
    try:
        await service.start()
    except BaseException:
        await service.close()
        raise
    # Only now, so that whoever is answered at all is answered by a service that has started.
    await monitor.start()
    await server.start()
    log.info("serving", extra={"event": names.EVENT_SERVICE_SERVING, "address": address})
    return RunningServer(service, server, address, monitor)


def interceptors(platform: Platform, limits: ServerLimits) -> Chain:
    """Return our interceptors in their order; `interceptors/__init__` says why it is this one."""
    return Chain(
        [
            Tracing(platform.telemetry, platform.clock),
            Errors(),
            Deadline(unary=limits.unary_deadline, stream=limits.stream_deadline),
            Concurrency(unary=limits.concurrent_calls, streams=limits.concurrent_streams),
            Identity(platform.verifier),
            Validation(),
        ]
    )


def _bind(server: grpc.aio.Server, listen: str, platform: Platform) -> str:
    if listen.startswith("unix:"):
        server.add_insecure_port(listen)
        return listen
    if platform.tls is None:
        port = server.add_insecure_port(listen)
    else:
        port = server.add_secure_port(listen, platform.tls.server_credentials())
    return f"{listen.rpartition(':')[0]}:{port}"


def _options(limits: ServerLimits, max_request_bytes: int) -> list[tuple[str, Any]]:
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", max(limits.max_message_bytes, max_request_bytes)),
        ("grpc.max_send_message_length", limits.max_message_bytes),
        ("grpc.max_connection_age_ms", int(limits.max_connection_age * 1000)),
        ("grpc.max_connection_age_grace_ms", int(limits.connection_age_grace * 1000)),
        # Clients ping every 30 s (channel.py); more than one in 10 s is a flood.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


class Listening(Protocol):
    """The one setting every service has: where it listens."""

    @property
    def listen(self) -> str: ...


class Running(Protocol):
    """Something that serves and can be stopped."""

    loaded: Hook

    async def stop(self, grace: float) -> None: ...


class RunningService:
    """A service without a gRPC server of its own, such as one that speaks HTTP."""

    def __init__(self, service: Service) -> None:
        self.loaded = service.loaded
        self._service = service

    async def stop(self, grace: float) -> None:
        try:
            await self._service.drain()
        finally:
            await self._service.close()


async def launch(name: str, platform: Platform, environ: Mapping[str, str]) -> RunningServer | RunningService:
    """Build the service `name` from its own settings and start it; it is ready on return."""
    settings: Listening = load(import_module(f"services.{name}.settings").Settings, name, environ)
    build: Callable[[Any, Platform], Awaitable[Service]] = import_module(f"services.{name}.bootstrap").build
    service = await build(settings, platform)
    if service.grpc_services:
        return await start_server(service, settings.listen, platform)
    try:
        await service.start()
    except BaseException:
        await service.close()
        raise
    return RunningService(service)


async def run(name: str, environ: Mapping[str, str]) -> int:
    """Serve until SIGTERM or SIGINT, then drain; a second signal ends the drain. Returns the exit code."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    platform = open_platform(name, environ)
    stopping = asyncio.create_task(stop.wait(), name="stop")
    launching = asyncio.create_task(_launch_in_turn(name, platform, environ), name="launch")
    try:
        await asyncio.wait((launching, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not launching.done():
            launching.cancel()
            await asyncio.wait((launching,))
            return 0
        running = launching.result()
        settling = asyncio.create_task(_settle(running), name="settle")
        await stopping
        settling.cancel()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        await running.stop(ServerLimits().stop_grace)
    finally:
        stopping.cancel()
        await platform.telemetry.shutdown()
    return 0


async def _settle(running: Running) -> None:
    """Do what is to be done once when everything is loaded that lives as long as the process."""
    await running.loaded()
    spare_collections()
    moved = await asyncio.to_thread(gather_heap)
    log.debug("settled with %d MiB in huge pages", moved >> 20)


def spare_collections() -> None:
    """Take what the start has loaded, which lives as long as the process, out of the garbage collector's sight.

    It would look at half a million objects again and again, in the middle of someone's stream. What a request leaves
    in cycles is little, so the youngest are looked at after 20,000 new ones instead of 700.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 10)


async def _launch_in_turn(name: str, platform: Platform, environ: Mapping[str, str]) -> RunningServer | RunningService:
    # Importing is most of a start; it is done while the services that come first still start.
    import_module(f"services.{name}.bootstrap")
    for address in load(PlatformSettings, "", environ).start_after:
        await wait_for_health(address, serving=False)
    return await launch(name, platform, environ)


def main(name: str) -> None:
    """Run `services.<name>` as this process; settings that do not hold end it with code 2 and every problem."""
    configure_logs(name, os.environ.get("PROCTOR_LOG_LEVEL", "INFO"))
    if parent := os.environ.get("PROCTOR_END_WITH_PARENT"):
        end_with_parent(int(parent))
    try:
        code = uvloop.run(run(name, os.environ))
    except SettingsError as error:
        sys.stderr.write("".join(f"{problem}\n" for problem in error.problems))
        code = 2
    raise SystemExit(code)


def end_with_parent(parent: int) -> None:
    """Have the kernel send SIGTERM when the process `parent`, which started this one, dies, however. Linux only."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
        # It may have died while this one loaded; the kernel tells nothing of a death before the call.
        if os.getppid() != parent:
            raise SystemExit(128 + signal.SIGTERM)
