"""`proctor up` as a user starts it: real processes, a real answer, and how the group ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.postgres import free_port

ROOT = Path(__file__).resolve().parents[2]
START = 90.0
SERVICES = {"approval", "gateway", "orchestrator", "retrieval", "sandbox"}


def command(data: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "services.cli", "up", "--data-dir", str(data), *arguments]


def clean_environment() -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PROCTOR_", "OPENAI_"))}
    return ours | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "protos/gen"), str(ROOT / "clients/python")])}


@contextmanager
def suite(data: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    listen = f"127.0.0.1:{free_port()}"
    with (data / "up.out").open("wb") as out:
        process = subprocess.Popen(
            command(data, "--listen", listen, *arguments), cwd=ROOT, env=clean_environment(), stdout=out, stderr=out
        )
    try:
        wait_until_ready(process, f"http://{listen}", data / "up.out")
        yield process, f"http://{listen}"
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_until_ready(process: subprocess.Popen[bytes], url: str, out: Path) -> None:
    until = time.monotonic() + START
    while time.monotonic() < until:
        assert process.poll() is None, out.read_text()
        try:
            if httpx.get(f"{url}/readyz", trust_env=False).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"not ready after {START:.0f} s: {out.read_text()}")


def members(process: subprocess.Popen[bytes]) -> dict[str, psutil.Process]:
    """Return the five services' processes; the sandbox is started last, once the gateway answers."""
    until = time.monotonic() + START
    found: dict[str, psutil.Process] = {}
    while time.monotonic() < until:
        lines = [(each, each.cmdline()) for each in psutil.Process(process.pid).children()]
        found = {line[-1].removeprefix("services."): each for each, line in lines if line[1:2] == ["-m"]}
        if found.keys() == SERVICES:
            return found
        time.sleep(0.05)
    raise AssertionError(f"of the services only {sorted(found)} run")


@pytest.mark.parametrize(
    "mode", [[], pytest.param(["--in-process"], marks=pytest.mark.prove)], ids=["processes", "one-process"]
)
def test_it_starts_answers_with_a_citation_and_ends(mode: list[str], tmp_path: Path) -> None:
    handbook = str(ROOT / "examples" / "handbook")
    tour = ["--ingest", handbook, "--source", "handbook", "--ask", "What is the mileage rate for cars?", "--once"]
    listen = ["--listen", f"127.0.0.1:{free_port()}"]
    ended = subprocess.run(
        command(tmp_path, *listen, *tour, *mode),
        cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=START + 30, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "8 ingested" in ended.stdout
    assert "EUR 0.38 per kilometre" in ended.stdout
    assert "[1] Travel and expenses" in ended.stdout


@pytest.mark.prove
def test_a_member_that_dies_ends_the_group_with_its_code(tmp_path: Path) -> None:
    with suite(tmp_path) as (process, _):
        running = members(process)
        running["retrieval"].kill()
        assert process.wait(timeout=60) == 128 + signal.SIGKILL
        assert not any(each.is_running() for each in running.values())
    assert "retrieval ended with code -9" in (tmp_path / "up.out").read_text()


@pytest.mark.prove
def test_a_signal_stops_the_members_in_reverse_order(tmp_path: Path) -> None:
    with suite(tmp_path) as (process, _):
        process.terminate()
        assert process.wait(timeout=60) == 0
    stopped = {
        name: (tmp_path / "logs" / f"{name}.log").stat().st_mtime_ns for name in ("gateway", "orchestrator", "approval")
    }
    assert stopped["gateway"] <= stopped["orchestrator"] <= stopped["approval"]


@pytest.mark.prove
def test_members_do_not_outlive_a_killed_supervisor(tmp_path: Path) -> None:
    with suite(tmp_path) as (process, _):
        running = members(process)
        process.kill()
        _, alive = psutil.wait_procs(running.values(), timeout=60)
    assert alive == []


@pytest.mark.prove
def test_a_second_suite_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with suite(tmp_path):
        second = subprocess.run(
            command(tmp_path),
            cwd=ROOT,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert second.returncode == 1
    assert "another --data-dir" in second.stderr
