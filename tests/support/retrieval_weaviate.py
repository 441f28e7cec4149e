"""A Weaviate of the tests' own: started once per session in a temporary folder, on free ports of loopback.

`python -m tests.support.retrieval_weaviate` builds the server from the Go module proxy (five minutes on one core).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.support.postgres import free_port

VERSION = "1.35.2"
VARIABLE = "PROCTOR_TEST_WEAVIATE_SERVER"
BUILT = Path.home() / ".cache" / "proctor" / f"weaviate-server-{VERSION}"
SKIP = (
    f"no Weaviate server: build one with `python -m tests.support.retrieval_weaviate` (needs Go) or set {VARIABLE} "
    "to a weaviate-server program"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weaviate:
    """A running server: the addresses of its two protocols."""

    http: str
    grpc: str


def program() -> Path | None:
    """Return the server's program: the one that is set, the one that was built, or the PATH's."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    if BUILT.exists():
        return BUILT
    found = shutil.which("weaviate-server")
    return Path(found) if found else None


def build() -> None:
    """Build the server with Go into the user's cache, unless it is there."""
    if BUILT.exists():
        return
    BUILT.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"GOBIN": folder, "GOFLAGS": "-buildvcs=false"}
        module = f"github.com/weaviate/weaviate/cmd/weaviate-server@v{VERSION}"
        subprocess.run(["nice", "go", "install", module], check=True, env=environment, cwd=folder)
        shutil.move(Path(folder) / "weaviate-server", BUILT)


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


if __name__ == "__main__":
    build()
    sys.stdout.write(f"{BUILT}\n")
