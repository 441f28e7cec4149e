"""Executions, what they emit, and how they end."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import assert_never


class Status(StrEnum):
    """How an execution ended; the words are the same on every wire."""

    OK = "OK"
    ERROR = "ERROR"
    TIMEOUT = "TIMEOUT"
    CPU = "CPU"
    OOM = "OOM"
    OUTPUT_LIMIT = "OUTPUT_LIMIT"
    CANCELLED = "CANCELLED"
    SANDBOX_ERROR = "SANDBOX_ERROR"


class Stream(StrEnum):
    """Which output."""

    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose an execution or a session is."""

    tenant: str
    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one execution: seconds, seconds, bytes, processes and threads."""

    wall: float
    cpu: float
    memory_bytes: int
    pids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file given to the code, by its name in the working folder."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Code to run. `session_id` is empty for a fresh interpreter."""

    execution_id: str
    owner: Owner
    code: str
    files: tuple[InputFile, ...]
    limits: Limits
    session_id: str = ""

    def digest(self) -> str:
        """Return what tells this job from another with the same id: the SHA-256 of code, inputs and session.

        Limits are no part of it: a caller that asks again after a restart may have other defaults.
        """
        sha = hashlib.sha256()
        for part in (self.session_id.encode(), self.code.encode()):
            sha.update(len(part).to_bytes(8, "big") + part)
        for file in self.files:
            name = file.name.encode()
            sha.update(len(name).to_bytes(8, "big") + name + hashlib.sha256(file.content).digest())
        return sha.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The code is about to run; `queued` is seconds of waiting for a slot and a sandbox."""

    warm: bool
    queued: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Raw output bytes; `sequence` counts from 1 within its stream."""

    stream: Stream
    sequence: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactChunk:
    """A piece of a file the code made."""

    name: str
    data: bytes
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedFile:
    """A file that was not taken, with the reason; the name is escaped."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The end of an execution. Seconds and bytes; `detail` is the sandbox's own trouble, if any."""

    status: Status
    exit_code: int = 0
    cpu: float = 0.0
    wall: float = 0.0
    peak_memory_bytes: int = 0
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    dropped: tuple[DroppedFile, ...] = ()
    state_lost: bool = False
    detail: str = ""


Event = Started | Output | ArtifactChunk | Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One proof of isolation."""

    name: str
    passed: bool
    detail: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """Whether and how this machine isolates."""

    safe: bool
    backend: str
    cgroup: str
    checks: Sequence[Check]
    python_version: str = ""
    packages: Sequence[str] = ()

    @property
    def failure(self) -> Check | None:
        """The first proof that failed."""
        return next((check for check in self.checks if not check.passed), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An interpreter that keeps its state; it lives on one node."""

    session_id: str
    owner: Owner
    node: str
    limits: Limits
    created_at: datetime
    used_at: datetime


def describe(finished: Finished, limits: Limits) -> str:
    """Return one sentence for people and models: what happened, and what to do about it."""
    match finished.status:
        case Status.OK:
            sentence = f"OK after {finished.wall:.1f} s"
        case Status.ERROR:
            sentence = f"ERROR: {_ending(finished.exit_code)} after {finished.wall:.1f} s"
        case Status.TIMEOUT:
            sentence = f"TIMEOUT after {limits.wall:g} s; the output so far is kept. Do less, or ask for more time"
        case Status.CPU:
            sentence = f"CPU limit of {limits.cpu:g} s used up by the code and its processes; do less work"
        case Status.OOM:
            sentence = f"OOM: the memory limit of {limits.memory_bytes >> 20} MiB was exceeded; use smaller data"
        case Status.OUTPUT_LIMIT:
            sentence = "OUTPUT_LIMIT: far too much was printed; the beginning is kept. Print less, or write a file"
        case Status.CANCELLED:
            sentence = "CANCELLED by the caller"
        case Status.SANDBOX_ERROR:
            sentence = f"SANDBOX_ERROR: {finished.detail or 'the sandbox failed'}; the code may or may not have run"
        case _:
            assert_never(finished.status)
    if finished.state_lost:
        sentence += "; the session's state is lost, so define everything again in a new session"
    return sentence + "."


def _ending(exit_code: int) -> str:
    number = exit_code - 128
    if number > 0:
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            pass
    return f"exit code {exit_code}"
