"""One process per SQLite file: an advisory lock beside it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import grpc

from services.chassis.errors import ServiceError


class DatabaseHeld(ServiceError):
    """Another orchestrator works on the same SQLite file."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "NOT_CONFIGURED"

    def __init__(self, path: Path, holder: str) -> None:
        who = f"process {holder}" if holder else "another process"
        super().__init__(
            f"'{path}' is held by {who}: one orchestrator per SQLite file. Stop it, give this one another "
            "PROCTOR_ORCHESTRATOR_DATA_DIR, or run several on PostgreSQL with PROCTOR_ORCHESTRATOR_DATABASE_URL",
            metadata={"path": str(path), "holder": holder},
        )


class ExclusiveFile:
    """Holds `<database>.lock` while the process lives; the kernel releases it when the process dies."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._descriptor = -1

    def acquire(self) -> None:
        """Take the lock and write who has it, or raise DatabaseHeld."""
        path = self._database.with_name(self._database.name + ".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise DatabaseHeld(self._database, holder) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
