"""Rows of the embedded index: schemas, columns, the settings of what is indexed, conditions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from lancedb.index import FTS, IvfPq
from lancedb.query import MatchQuery

from services.retrieval.domain.search import ChunkVector, IndexedChunk
from services.retrieval.tokens import join

KEYS = ("chunk_id", "tenant", "source_id", "document_id", "revision", "passage_id")
VECTOR_INDEX = IvfPq(distance_type="cosine")


def split_at_spaces() -> FTS:
    """Return the index of words: terms stand between spaces as they are."""
    return FTS(
        base_tokenizer="whitespace",
        with_position=False,
        lower_case=False,
        stem=False,
        remove_stop_words=False,
        ascii_folding=False,
        max_token_length=None,
    )


def any_of(terms: Sequence[str]) -> Any:
    """Return a query for rows that hold any of the terms."""
    # Its defaults are given in a way that type checkers do not see.
    return MatchQuery(join(terms), "tokens")  # type: ignore[call-arg]


def words_schema() -> pa.Schema:
    """Return the columns of the words."""
    return pa.schema([*((key, pa.string()) for key in KEYS), ("index", pa.int32()), ("tokens", pa.string())])


def vectors_schema(size: int) -> pa.Schema:
    """Return the columns of vectors of this size."""
    vector = pa.list_(pa.float32(), size)
    return pa.schema([*((key, pa.string()) for key in KEYS), ("index", pa.int32()), ("vector", vector)])


def columns_of(rows: Sequence[IndexedChunk] | Sequence[ChunkVector]) -> dict[str, list[Any]]:
    """Return the columns that words and vectors have alike."""
    return {
        "chunk_id": [row.id for row in rows],
        "tenant": [row.tenant for row in rows],
        "source_id": [row.source_id for row in rows],
        "document_id": [row.document_id for row in rows],
        "revision": [row.revision for row in rows],
        "passage_id": [row.passage_id for row in rows],
        "index": [row.index for row in rows],
    }


def vectors_name(space: str) -> str:
    """Return the name of the table of an embedding space."""
    return f"vectors_{hashlib.sha256(space.encode()).hexdigest()[:16]}"


def quoted(values: Iterable[str]) -> str:
    """Return values as a list in a condition."""
    return ", ".join(map(quote, values))


def quote(value: str) -> str:
    """Return a value in a condition: nothing in it can end the quotes."""
    return "'" + value.replace("'", "''") + "'"
