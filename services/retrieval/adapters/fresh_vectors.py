"""Vectors that the index on disk has not folded in yet, compared one by one in memory: exact, and a few milliseconds.

The store would read them from as many files as there were writes. A fold empties this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from services.retrieval.adapters.fresh_chunks import FreshChunks, as_match
from services.retrieval.domain.search import ChunkVector, Match, Scope
from services.retrieval.ports import Purge

FIRST_ROWS = 256


class FreshVectors(FreshChunks[ChunkVector]):
    """Vectors of one size."""

    def __init__(self) -> None:
        super().__init__()
        self._units = np.zeros((0, 0), "f4")

    def add(self, vectors: Sequence[ChunkVector]) -> None:
        """Take up vectors; one with an id that is known replaces it."""
        rows = np.asarray([vector.values for vector in vectors], "f4")
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        first = len(self._chunks)
        self._grow(first + len(rows), rows.shape[1])
        self._units[first : first + len(rows)] = rows / np.where(lengths, lengths, 1)
        for vector in vectors:
            self._take(vector)

    def drop(self, purge: Purge) -> None:
        """Forget what the purge names."""
        for number, chunk in enumerate(self._chunks):
            if (
                chunk is not None
                and (chunk.tenant, chunk.source_id) == (purge.tenant, purge.source_id)
                and purge.document_id in ("", chunk.document_id)
                and purge.revision in ("", chunk.revision)
            ):
                self._forget(number)

    def nearest(self, vector: Sequence[float], scope: Scope, limit: int) -> list[Match]:
        """Return chunks in scope by cosine, nearest first."""
        if not self._numbers:
            return []
        one = np.asarray(vector, "f4")
        cosines = self._units[: len(self._chunks)] @ (one / (np.linalg.norm(one) or 1))
        documents = None if scope.documents is None else frozenset(scope.documents)
        found: list[Match] = []
        for number in np.argsort(-cosines, kind="stable"):
            chunk = self._chunks[number]
            if chunk is not None and _holds(scope, documents, chunk):
                found.append(as_match(chunk, cosines[number]))
                if len(found) == limit:
                    break
        return found

    def vectors(self, scope: Scope, chunk_ids: Sequence[str]) -> Mapping[str, Sequence[float]]:
        """Return the vector of each of these chunks that is here and in scope."""
        documents = None if scope.documents is None else frozenset(scope.documents)
        kept = (self._chunks[self._numbers[one]] for one in chunk_ids if one in self._numbers)
        return {chunk.id: chunk.values for chunk in kept if chunk is not None and _holds(scope, documents, chunk)}

    def _grow(self, rows: int, size: int) -> None:
        if rows > len(self._units):
            larger = np.zeros((max(rows, 2 * len(self._units), FIRST_ROWS), size), "f4")
            if self._chunks:
                larger[: len(self._chunks)] = self._units[: len(self._chunks)]
            self._units = larger


def _holds(scope: Scope, documents: frozenset[str] | None, chunk: ChunkVector) -> bool:
    in_documents = documents is None or chunk.document_id in documents
    return chunk.tenant == scope.tenant and chunk.source_id in scope.sources and in_documents
