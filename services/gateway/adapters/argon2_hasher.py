"""Argon2id by argon2-cffi, in a thread and bounded in number: each hash takes memory."""

from __future__ import annotations

import asyncio

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError

# A key's secret has 256 random bits, so no dictionary helps a thief; these costs keep a check at a few milliseconds.
TIME_COST, MEMORY_KIB, PARALLELISM = 2, 8 * 1024, 1
MOST_AT_ONCE = 2


class Argon2Hasher:
    """Hashes and checks secrets."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher(time_cost=TIME_COST, memory_cost=MEMORY_KIB, parallelism=PARALLELISM)
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)

    async def hash(self, secret: str) -> str:
        async with self._slots:
            return await asyncio.to_thread(self._hasher.hash, secret)

    async def matches(self, secret: str, hashed: str) -> bool:
        async with self._slots:
            return await asyncio.to_thread(self._matches, secret, hashed)

    def _matches(self, secret: str, hashed: str) -> bool:
        try:
            return self._hasher.verify(hashed, secret)
        except VerificationError:
            return False
