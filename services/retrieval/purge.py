"""Dropping from the index what the catalogue has forgotten."""

from __future__ import annotations

import asyncio

from services.retrieval.ports import ChunkIndex, Documents


class Purger:
    """Carries out recorded purges, one run at a time."""

    def __init__(self, documents: Documents, index: ChunkIndex) -> None:
        self._documents = documents
        self._index = index
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Carry out every purge that is recorded; one that fails stays recorded."""
        async with self._turn:
            for purge in await self._documents.purges():
                await self._index.delete(purge)
                await self._documents.purged(purge.id)
