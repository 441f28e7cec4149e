"""A service as a process of its own: what it refuses, whom it waits for, how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from services.chassis.health import wait_for_health
from tests.support.probe import probe
from tests.support.servers import serve, socket_address

ROOT = Path(__file__).resolve().parents[2]
SERVICE = "approval"


def environment(address: str, data_dir: Path, **more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")}
    paths = (ROOT, ROOT / "protos/gen", ROOT / "clients/python")
    return inherited | {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PROCTOR_SIGNING_KEY": "k" * 32,
        "PROCTOR_APPROVAL_LISTEN": address,
        "PROCTOR_APPROVAL_DATA_DIR": str(data_dir),
        **more,
    }


@asynccontextmanager
async def started(environ: dict[str, str]) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"services.{SERVICE}", env=environ, cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def told(process: asyncio.subprocess.Process) -> list[str]:
    assert process.stderr is not None
    return (await process.stderr.read()).decode().splitlines()


async def test_it_serves_until_told_to_stop_and_logs_it_as_json(tmp_path: Path) -> None:
    async with socket_address() as address, started(environment(address, tmp_path)) as process:
        assert await wait_for_health(address)
        process.terminate()
        lines = [json.loads(line) for line in await told(process)]
        assert await process.wait() == 0
    events = [line["event"] for line in lines if "event" in line]
    assert events == ["service.serving", "service.draining", "service.stopped"]
    assert {line["service"] for line in lines} == {SERVICE}


async def test_settings_that_do_not_hold_end_it_at_once_with_every_problem(tmp_path: Path) -> None:
    bad = {"PROCTOR_APPROVAL_WATCH_CAPACITY": "many", "PROCTOR_APPROVAL_NO_SUCH": "1"}
    async with socket_address() as address, started(environment(address, tmp_path, **bad)) as process:
        lines = await told(process)
        assert await process.wait() == 2
    assert [line.partition(":")[0] for line in lines] == list(bad)


async def test_it_is_not_built_before_those_it_waits_for_and_still_ends_when_told(tmp_path: Path) -> None:
    knocked = asyncio.Event()

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        knocked.set()
        await reader.read()
        writer.close()

    async with socket_address() as address, socket_address("first") as first:
        silent = await asyncio.start_unix_server(ignore, first.removeprefix("unix:"))
        async with silent, started(environment(address, tmp_path, PROCTOR_START_AFTER=first)) as process:
            await asyncio.wait_for(knocked.wait(), 60)
            assert not (tmp_path / "approval.sqlite3").exists()
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
    assert not (tmp_path / "approval.sqlite3").exists()


async def test_it_is_built_once_those_before_it_answer(tmp_path: Path) -> None:
    async with (
        serve(probe()) as first,
        socket_address() as address,
        started(environment(address, tmp_path, PROCTOR_START_AFTER=first.address)),
    ):
        assert await wait_for_health(address)


async def test_it_does_not_start_once_its_parent_is_gone(tmp_path: Path) -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    async with socket_address() as address:
        environ = environment(address, tmp_path, PROCTOR_END_WITH_PARENT=gone.stdout.decode().strip())
        async with started(environ) as process, asyncio.timeout(20):
            assert await process.wait() == 128 + signal.SIGTERM


async def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent = (
        "import os, subprocess, sys\n"
        "os.environ['PROCTOR_END_WITH_PARENT'] = str(os.getpid())\n"
        f"child = subprocess.Popen([sys.executable, '-m', 'services.{SERVICE}'])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    async with socket_address() as address:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", parent, env=environment(address, tmp_path), cwd=ROOT,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdout is not None
        child = int(await process.stdout.readline())
        assert await wait_for_health(address)
        process.kill()
        await process.wait()
        async with asyncio.timeout(20):
            while Path(f"/proc/{child}/cmdline").exists() and SERVICE in Path(f"/proc/{child}/cmdline").read_text():
                await asyncio.sleep(0.02)
