"""Sessions: interpreters that keep their state, bounded per owner, ended when idle or old."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from services.chassis.clock import Clock, Ids
from services.sandbox.domain import Limits, Owner, Session
from services.sandbox.errors import SandboxBusy, SandboxUnsafe, SessionNotFound
from services.sandbox.ports import Jail, SessionStore


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRules:
    """How long sessions live and how many there may be."""

    idle: timedelta
    life: timedelta
    per_owner: int
    total: int


class Sessions:
    """Opens, finds and ends the sessions of one node."""

    def __init__(self, jail: Jail, store: SessionStore, rules: SessionRules, clock: Clock, ids: Ids, node: str) -> None:
        self._jail = jail
        self._store = store
        self._rules = rules
        self._clock = clock
        self._ids = ids
        self._node = node
        self._turns: dict[str, asyncio.Lock] = {}

    async def recover(self) -> None:
        """Forget the sessions of an earlier process: their interpreters died with it."""
        await self._store.clear(self._node)

    async def create(self, owner: Owner, limits: Limits) -> Session:
        """Open a session. The owner's least recently used one ends when there are too many."""
        isolation = await self._jail.isolation()
        if not isolation.safe:
            raise SandboxUnsafe(isolation)
        mine = await self._store.of_owner(owner, self._node)
        for old in mine[: max(0, len(mine) - self._rules.per_owner + 1)]:
            await self._end(old.session_id)
        if await self._store.count(self._node) >= self._rules.total:
            raise SandboxBusy(f"this node keeps {self._rules.total} sessions already; close one", retry_after=10.0)
        now = self._clock.now()
        session = Session(
            session_id=f"{self._node}-{self._ids.new()}",
            owner=owner,
            node=self._node,
            limits=limits,
            created_at=now,
            used_at=now,
        )
        await self._jail.open_session(session.session_id)
        await self._store.add(session)
        return session

    async def find(self, session_id: str, owner: Owner) -> Session:
        """Return the owner's open session, or raise SessionNotFound."""
        session = await self._store.find(session_id, owner)
        if session is None or session.node != self._node or self._is_over(session):
            raise SessionNotFound(session_id)
        return session

    async def close(self, session_id: str, owner: Owner) -> None:
        """End the owner's session; closing it again is fine."""
        if await self._store.find(session_id, owner) is not None:
            await self._end(session_id)

    @asynccontextmanager
    async def turn(self, session_id: str, owner: Owner) -> AsyncIterator[None]:
        """Hold the session for one call: calls serialise. Without a session there is nothing to hold."""
        if not session_id:
            yield
            return
        async with self._turns.setdefault(session_id, asyncio.Lock()):
            await self.find(session_id, owner)
            await self._store.touch(session_id, self._clock.now())
            try:
                yield
            finally:
                await self._store.touch(session_id, self._clock.now())

    async def forget(self, session_id: str) -> None:
        """Note that the interpreter is gone."""
        self._turns.pop(session_id, None)
        await self._store.remove(session_id)

    async def sweep(self) -> None:
        """End sessions that are idle or old and not in use."""
        now = self._clock.now()
        stale = await self._store.stale(
            self._node, used_before=now - self._rules.idle, created_before=now - self._rules.life
        )
        for session in stale:
            turn = self._turns.get(session.session_id)
            if turn is None or not turn.locked():
                await self._end(session.session_id)

    def _is_over(self, session: Session) -> bool:
        now = self._clock.now()
        return now - session.used_at > self._rules.idle or now - session.created_at > self._rules.life

    async def _end(self, session_id: str) -> None:
        await self._jail.close_session(session_id)
        await self.forget(session_id)
