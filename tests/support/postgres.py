"""A PostgreSQL of the tests' own: started once per session in a temporary folder, an empty database per test."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

URL_VARIABLE = "PROCTOR_TEST_POSTGRES_BIN"
SKIP = f"PostgreSQL is not installed; install it (`apt-get install postgresql`) or set {URL_VARIABLE} to its bin folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running server: where its programs and its socket are, and the port on 127.0.0.1."""

    programs: Path
    folder: Path
    port: int

    def create_database(self) -> str:
        """Create an empty database and return its name."""
        name = f"test_{secrets.token_hex(6)}"
        run(self.programs / "createdb", "-h", str(self.folder), "-p", str(self.port), "-U", "postgres", name)
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, whoever is still connected."""
        run(self.programs / "dropdb", "-f", "-h", str(self.folder), "-p", str(self.port), "-U", "postgres", name)

    def restart(self) -> None:
        """End every connection, stop the server and start it again with the same options, on the same port.

        Not as a crash would: durability is off, so that would lose what was committed.
        """
        self.control("restart", "-m", "fast")

    def control(self, *arguments: str) -> None:
        """Run pg_ctl and wait for it."""
        run(self.programs / "pg_ctl", "-D", str(self.folder / "data"), "-l", str(self.folder / "log"), "-w", *arguments)


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs: the one that is set, Debian's newest, or the PATH's."""
    if chosen := os.environ.get(URL_VARIABLE):
        return Path(chosen)
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3]))
    if versions:
        return versions[-1].parent
    found = shutil.which("pg_ctl")
    return Path(found).resolve().parent if found else None


def run(program: Path, *arguments: str) -> None:
    """Run one of PostgreSQL's programs; as root it runs as `postgres`, for the server refuses to serve root."""
    command = [str(program), *arguments]
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--", *command]
    # Not captured through a pipe: the server that pg_ctl leaves behind would hold it open.
    with tempfile.TemporaryFile() as output:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False, cwd="/")
        if ended.returncode:
            output.seek(0)
            raise RuntimeError(f"{program.name} ended with {ended.returncode}: {output.read().decode()}")


def free_port() -> int:
    """Return a TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def started_cluster(found: Path) -> Iterator[Cluster]:
    """Run a PostgreSQL from its programs, with durability switched off, in a folder that goes with it."""
    folder = Path(tempfile.mkdtemp(prefix="proctor-pg-", dir="/tmp"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    cluster = Cluster(programs=found, folder=folder, port=free_port())
    try:
        data = str(folder / "data")
        run(found / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        options = f"-p {cluster.port} -k {folder} -h 127.0.0.1 -F -c full_page_writes=off -c synchronous_commit=off"
        cluster.control("start", "-o", options)
        yield cluster
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            cluster.control("stop", "-m", "immediate")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A running PostgreSQL; skips when none is installed."""
    found = programs()
    if found is None:
        pytest.skip(SKIP)
    with started_cluster(found) as cluster:
        yield cluster


@pytest.fixture
def postgres_url(postgres: Cluster) -> Iterator[str]:
    """The URL of an empty PostgreSQL database that is dropped after the test."""
    name = postgres.create_database()
    yield f"postgresql+asyncpg://postgres@127.0.0.1:{postgres.port}/{name}"
    postgres.drop_database(name)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'test.sqlite3'}"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
