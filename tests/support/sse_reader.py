"""Server-sent events read back from a response."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True, slots=True)
class Event:
    """One event, or a comment (then only `comment` is set)."""

    id: str = ""
    event: str = ""
    data: str = ""
    comment: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.data)


async def events(response: httpx.Response) -> AsyncIterator[Event]:
    """Yield the events of a streaming response as they come."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line.startswith(":"):
            yield Event(comment=line[1:].strip())
        elif line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield Event(id=fields.get("id", ""), event=fields.get("event", ""), data=fields.get("data", ""))
            fields = {}


async def all_events(response: httpx.Response) -> list[Event]:
    """Return every event until the stream ends, without comments."""
    return [event async for event in events(response) if not event.comment]
