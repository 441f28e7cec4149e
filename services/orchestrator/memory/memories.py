"""Remembering and recalling for one user."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from services.chassis.clock import Clock
from services.chassis.identity import Principal
from services.orchestrator.memory.ports import Memory, MemoryNotFound, MemoryStore
from services.orchestrator.narrowing import words

# Memories of one user at most: all of them are read to recall a few.
MOST = 500
RECALLED = 10


class Memories:
    """Memories of users; nobody reads another's."""

    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def remember(
        self, principal: Principal, text: str, *, key: str, run_id: str = "", conversation_id: str = ""
    ) -> Memory:
        """Keep `text`; the same key or the same text again is the same memory. Raises MemoryFull."""
        digest = hashlib.sha256(f"{principal.tenant}\x00{principal.user}\x00{key}".encode()).hexdigest()
        memory = Memory(
            memory_id=f"mem-{digest[:24]}",
            tenant=principal.tenant,
            user=principal.user,
            text=" ".join(text.split()),
            created_at=self._clock.now(),
            run_id=run_id,
            conversation_id=conversation_id,
        )
        return await self._store.add(memory, MOST)

    async def recall(self, principal: Principal, query: str, limit: int = RECALLED) -> Sequence[Memory]:
        """Return the memories that share most words with `query`, rare words counting more; the newest fill up."""
        memories = await self._store.list(principal.tenant, principal.user, limit=MOST)
        return _ranked(memories, query)[:limit]

    async def list(
        self, principal: Principal, *, limit: int, after: tuple[datetime, str] | None = None
    ) -> Sequence[Memory]:
        """Return the user's memories, newest first."""
        return await self._store.list(principal.tenant, principal.user, limit=limit, after=after)

    async def forget(self, principal: Principal, memory_id: str) -> None:
        """Erase one memory. Raises MemoryNotFound."""
        if not await self._store.remove(principal.tenant, principal.user, memory_id):
            raise MemoryNotFound(memory_id)

    async def forget_all(self, principal: Principal) -> int:
        """Erase every memory of the user and return how many there were."""
        return await self._store.remove_all(principal.tenant, principal.user)


def _ranked(memories: Sequence[Memory], query: str) -> list[Memory]:
    wanted = words(query)
    held = [words(memory.text) for memory in memories]
    seen_in = Counter(word for each in held for word in each)

    def relevance(index: int) -> float:
        return sum(math.log(1 + len(memories) / seen_in[word]) for word in wanted & held[index])

    order = sorted(range(len(memories)), key=lambda index: (-relevance(index), index))
    return [memories[index] for index in order]
