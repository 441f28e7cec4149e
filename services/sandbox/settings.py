"""The sandbox service's settings: `PROCTOR_SANDBOX_<FIELD>`."""

from __future__ import annotations

import hashlib
import socket
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from services.chassis.settings import Secret

# A session id is a node, a dash and 32 digits, and has at most 64 characters.
_NODE_CHARACTERS = 31


class Backend(StrEnum):
    """`warm` forks parked jobs from a zygote; `cold` starts a sandbox for each job."""

    WARM = "warm"
    COLD = "cold"


class CgroupMode(StrEnum):
    """Which control groups to use; `auto` takes the best there is."""

    AUTO = "auto"
    V1 = "v1"
    V2 = "v2"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Durations are seconds. `python_environment` is the virtual environment that foreign code finds."""

    listen: str = "127.0.0.1:9103"
    data_dir: Path = Path(".proctor")
    # Empty: an SQLite file in `data_dir`.
    database_url: Secret = Secret("")

    # `warm` keeps jobs parked that start in milliseconds; `cold` starts a sandbox for each job.
    backend: Backend = Backend.WARM
    # The bubblewrap program.
    bwrap: str = "bwrap"
    # The virtual environment that foreign code finds.
    python_environment: Path = Path(".venv-sandbox")
    # Without a memory cgroup only rlimits and a watchdog bound memory; that must be chosen.
    allow_no_cgroup: bool = False
    # Which control groups bound memory and processes: `auto`, `v1`, `v2` or `none`.
    cgroup: CgroupMode = CgroupMode.AUTO
    # Host user ids from here on are used for sandboxes when the service runs as root.
    uid_base: int = 60600

    # Executions at once, and how many may wait for a slot.
    slots: int = 4
    max_waiting: int = 64
    # Warm jobs that wait for code.
    parked: int = 2
    # Jobs, or the time, after which the process that forks them is replaced.
    recycle_jobs: int = 500
    recycle_after: timedelta = timedelta(hours=1)

    # How long a finished execution can be attached to again.
    retention: timedelta = timedelta(hours=1)
    # How long a session lives without use, and at all.
    session_idle: timedelta = timedelta(minutes=20)
    session_life: timedelta = timedelta(hours=2)
    # Sessions of one owner at once, and of all.
    sessions_per_owner: int = 4
    max_sessions: int = 32
    # Name of this node in session ids; empty is derived from host and data directory.
    node: str = ""

    def __post_init__(self) -> None:
        if self.slots < 1 or self.parked < 0 or self.max_waiting < 0:
            raise ValueError("SLOTS must be at least 1, PARKED and MAX_WAITING not negative")
        if self.uid_base < 1000:
            raise ValueError("UID_BASE must be at least 1000: below are users of the system")
        if len(self.node) > _NODE_CHARACTERS:
            raise ValueError(f"NODE must have at most {_NODE_CHARACTERS} characters: session ids begin with it")

    @property
    def node_name(self) -> str:
        """The node's name, short and stable over restarts."""
        if self.node:
            return self.node
        return hashlib.sha256(f"{socket.gethostname()}:{self.data_dir.resolve()}".encode()).hexdigest()[:8]

    @property
    def state_dir(self) -> Path:
        """Where the supervisor keeps what outlives it."""
        return Path.cwd() / self.data_dir / "sandbox"
