"""A Weaviate of the tests' own: started once per session in a temporary folder, on free ports of loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.support.postgres import free_port
from tests.support.weaviate_server import SKIP, program


@dataclass(frozen=True, slots=True, kw_only=True)
class Weaviate:
    """A running server: the addresses of its two protocols."""

    http: str
    grpc: str


@pytest.fixture(scope="session")
def weaviate() -> Iterator[Weaviate]:
    """A running Weaviate; skips when there is none to run."""
    found = program()
    if found is None:
        pytest.skip(SKIP)
    folder = tempfile.mkdtemp(prefix="proctor-weaviate-", dir="/tmp")
    http, grpc, *others = (free_port() for _ in range(6))
    names = ("CLUSTER_GOSSIP_BIND_PORT", "CLUSTER_DATA_BIND_PORT", "RAFT_PORT", "RAFT_INTERNAL_RPC_PORT")
    environment = {
        "PATH": os.environ["PATH"],
        "PERSISTENCE_DATA_PATH": folder,
        "AUTHENTICATION_ANONYMOUS_ACCESS_ENABLED": "true",
        "CLUSTER_HOSTNAME": "node1",
        "CLUSTER_ADVERTISE_ADDR": "127.0.0.1",
        "RAFT_BOOTSTRAP_EXPECT": "1",
        "DISABLE_TELEMETRY": "true",
        "GRPC_PORT": str(grpc),
        **dict(zip(names, map(str, others), strict=True)),
    }
    command = [str(found), "--host", "127.0.0.1", "--port", str(http), "--scheme", "http"]
    log = Path(folder, "log").open("wb")
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _wait(f"http://127.0.0.1:{http}/v1/.well-known/ready", server)
        yield Weaviate(http=f"http://127.0.0.1:{http}", grpc=f"127.0.0.1:{grpc}")
    finally:
        server.kill()
        server.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and server.poll() is None:
        try:
            if httpx.get(url, timeout=1).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise RuntimeError("the Weaviate server did not become ready within a minute")
