"""What suite tests do over and over: ingest the handbook, follow a run to its end."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol

import httpx

from tests.support.sse_reader import events

HANDBOOK = Path(__file__).parents[2] / "examples" / "handbook"
TERMINAL = ("run_completed", "run_failed", "run_cancelled")


class Client(Protocol):
    """Whatever speaks to a gateway."""

    @property
    def http(self) -> httpx.AsyncClient: ...


async def ingest_handbook(suite: Client, source: str = "handbook") -> None:
    """Put the example documents into a source and make sure that all are searchable."""
    (await suite.http.post("/v1/sources", json={"name": source})).raise_for_status()
    files = [("files", (path.name, path.read_bytes())) for path in sorted(HANDBOOK.iterdir()) if path.is_file()]
    reply = await suite.http.post(
        f"/v1/sources/{source}/documents", files=files, headers={"accept": "application/json"}
    )
    reply.raise_for_status()
    assert reply.json()["failed"] == 0, reply.text


async def follow(
    suite: Client, method: str, url: str, *, body: Mapping[str, Any] | None = None, **headers: str
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield a run's events as they come; each has `kind` beside the journal's own fields."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with suite.http.stream(method, url, json=body, headers=sent) as response:
        if response.status_code >= 400:
            await response.aread()
        response.raise_for_status()
        async for event in events(response):
            if event.data:
                yield {"kind": event.event, **json.loads(event.data)}


async def ask(suite: Client, question: str, **body: Any) -> list[dict[str, Any]]:
    """Ask and return every event of the run."""
    stream = follow(suite, "POST", "/v1/runs", body={"input": question, **body})
    return [event async for event in stream]


async def ask_until(suite: Client, kind: str, question: str, **body: Any) -> list[dict[str, Any]]:
    """Ask, and leave when an event of `kind` has come; the run goes on without us."""
    seen = []
    async with aclosing(follow(suite, "POST", "/v1/runs", body={"input": question, **body})) as stream:
        async for event in stream:
            seen.append(event)
            if event["kind"] == kind:
                break
    return seen


async def watch(suite: Client, run_id: str, after: int = 0) -> list[dict[str, Any]]:
    """Return the events after a sequence, to the run's end."""
    stream = follow(suite, "GET", f"/v1/runs/{run_id}/events", Last_Event_ID=str(after))
    return [event async for event in stream]


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return the bodies of the events of one kind."""
    return [event[kind] for event in events if event["kind"] == kind]


def answer_text(events: list[dict[str, Any]]) -> str:
    """Return the answer as a client that only reads deltas sees it."""
    return "".join(delta["text"] for delta in of(events, "answer_delta"))
