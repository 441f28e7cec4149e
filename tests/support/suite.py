"""All five services on one event loop, over real unix sockets and HTTP, as a client finds them.

    async with suite(model=upstream.base_url) as running:
        reply = await running.http.post("/v1/runs", json={"input": "…"})

The model is a scripted server's address; without one the keyless reader answers.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx

from services.chassis.identity import Principal
from services.chassis.platform import Platform
from services.chassis.serve import launch
from services.chassis.settings import load
from services.gateway.bootstrap import Gateway
from services.gateway.settings import Settings as GatewaySettings
from tests.support.platform import test_platform

GRPC_SERVICES = ("approval", "sandbox", "retrieval", "orchestrator")
LOCAL = Principal(tenant="local", user="local", scopes=frozenset({"*"}))
CONFIG = """
[models.scripted]
upstream_name = "scripted"
base_url = "{model}"
roles = ["answer"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A running suite. `http` speaks to the gateway as the local user; `channel` opens a service's own channel."""

    folder: Path
    platform: Platform
    http: httpx.AsyncClient
    base_url: str
    channels: Mapping[str, grpc.aio.Channel]

    def metadata(self, principal: Principal = LOCAL) -> tuple[tuple[str, str], ...]:
        """Return call metadata that carries `principal`."""
        return self.platform.signer.metadata(principal)


@contextmanager
def short_folder() -> Iterator[Path]:
    """Yield a new folder whose path is short enough for unix sockets."""
    folder = Path(tempfile.mkdtemp(prefix="proctor-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """Return a port of the loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def suite(
    *,
    model: str = "",
    config: str = "",
    services: tuple[str, ...] = GRPC_SERVICES,
    platform: Platform | None = None,
    folder: Path | None = None,
    **environ: str,
) -> AsyncIterator[Suite]:
    """Start `services` and the gateway; what is left out does not answer. `environ` adds PROCTOR_… variables."""
    platform = platform or test_platform()
    async with AsyncExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(short_folder())
        variables = environment(folder, model, config) | environ
        channels = {}
        for name in services:
            running = await launch(name, platform, variables)
            stack.push_async_callback(running.stop, 1.0)
            channel = platform.channel(variables[f"PROCTOR_{name.upper()}_LISTEN"])
            stack.push_async_callback(channel.close)
            channels[name] = channel
        gateway = Gateway(load(GatewaySettings, "gateway", variables), platform)
        await gateway.start()
        stack.push_async_callback(gateway.close)
        stack.push_async_callback(gateway.drain)
        base_url = gateway.http.address
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=base_url, timeout=30.0))
        yield Suite(folder=folder, platform=platform, http=http, base_url=base_url, channels=channels)


def environment(folder: Path, model: str, config: str) -> dict[str, str]:
    """Return settings that put everything under `folder`."""
    file = folder / "proctor.toml"
    file.write_text((CONFIG.format(model=model) if model else "") + config, encoding="utf-8")
    variables = {"PROCTOR_ORCHESTRATOR_CONFIG_FILE": str(file), "PROCTOR_GATEWAY_LISTEN": "127.0.0.1:0"}
    for name in (*GRPC_SERVICES, "gateway"):
        variables[f"PROCTOR_{name.upper()}_DATA_DIR"] = str(folder / name)
    for name in GRPC_SERVICES:
        address = f"unix:{folder / name}.sock"
        variables[f"PROCTOR_{name.upper()}_LISTEN"] = address
        variables[f"PROCTOR_GATEWAY_{name.upper()}_TARGET"] = address
        if name != "orchestrator":
            variables[f"PROCTOR_ORCHESTRATOR_{name.upper()}_TARGET"] = address
    variables["PROCTOR_RETRIEVAL_EMBEDDER"] = "none"
    variables["PROCTOR_SANDBOX_BACKEND"] = "cold"
    return variables
