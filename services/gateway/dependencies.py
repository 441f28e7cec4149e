"""What a route asks for: the composed parts of the gateway."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from services.chassis.clock import Clock, Ids
from services.chassis.identity import IdentitySigner
from services.gateway.auth import Authenticator, Caller
from services.gateway.backends import Backends
from services.gateway.background import Background
from services.gateway.ending import Ending
from services.gateway.keys import Keys
from services.gateway.ratelimit import RateLimiter
from services.gateway.settings import Settings
from services.gateway.streams import RunStreams

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything the routes stand on."""

    settings: Settings
    backends: Backends
    streams: RunStreams
    authenticator: Authenticator
    keys: Keys
    limiter: RateLimiter
    signer: IdentitySigner
    clock: Clock
    ids: Ids
    background: Background = field(default_factory=Background)
    # Set when the gateway stops: open streams end so that clients watch again elsewhere.
    draining: Ending = field(default_factory=Ending)

    def metadata(self, caller: Caller) -> Metadata:
        """Return call metadata that carries the caller's identity."""
        return self.signer.metadata(caller.principal)


def parts_of(connection: HTTPConnection) -> Parts:
    """Return the gateway's parts."""
    parts: Parts = connection.app.state.parts
    return parts


async def _parts(connection: HTTPConnection) -> Parts:
    """Return the gateway's parts. Async, though it awaits nothing: FastAPI runs what is not in a thread."""
    return parts_of(connection)


PartsDep = Annotated[Parts, Depends(_parts)]
