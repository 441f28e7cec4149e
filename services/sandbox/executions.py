"""The use case Execute: claim the id, wait for a slot, run, keep the result for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import timedelta

from services.chassis.clock import Clock, Ids
from services.chassis.errors import ServiceError, Unavailable
from services.sandbox.domain import Event, Finished, Job, Started, Status
from services.sandbox.errors import ExecutionIdReused, ExecutionNotFound, SandboxBusy, SandboxUnsafe
from services.sandbox.live import LiveExecution
from services.sandbox.ports import ExecutionStore, Jail, Record, State
from services.sandbox.sessions import Sessions
from services.sandbox.watch import Observer

log = logging.getLogger(__name__)

_DRAIN_SECONDS = 10.0
_LOST = Finished(status=Status.SANDBOX_ERROR, detail="the sandbox service was restarted while the code ran")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Executions at once, how many may wait, and how long results are kept."""

    slots: int
    max_waiting: int
    retention: timedelta


class Executions:
    """Runs each execution id at most once, whoever asks however often."""

    def __init__(
        self,
        jail: Jail,
        store: ExecutionStore,
        sessions: Sessions,
        capacity: Capacity,
        observer: Observer,
        clock: Clock,
        ids: Ids,
        node: str,
    ) -> None:
        self._jail = jail
        self._store = store
        self._sessions = sessions
        self._capacity = capacity
        self._observer = observer
        self._clock = clock
        self._node = node
        self._boot = ids.new()
        self._live: dict[tuple[str, str], tuple[Record, LiveExecution]] = {}
        # One claim at a time, so that a second caller finds the execution of the first.
        self._claims = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(capacity.slots)
        self._draining = False

    async def recover(self) -> None:
        """End the executions that an earlier process of this node left running: they died with it."""
        await self._store.abandon(self._node, self._boot, _LOST, self._clock.now())

    async def execute(self, job: Job) -> AsyncGenerator[Event, None]:
        """Yield the events of `job` from the first on, running it if its id is new.

        Raises SandboxUnsafe, SandboxBusy, SessionNotFound, ExecutionIdReused, ExecutionNotFound. Closing the last
        stream of a running execution cancels it.
        """
        live = self._attach(job) or await self._claim(job)
        if live is None:
            async for event in self._store.replay(job.owner, job.execution_id):
                yield event
            return
        async with aclosing(live.watch()) as events:
            async for event in events:
                yield event

    async def drain(self) -> None:
        """Admit nothing new and wait a while for what runs."""
        self._draining = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_DRAIN_SECONDS)

    async def close(self) -> None:
        """Cancel what still runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def prune(self) -> None:
        """Forget results older than the retention."""
        await self._store.prune(self._clock.now() - self._capacity.retention)

    async def _admit(self, job: Job) -> Job:
        """Return the job as it will run; in a session that is with the session's limits."""
        if self._draining:
            raise Unavailable("the sandbox is shutting down; try again elsewhere", retry_after=1.0)
        isolation = await self._jail.isolation()
        if not isolation.safe:
            raise SandboxUnsafe(isolation)
        if job.session_id:
            session = await self._sessions.find(job.session_id, job.owner)
            return replace(job, limits=session.limits)
        return job

    def _record(self, job: Job) -> Record:
        return Record(
            execution_id=job.execution_id,
            owner=job.owner,
            digest=job.digest(),
            state=State.RUNNING,
            node=self._node,
            boot=self._boot,
            created_at=self._clock.now(),
        )

    def _attach(self, job: Job) -> LiveExecution | None:
        """Return the execution when it runs in this process."""
        running = self._live.get((job.owner.tenant, job.execution_id))
        if running is None:
            return None
        record, live = running
        _check_same(record, job)
        return live

    async def _claim(self, job: Job) -> LiveExecution | None:
        """Return a new execution or one that began meanwhile; None when it has ended and can be replayed."""
        job = await self._admit(job)
        async with self._claims:
            live = self._attach(job)
            if live is not None:
                return live
            self._find_room()
            record = self._record(job)
            existing = await self._store.claim(record)
            if existing is None:
                return self._begin(job, record)
        _check_same(existing, job)
        if existing.state is State.RUNNING:
            raise Unavailable(
                f"execution '{existing.execution_id}' runs on node '{existing.node}'; ask there, or again later",
                retry_after=1.0,
                metadata={"node": existing.node},
            )
        return None

    def _find_room(self) -> None:
        """Raise SandboxBusy when as many wait as may. Under the lock, so that two do not take the last place."""
        waiting = len(self._live) - self._capacity.slots
        if waiting >= self._capacity.max_waiting:
            raise SandboxBusy(
                f"all {self._capacity.slots} slots are busy and {waiting} executions wait; try again later",
                retry_after=2.0,
            )

    def _begin(self, job: Job, record: Record) -> LiveExecution:
        live = LiveExecution()
        self._live[job.owner.tenant, job.execution_id] = (record, live)
        task = asyncio.create_task(self._drive(job, record, live))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return live

    async def _drive(self, job: Job, record: Record, live: LiveExecution) -> None:
        """Run the job to its end, store the result, then show the end: a fact commits before it is told."""
        failure: Exception | None = Unavailable("the sandbox is shutting down; ask again later", retry_after=1.0)
        try:
            finished = await self._run(job, live)
            await self._store.finish(record, [*live.events, finished], self._clock.now())
            live.publish(finished)
            failure = None
        except ServiceError as error:
            # Nothing ran: a session that ended meanwhile, a supervisor that does not come back. The id is free again.
            await self._store.release(record)
            failure = error
        except Exception as error:
            # Whoever watches gets it; nobody else awaits this task.
            log.exception("an execution failed", extra={"event": "sandbox.failed"})
            failure = error
        finally:
            del self._live[job.owner.tenant, job.execution_id]
            live.close(failure)

    async def _run(self, job: Job, live: LiveExecution) -> Finished:
        began = self._clock.monotonic()
        with self._observer.execution(job) as observed:
            granted = await self._slot(live)
            finished = Finished(status=Status.CANCELLED)
            if granted:
                try:
                    async with self._sessions.turn(job.session_id, job.owner):
                        finished = await self._consume(job, live, began)
                finally:
                    self._slots.release()
                if finished.state_lost:
                    await self._sessions.forget(job.session_id)
            started = next((event for event in live.events if isinstance(event, Started)), None)
            observed(started, finished)
            return finished

    async def _slot(self, live: LiveExecution) -> bool:
        """Wait for a slot; False when the callers left first."""
        acquire = asyncio.ensure_future(self._slots.acquire())
        leave = asyncio.ensure_future(live.abandoned.wait())
        try:
            await asyncio.wait((acquire, leave), return_when=asyncio.FIRST_COMPLETED)
            return acquire.done()
        finally:
            leave.cancel()
            if not acquire.done():
                acquire.cancel()

    async def _consume(self, job: Job, live: LiveExecution, began: float) -> Finished:
        key = f"{job.owner.tenant}/{job.execution_id}"
        cancel = asyncio.create_task(self._cancel_when_abandoned(key, live))
        try:
            async for event in self._jail.run(key, job):
                if isinstance(event, Finished):
                    return event
                if isinstance(event, Started):
                    event = replace(event, queued=self._clock.monotonic() - began)  # noqa: PLW2901
                live.publish(event)
        finally:
            cancel.cancel()
            await asyncio.gather(cancel, return_exceptions=True)
        return Finished(status=Status.SANDBOX_ERROR, detail="the sandbox fell silent")

    async def _cancel_when_abandoned(self, key: str, live: LiveExecution) -> None:
        await live.abandoned.wait()
        await self._jail.cancel(key)


def _check_same(existing: Record, job: Job) -> None:
    if existing.owner != job.owner:
        raise ExecutionNotFound(job.execution_id)
    if existing.digest != job.digest():
        raise ExecutionIdReused(job.execution_id)
