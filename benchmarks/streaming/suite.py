"""The processes of a measurement: upstream, stock client and the suite, each on its core, and what they use."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_SECONDS = 60.0


def on_core(core: int) -> list[str]:
    """Return the prefix that pins a command to a core, nothing where that is not possible."""
    return ["taskset", "-c", str(core)] if shutil.which("taskset") and (os.cpu_count() or 1) > 1 else []


def start_upstream(core: int) -> tuple[subprocess.Popen[str], int]:
    """Start the scripted model; return it and its port."""
    command = [*on_core(core), sys.executable, "-m", "benchmarks.streaming.upstream", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


class Direct:
    """The stock client in a process of its own."""

    def __init__(self, port: int, core: int) -> None:
        command = [*on_core(core), sys.executable, "-m", "benchmarks.streaming.direct", str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    async def run(self, streams: int, rounds: int, prompt: str) -> dict[str, Any]:
        """Return what the worker measured."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"streams": streams, "rounds": rounds, "prompt": prompt}) + "\n")
        self._process.stdin.flush()
        line = await asyncio.to_thread(self._process.stdout.readline)
        told: dict[str, Any] = json.loads(line)
        return told

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """`proctor up` with its whole process tree."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path

    def cpu(self) -> float:
        """Return the CPU seconds that all its processes have used, from /proc."""
        return sum(cpu_seconds(pid) for pid in process_tree(self.process.pid))

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _status(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat behind the process's name, none when it is gone; see proc(5)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def process_tree(root: int) -> list[int]:
    """Return `root` and all its descendants."""
    parents = {int(entry.name): _status(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    tree = [root]
    for pid in tree:
        tree += [child for child, status in parents.items() if status and int(status[1]) == pid]
    return tree


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process, 0 when it is gone."""
    status = _status(pid)
    return (int(status[11]) + int(status[12])) / os.sysconf("SC_CLK_TCK") if status else 0.0


def start_suite(upstream_port: int, core: int) -> Suite:
    """Start all five services against the upstream and wait until they serve."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    port = _free_port()
    environ = os.environ | {
        "OPENAI_BASE_URL": f"http://127.0.0.1:{upstream_port}/v1",
        "OPENAI_API_KEY": "none",
        "PROCTOR_MODEL": "scripted",
    }
    listen = f"127.0.0.1:{port}"
    command = [
        *on_core(core),
        sys.executable,
        "-m",
        "services.cli",
        "up",
        "--data-dir",
        str(folder),
        "--listen",
        listen,
    ]
    log = (folder / "up.log").open("wb")
    suite = Suite(process=subprocess.Popen(command, env=environ, stdout=log, stderr=log), port=port, folder=folder)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and suite.process.poll() is None:
        try:
            urllib.request.urlopen(f"http://{listen}/readyz", timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return suite
    told = (folder / "up.log").read_text(errors="replace")[-2000:]
    suite.stop()
    raise SystemExit(f"the suite did not start:\n{told}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
