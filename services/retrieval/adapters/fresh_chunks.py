"""Chunks in memory, numbered as they come: what the indexes beside the one on disk have in common."""

from __future__ import annotations

from typing import Generic, TypeVar

from services.retrieval.domain.search import ChunkVector, IndexedChunk, Match

Kept = TypeVar("Kept", IndexedChunk, ChunkVector)


class FreshChunks(Generic[Kept]):
    """Chunks by number and by id; what is replaced or dropped stays as an empty place."""

    def __init__(self) -> None:
        self._chunks: list[Kept | None] = []
        self._numbers: dict[str, int] = {}

    def _take(self, chunk: Kept) -> int:
        """Take up a chunk, in place of one with its id, and return its number."""
        self._forget(self._numbers.get(chunk.id))
        number = self._numbers[chunk.id] = len(self._chunks)
        self._chunks.append(chunk)
        return number

    def _forget(self, number: int | None) -> None:
        if number is not None and (chunk := self._chunks[number]) is not None:
            self._chunks[number] = None
            self._numbers.pop(chunk.id, None)


def as_match(chunk: IndexedChunk | ChunkVector, score: float) -> Match:
    """Return a chunk as it was found."""
    return Match(chunk_id=chunk.id, passage_id=chunk.passage_id, index=chunk.index, score=float(score))
