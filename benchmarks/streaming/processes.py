"""The processes of a measurement: upstream, stock client and the server, each on its core, and what they use."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_SECONDS = 120.0
# A server is idle that uses no more than this share of a core during three looks.
IDLE_SHARE = 0.1
LOOK_SECONDS = 0.5


def on_core(core: int | None) -> list[str]:
    """Return the prefix that pins a command to a core, nothing for None or where that is not possible."""
    if core is None or not shutil.which("taskset") or (os.cpu_count() or 1) == 1:
        return []
    return ["taskset", "-c", str(core)]


def stay_on(core: int) -> None:
    """Keep this process, and what it starts without a core of its own, off the core that is measured."""
    if on_core(core):
        os.sched_setaffinity(0, {core})


def start_upstream(core: int | None) -> tuple[subprocess.Popen[str], int]:
    """Start the scripted model; return it and its port."""
    command = [*on_core(core), sys.executable, "-m", "benchmarks.streaming.upstream", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


class Direct:
    """The stock client in a process of its own."""

    def __init__(self, port: int, core: int | None) -> None:
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
class Tree:
    """A started server with all its processes."""

    process: subprocess.Popen[bytes]

    def cpu(self) -> float:
        """Return the CPU seconds that all its processes have used, from /proc."""
        return sum(cpu_seconds(pid) for pid in process_tree(self.process.pid))

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            for pid in reversed(process_tree(self.process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()


@contextmanager
def started(
    command: Sequence[str], ready: str, *, core: int | None, environ: Mapping[str, str], folder: Path, log: Path
) -> Iterator[Tree]:
    """Run a server on a core until the block ends; it is up once `ready` (a URL) answers, whatever it answers."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*on_core(core), *command], env={**os.environ, **environ}, cwd=folder, stdout=out, stderr=out
        )
    tree = Tree(process=process)
    try:
        _wait_for(ready, process, log)
        _settle(tree)
        yield tree
    finally:
        tree.stop()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except urllib.error.HTTPError as error:
            if error.code < 500:
                return
            time.sleep(0.2)
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise SystemExit(f"the server did not start:\n{log.read_text(errors='replace')[-2000:]}")


def _settle(tree: Tree) -> None:
    """Wait until the server has done what it does once after its start, such as warming a pool."""
    deadline = time.monotonic() + START_SECONDS
    quiet, used = 0, tree.cpu()
    while quiet < 3 and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        before, used = used, tree.cpu()
        quiet = quiet + 1 if used - before < IDLE_SHARE * LOOK_SECONDS else 0


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


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
