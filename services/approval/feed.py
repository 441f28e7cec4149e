"""Following changes as they happen: one reader of the change log for each process, fanned out to its watchers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from services.approval.domain import Approval, State
from services.approval.entitlement import is_service, may_see
from services.approval.ports import Approvals, ChangeLog, Place
from services.approval.records import Query, Records
from services.chassis.errors import Overloaded, Unavailable
from services.chassis.identity import Principal

BATCH = 500
PAGE = 200
# What one slow watcher may make this process hold.
MAX_BYTES = 32 * 1024 * 1024

Accepts = Callable[[Approval], bool]


class Subscription:
    """Records that changed and have not been told yet: the newest of each, at most `capacity` and MAX_BYTES of them."""

    def __init__(self, accepts: Accepts, capacity: int) -> None:
        self._accepts = accepts
        self._capacity = capacity
        self._waiting: OrderedDict[tuple[str, str], Approval] = OrderedDict()
        self._bytes = 0
        self._ready = asyncio.Event()
        self._overflowed = False
        self._closed = False

    def offer(self, approval: Approval) -> None:
        """Keep `approval` for the watcher when it is one of his; it takes the place of an older version."""
        if not self._accepts(approval):
            return
        key = approval.tenant, approval.approval_id
        older = self._waiting.pop(key, None)
        self._waiting[key] = approval
        self._bytes += approval.size - (older.size if older else 0)
        self._overflowed = self._overflowed or len(self._waiting) > self._capacity or self._bytes > MAX_BYTES
        self._ready.set()

    def close(self) -> None:
        """End the watch: the service drains."""
        self._closed = True
        self._ready.set()

    async def take(self, timeout: float) -> Approval | None:
        """Return the next change, None after `timeout` seconds without one.

        Raises Overloaded when the watcher is too slow, Unavailable when the service drains: watch again.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._ready.wait()
        except TimeoutError:
            return None
        if self._overflowed:
            raise Overloaded("this watch is too slow for the changes; watch again", retry_after=1.0)
        if not self._waiting:
            raise Unavailable("the service is going down; watch again", retry_after=0.5)
        _, approval = self._waiting.popitem(last=False)
        self._bytes -= approval.size
        if not self._waiting and not self._closed:
            self._ready.clear()
        return approval


class Feed:
    """Reads changes after its cursor; `deliver` is called whenever there may be some."""

    def __init__(self, log: ChangeLog, approvals: Approvals, *, capacity: int) -> None:
        self._log = log
        self._approvals = approvals
        self._capacity = capacity
        self._subscriptions: set[Subscription] = set()
        self._cursor: int | None = None

    async def open(self) -> None:
        """Start at the end of the log; what came before is what a watcher lists first."""
        self._cursor = await self._log.latest()

    async def deliver(self) -> None:
        """Offer every change since the last time to the subscriptions."""
        if self._cursor is None:
            await self.open()
            return
        while changes := await self._log.after(self._cursor, BATCH):
            if self._subscriptions:
                # Rules are no records: their ids are simply not found.
                ids = list(dict.fromkeys(change.subject for change in changes if not change.action.on_rule))
                for approval in await self._approvals.find(None, ids) if ids else ():
                    for subscription in tuple(self._subscriptions):
                        subscription.offer(approval)
            self._cursor = changes[-1].sequence

    @contextmanager
    def subscribe(self, accepts: Accepts) -> Iterator[Subscription]:
        """Receive changes of the records that `accepts` says, for the length of the block."""
        subscription = Subscription(accepts, self._capacity)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def close(self) -> None:
        """End every watch."""
        for subscription in tuple(self._subscriptions):
            subscription.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a watch asks for."""

    run_id: str = ""
    changes_only: bool = False


class Watches:
    """Streams records to whoever may see them."""

    def __init__(self, feed: Feed, records: Records, *, keep_alive: float) -> None:
        self._feed = feed
        self._records = records
        self._keep_alive = keep_alive

    async def watch(self, principal: Principal, watched: Watched) -> AsyncGenerator[Approval | None, None]:
        """Yield those pending now, then None, then each change; None again after `keep_alive` seconds of silence.

        The subscription stands before the list is read, so nothing falls between; a record may come twice.
        """

        def accepts(approval: Approval) -> bool:
            return may_see(principal, approval) and watched.run_id in ("", approval.run_id)

        with self._feed.subscribe(accepts) as subscription:
            # A service has no tenant to list; it reconciles by asking for the ids it knows.
            if not watched.changes_only and not is_service(principal):
                async with aclosing(self._pending(principal, watched.run_id)) as pending:
                    async for approval in pending:
                        yield approval
            yield None
            while True:
                yield await subscription.take(self._keep_alive)

    async def _pending(self, principal: Principal, run_id: str) -> AsyncGenerator[Approval, None]:
        query = Query(states=frozenset({State.PENDING}), run_id=run_id)
        place = None
        while page := await self._records.page(principal, query, place, PAGE):
            for approval in page:
                yield approval
            place = Place(at=page[-1].requested_at, id=page[-1].approval_id)
