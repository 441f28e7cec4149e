"""A memory as data, and where it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import grpc

from services.chassis.errors import ServiceError


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Something to remember of one user. The id derives from the call that asked for it, so a repeat is the same."""

    memory_id: str
    tenant: str
    user: str
    text: str
    created_at: datetime
    run_id: str = ""
    conversation_id: str = ""


class MemoryNotFound(ServiceError):
    """The memory does not exist or is another user's."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "MEMORY_NOT_FOUND"

    def __init__(self, memory_id: str) -> None:
        super().__init__(
            f"memory '{memory_id}' does not exist; list memories to find the right id", metadata={"id": memory_id}
        )


class MemoryFull(ServiceError):
    """The user keeps as many memories as may be kept."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "MEMORY_FULL"


class MemoryStore(Protocol):
    """Keeps memories of users."""

    async def add(self, memory: Memory, most: int) -> Memory:
        """Keep a memory, or return the user's one of the same id or text. Raises MemoryFull beyond `most`."""
        ...

    async def list(
        self, tenant: str, user: str, *, limit: int, after: tuple[datetime, str] | None = None
    ) -> Sequence[Memory]:
        """Return the user's memories, newest first, those after (created_at, id) of the last one."""
        ...

    async def remove(self, tenant: str, user: str, memory_id: str) -> bool:
        """Erase one of the user's memories; tell whether there was one."""
        ...

    async def remove_all(self, tenant: str, user: str) -> int:
        """Erase all of the user's memories and return how many there were."""
        ...
