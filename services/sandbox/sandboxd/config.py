"""What the service tells its supervisor at start."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

DEFAULT_PRELOAD = ("numpy", "pandas", "matplotlib.pyplot", "json", "csv", "re", "io", "math", "statistics")

WARM = "bubblewrap-warm"
COLD = "bubblewrap-cold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of one supervisor. Paths are absolute; sizes are bytes; times are seconds."""

    python_environment: str
    state_dir: str
    backend: str = WARM
    bwrap: str = "bwrap"
    slots: int = 4
    parked: int = 2
    uid_base: int = 60600
    allow_no_cgroup: bool = False
    cgroup: str = "auto"
    recycle_jobs: int = 500
    recycle_seconds: float = 3600.0
    preload: tuple[str, ...] = field(default=DEFAULT_PRELOAD)

    @property
    def state(self) -> Path:
        """The directory that outlives the supervisor: lock, baked fonts."""
        return Path(self.state_dir)

    def to_json(self) -> dict[str, Any]:
        """Return a form that survives JSON."""
        return asdict(self)

    @staticmethod
    def from_json(value: dict[str, Any]) -> Config:
        """Read what `to_json` wrote."""
        return Config(**{**value, "preload": tuple(value["preload"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Fixed sizes of every job (the table of limits in the documentation)."""

    workspace_bytes: int = 256 << 20
    tmp_bytes: int = 64 << 20
    shm_bytes: int = 64 << 20
    inodes: int = 4096
    file_bytes: int = 64 << 20
    open_files: int = 256
    stack_bytes: int = 8 << 20
    stdout_bytes: int = 1 << 20
    stderr_bytes: int = 256 << 10
    flood_factor: int = 8
    artifacts: int = 32
    artifact_bytes: int = 32 << 20
    artifacts_bytes: int = 64 << 20

    @property
    def disk_bytes(self) -> int:
        """Everything a job can keep in its file systems; a memory cgroup counts it."""
        return self.workspace_bytes + self.tmp_bytes + self.shm_bytes
