"""What this package's parts know of each other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from services.chassis.errors import ServiceError
from services.chassis.identity import Principal
from services.orchestrator.domain.messages import Artifact

# Told (done, of how much or None, words) while a call works.
Progress = Callable[[float, float | None, str], None]


class Link(Enum):
    """State of the way to a server."""

    IDLE = "idle"
    CONNECTED = "connected"
    BROKEN = "broken"


class ServerUnreachable(ServiceError):
    """No session with the server can be had; the message says why and when it is tried again."""

    reason = "TOOL_SERVER_UNREACHABLE"


class CallBroken(Exception):
    """The connection ended while the call ran: whether it took effect is unknown."""


class CallRefused(Exception):
    """The server refused the call; nothing ran. The message is the server's, for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """A tool as its server lists it. Schemas are canonical JSON; `output_schema` says that one is declared."""

    name: str
    title: str
    description: str
    parameters_json: bytes
    output_schema: bool = False
    reads_only: bool = False
    idempotent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a server offers. `left_out` says which of its tools cannot be used, and why."""

    tools: tuple[ListedTool, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    instructions: str = ""
    server: str = ""
    version: str = ""
    protocol: str = ""


class Files(Protocol):
    """Keeps files for the user of a run."""

    async def keep(
        self, principal: Principal, name: str, chunks: AsyncIterator[bytes], run_id: str = ""
    ) -> Artifact: ...
