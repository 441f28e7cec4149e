"""The suite as real processes that a test may kill: each service alone, on unix sockets, over one data folder."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.support.platform import KEY
from tests.support.suite import environment, free_port, short_folder

ROOT = Path(__file__).parents[2]
READY_SECONDS = 120.0


@dataclass
class Processes:
    """Running services. `http` speaks to the gateway."""

    folder: Path
    variables: Mapping[str, str]
    http: httpx.AsyncClient
    running: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    async def start(self, name: str, service: str = "", *, program: str = "", **environ: str) -> None:
        """Start one service (`name` unless another is meant); its output goes to a file in the folder.

        `program` is Python to run instead of the service's own entry.
        """
        log = (self.folder / f"{name}.log").open("ab")
        try:
            self.running[name] = await asyncio.create_subprocess_exec(
                sys.executable,
                *(("-c", program) if program else ("-m", f"services.{service or name}")),
                cwd=ROOT,
                env={**os.environ, **self.variables, **environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'protos/gen'}"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        finally:
            log.close()

    async def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one service and wait for its end."""
        process = self.running.pop(name)
        if process.returncode is None:
            process.send_signal(number)
        await process.wait()

    async def ready(self) -> None:
        """Wait until the gateway says that every service serves."""
        async with asyncio.timeout(READY_SECONDS):
            while True:
                for name, process in self.running.items():
                    if process.returncode is not None:
                        raise RuntimeError(f"{name} ended: {(self.folder / f'{name}.log').read_text()[-3000:]}")
                try:
                    if (await self.http.get("/readyz")).status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                # Readiness of another process has no event to wait for.
                await asyncio.sleep(0.05)


@asynccontextmanager
async def processes(
    *,
    model: str,
    services: tuple[str, ...] = ("approval", "sandbox", "retrieval", "orchestrator"),
    wait: bool = True,
    config: str = "",
    **environ: str,
) -> AsyncIterator[Processes]:
    """Start `services` and the gateway, wait until all serve, and kill whatever still runs at the end."""
    with short_folder() as folder:
        variables = environment(folder, model, config) | {"PROCTOR_SIGNING_KEY": KEY, **environ}
        port = free_port()
        variables["PROCTOR_GATEWAY_LISTEN"] = f"127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as http:
            started = Processes(folder=folder, variables=variables, http=http)
            try:
                for name in (*services, "gateway"):
                    await started.start(name)
                if wait:
                    await started.ready()
                yield started
            finally:
                for name in list(started.running):
                    await started.kill(name)
