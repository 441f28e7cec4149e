"""Drives the sandbox from tests: settings, a running jail, and results gathered from its events."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from services.sandbox.adapters.sandboxd_client import SandboxdJail
from services.sandbox.bootstrap import supervisor_config
from services.sandbox.domain import (
    ArtifactChunk,
    Event,
    Finished,
    InputFile,
    Job,
    Limits,
    Output,
    Owner,
    Started,
    Status,
    Stream,
)
from services.sandbox.limits import DEFAULTS
from services.sandbox.settings import Backend, Settings

ENVIRONMENT = Path(__file__).resolve().parents[2] / ".venv-sandbox"
ANN = Owner(tenant="local", user="ann")

needs_environment = pytest.mark.skipif(
    not (ENVIRONMENT / "bin" / "python").exists(), reason="needs .venv-sandbox; make it with `make setup`"
)


@contextmanager
def short_folder() -> Iterator[Path]:
    """Yield a new folder under /tmp that everyone may enter."""
    folder = Path(tempfile.mkdtemp(prefix="proctor-test-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sandbox_settings(folder: Path, backend: Backend = Backend.COLD, **changes: object) -> Settings:
    """Return settings with everything under `folder`."""
    settings = Settings(data_dir=folder, backend=backend, python_environment=ENVIRONMENT)
    return replace(settings, **changes)  # type: ignore[arg-type]


@dataclass(slots=True)
class Result:
    """All that one execution emitted."""

    started: Started | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    files: dict[str, bytes] = field(default_factory=dict)
    finished: Finished = field(default_factory=lambda: Finished(status=Status.SANDBOX_ERROR))
    events: list[Event] = field(default_factory=list)

    @property
    def status(self) -> Status:
        return self.finished.status

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def errors(self) -> str:
        return self.stderr.decode("utf-8", "replace")

    @property
    def dropped(self) -> dict[str, str]:
        return {file.name: file.reason for file in self.finished.dropped}

    def add(self, event: Event) -> None:
        self.events.append(event)
        match event:
            case Started():
                self.started = event
            case Output(stream=Stream.STDOUT):
                self.stdout += event.data
            case Output():
                self.stderr += event.data
            case ArtifactChunk():
                self.files[event.name] = self.files.get(event.name, b"") + event.data
            case Finished():
                self.finished = event


class Runner:
    """Runs code in a jail and gathers the result."""

    def __init__(self, jail: SandboxdJail, backend: Backend) -> None:
        self.jail = jail
        self.backend = backend
        self._serial = itertools.count(1)

    async def run(
        self,
        code: str,
        *,
        files: Sequence[InputFile] = (),
        session: str = "",
        wall: float = DEFAULTS.wall,
        cpu: float = DEFAULTS.cpu,
        memory: int = DEFAULTS.memory_bytes,
        pids: int = DEFAULTS.pids,
    ) -> Result:
        key = f"t{next(self._serial)}"
        limits = Limits(wall=wall, cpu=cpu, memory_bytes=memory, pids=pids)
        job = Job(execution_id=key, owner=ANN, code=code, files=tuple(files), limits=limits, session_id=session)
        result = Result()
        async for event in self.jail.run(key, job):
            result.add(event)
        return result

    async def errnos(self, *attempts: str) -> list[str]:
        """Run each line of code in one job; each must print one word, as `attempt` does."""
        words = (await self.errno("\n".join(attempts))).split()
        assert len(words) == len(attempts)
        return words

    async def errno(self, code: str) -> str:
        """Run `code`, which must print one word: "none" or the name of an errno."""
        result = await self.run(ERRNO_PRELUDE + code)
        assert result.status is Status.OK, (result.errors, result.finished)
        return result.text.strip()


# `attempt(f, *args)` prints the errno that a call ends with; `syscall(name, ...)` makes a raw one.
ERRNO_PRELUDE = r"""
import ctypes, errno, os, platform, socket, sys
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
def attempt(function, *arguments, **named):
    try:
        value = function(*arguments, **named)
    except OSError as error:
        print(errno.errorcode.get(error.errno, type(error).__name__))
        return None
    print("none")
    return value
def syscall(number, *arguments):
    result = _libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result == -1:
        raise OSError(ctypes.get_errno(), "")
    return result
"""


@asynccontextmanager
async def running_jail(folder: Path, backend: Backend, **changes: object) -> AsyncIterator[Runner]:
    """Yield a jail whose supervisor has proved its isolation; for the warm backend wait until a job is parked."""
    settings = sandbox_settings(folder, backend, **changes)
    fonts = settings.state_dir / "fonts"
    take_fonts(fonts)
    jail = SandboxdJail(supervisor_config(settings))
    await jail.start()
    try:
        isolation = await jail.isolation()
        keep_fonts(fonts)
        assert isolation.safe, isolation.failure
        runner = Runner(jail, backend)
        if backend is Backend.WARM:
            await until_warm(runner)
        yield runner
    finally:
        await jail.close()


def take_fonts(fonts: Path) -> None:
    """Use the font list of an earlier test: making it takes a second or more."""
    kept = Path(tempfile.gettempdir()) / f"proctor-test-fonts-{os.getuid()}"
    if kept.is_dir():
        shutil.copytree(kept, fonts, dirs_exist_ok=True)


def keep_fonts(fonts: Path) -> None:
    """Keep a font list for later tests; the rename makes it appear at once or not at all."""
    kept = Path(tempfile.gettempdir()) / f"proctor-test-fonts-{os.getuid()}"
    if not kept.is_dir() and any(fonts.glob("*/matplotlibrc")):
        draft = Path(tempfile.mkdtemp())
        shutil.copytree(fonts, draft, dirs_exist_ok=True)
        with contextlib.suppress(OSError):
            draft.rename(kept)


async def until_warm(runner: Runner) -> None:
    """Run nothing again and again until a warm job takes it."""
    for _ in range(200):
        result = await runner.run("pass")
        if result.started is not None and result.started.warm:
            return
    raise AssertionError("the zygote never became ready")
