"""What the use cases need from outside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from services.sandbox.domain import Event, Finished, Isolation, Job, Owner, Session


class Jail(Protocol):
    """Runs jobs where they can do no harm. Never falls back to anything weaker: without isolation nothing runs."""

    async def isolation(self) -> Isolation:
        """Return the newest proof; waits while the jail is being built or rebuilt."""

    def run(self, key: str, job: Job) -> AsyncIterator[Event]:
        """Yield Started, output and files, and Finished last, always. `key` is unique within this jail."""

    async def cancel(self, key: str) -> None:
        """Have the job end soon as CANCELLED; its events go on until Finished."""

    async def open_session(self, session_id: str) -> None:
        """Start an interpreter that keeps its state; raise Unavailable when none comes up."""

    async def close_session(self, session_id: str) -> None:
        """End it, with all its processes; an unknown one is no error."""


class State(StrEnum):
    """How far a recorded execution is."""

    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The row of an execution. `node` and `boot` say which process runs it."""

    execution_id: str
    owner: Owner
    digest: str
    state: State
    node: str
    boot: str
    created_at: datetime


class ExecutionStore(Protocol):
    """Durable executions, unique by tenant and execution id."""

    async def claim(self, record: Record) -> Record | None:
        """Insert a RUNNING row and return None; when the id is taken, change nothing and return the row that has it."""

    async def release(self, record: Record) -> None:
        """Delete a RUNNING row whose code never ran, so that its id can be used again."""

    async def finish(self, record: Record, events: Sequence[Event], at: datetime) -> None:
        """Store the events and mark the row FINISHED, in one transaction."""

    def replay(self, owner: Owner, execution_id: str) -> AsyncIterator[Event]:
        """Yield the stored events in order, a few at a time."""

    async def abandon(self, node: str, boot: str, finished: Finished, at: datetime) -> int:
        """End RUNNING rows of earlier boots of `node` with `finished`; return how many there were."""

    async def prune(self, before: datetime) -> int:
        """Delete executions finished before; return how many."""


class SessionStore(Protocol):
    """Durable owners of sessions; the interpreters themselves live in the jail."""

    async def add(self, session: Session) -> None: ...

    async def find(self, session_id: str, owner: Owner) -> Session | None:
        """Return the open session with this id and owner."""

    async def touch(self, session_id: str, at: datetime) -> None:
        """Note a use."""

    async def remove(self, session_id: str) -> None: ...

    async def of_owner(self, owner: Owner, node: str) -> list[Session]:
        """Return the owner's sessions on a node, least recently used first."""

    async def stale(self, node: str, *, used_before: datetime, created_before: datetime) -> list[Session]:
        """Return a node's sessions that are idle or old."""

    async def count(self, node: str) -> int:
        """Return how many sessions a node keeps."""

    async def clear(self, node: str) -> None:
        """Forget every session of a node: its interpreters are gone."""
