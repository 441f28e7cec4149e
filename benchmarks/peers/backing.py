"""What some peers need beside themselves: PostgreSQL and Redis, each for one measurement."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.streaming.processes import free_port
from tests.support.postgres import SKIP, programs, started_cluster

# Debian's packages with redis-server and the libraries that only it uses.
REDIS_PACKAGES = ("redis-tools", "redis-server", "libjemalloc2", "liblzf1")


@contextmanager
def postgres() -> Iterator[str]:
    """Run a PostgreSQL and yield the URL of an empty database."""
    found = programs()
    if found is None:
        raise SystemExit(SKIP)
    with started_cluster(found) as cluster:
        yield f"postgresql://postgres@127.0.0.1:{cluster.port}/{cluster.create_database()}"


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """Run a Redis that keeps nothing and yield its URL. Without one it is unpacked into `folder`, not installed."""
    program, environ = _redis(folder)
    port = free_port()
    command = [program, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(command, env=os.environ | environ, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if not any("Ready to accept connections" in line for line in process.stdout):
            raise SystemExit("redis-server did not start")
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _redis(folder: Path) -> tuple[str, dict[str, str]]:
    if found := shutil.which("redis-server"):
        return found, {}
    unpacked = folder / "redis"
    if not unpacked.exists():
        if not shutil.which("apt-get"):
            raise SystemExit("it needs Redis; install redis-server")
        folder.mkdir(parents=True, exist_ok=True)
        got = subprocess.run(
            ["apt-get", "-qq", "download", *REDIS_PACKAGES], cwd=folder, capture_output=True, check=False
        )
        archives = sorted(folder.glob("*.deb"))
        if got.returncode or not archives:
            raise SystemExit("it needs Redis; install redis-server (Debian's package could not be downloaded)")
        for archive in archives:
            subprocess.run(["dpkg-deb", "--extract", archive, unpacked], check=True)
    libraries = next(unpacked.glob("usr/lib/*/libjemalloc.so.2")).parent
    return str(unpacked / "usr/bin/redis-server"), {"LD_LIBRARY_PATH": str(libraries)}
