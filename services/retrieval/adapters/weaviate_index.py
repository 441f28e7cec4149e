"""The index for scale: Weaviate, one collection of words and one for each embedding space, a tenant each for ours.

Words are indexed from the same column of terms split at spaces as in LanceIndex, so both find the same. Object ids
derive from chunk ids, which makes every write idempotent.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import weaviate
from weaviate.auth import Auth
from weaviate.classes.config import Configure, DataType, Property, StopwordsPreset, Tokenization, VectorDistances
from weaviate.classes.data import DataObject
from weaviate.classes.query import Filter, MetadataQuery
from weaviate.classes.tenants import Tenant
from weaviate.collections.classes.filters import _Filters
from weaviate.collections.collection import CollectionAsync
from weaviate.exceptions import WeaviateBaseError

from services.retrieval.domain.errors import IndexUnavailable
from services.retrieval.domain.search import ChunkVector, IndexedChunk, Match, Scope
from services.retrieval.ports import Purge
from services.retrieval.tokens import join

log = logging.getLogger(__name__)
T = TypeVar("T")

WORDS = "ProctorChunks"
VECTORS = "ProctorVectors"
KEYS = ("chunk_id", "source_id", "document_id", "revision", "passage_id")
NAMESPACE = uuid.UUID("6f0d3c1e-5a2b-4b7e-9c53-1f7a0c2d9e11")
BATCH = 500
# Seconds before each new try of a write: a server that restarts is back within this.
BACKOFF = (0.2, 1.0, 3.0)

Collection = CollectionAsync[Any, Any]


class WeaviateIndex:
    """Implements the port ChunkIndex."""

    def __init__(self, client: weaviate.WeaviateAsyncClient) -> None:
        self._client = client
        self._known: set[str] = set()
        self._tenants: set[tuple[str, str]] = set()
        self._making = asyncio.Lock()

    @classmethod
    async def open(cls, http: str, grpc: str, api_key: str) -> WeaviateIndex:
        """Connect to a server, or raise IndexUnavailable."""
        web = urlsplit(http)
        host, _, port = grpc.rpartition(":")
        secure = web.scheme == "https"
        client = weaviate.use_async_with_custom(
            http_host=web.hostname or "",
            http_port=web.port or (443 if secure else 80),
            http_secure=secure,
            grpc_host=host,
            grpc_port=int(port),
            grpc_secure=secure,
            auth_credentials=Auth.api_key(api_key) if api_key else None,
        )
        try:
            await client.connect()
        except WeaviateBaseError as failure:
            await client.close()
            raise IndexUnavailable(
                f"no Weaviate answers at {http}; start it or set PROCTOR_RETRIEVAL_INDEX=lance"
            ) from failure
        return cls(client)

    async def add(self, chunks: Sequence[IndexedChunk]) -> None:
        for tenant, members in _by_tenant(chunks).items():
            words = await self._collection(WORDS, tenant, create=True)
            objects = [
                DataObject(uuid=_uuid(one.id), properties={**_keys(one), "tokens": one.tokens}) for one in members
            ]
            await self._insert(words, objects)

    async def add_vectors(self, space: str, vectors: Sequence[ChunkVector]) -> None:
        for tenant, members in _by_tenant(vectors).items():
            collection = await self._collection(_vectors_name(space), tenant, create=True)
            objects = [
                DataObject(uuid=_uuid(one.id), properties=_keys(one), vector=list(one.values)) for one in members
            ]
            await self._insert(collection, objects)

    async def lexical(self, terms: Sequence[str], scope: Scope, limit: int) -> list[Match]:
        if not terms or not scope.sources or scope.documents == ():
            return []
        words = await self._collection(WORDS, scope.tenant, create=True)
        answer = await _asked(
            lambda: words.query.bm25(
                query=join(terms),
                query_properties=["tokens"],
                filters=_within(scope),
                limit=limit,
                return_properties=["chunk_id", "passage_id", "index"],
                return_metadata=MetadataQuery(score=True),
            )
        )
        return [_match(one, one.metadata.score or 0.0) for one in answer.objects]

    async def nearest(self, space: str, vector: Sequence[float], scope: Scope, limit: int) -> list[Match]:
        if not scope.sources or scope.documents == ():
            return []
        collection = await self._collection(_vectors_name(space), scope.tenant, create=True)
        return await _near(collection, vector, _within(scope), limit)

    async def vectors(self, space: str, scope: Scope, chunk_ids: Sequence[str]) -> Mapping[str, Sequence[float]]:
        if not chunk_ids or not scope.sources:
            return {}
        collection = await self._collection(_vectors_name(space), scope.tenant, create=True)
        these = _within(scope) & Filter.by_property("chunk_id").contains_any(list(chunk_ids))
        answer = await _asked(
            lambda: collection.query.fetch_objects(
                filters=these, limit=len(chunk_ids), return_properties=["chunk_id"], include_vector=True
            )
        )
        return {one.properties["chunk_id"]: one.vector["default"] for one in answer.objects}

    async def delete(self, purge: Purge) -> None:
        conditions = {"source_id": purge.source_id, "document_id": purge.document_id, "revision": purge.revision}
        where = Filter.all_of([Filter.by_property(name).equal(value) for name, value in conditions.items() if value])
        for name in await self._names():
            collection = await self._collection(name, purge.tenant, create=False)
            if collection is not None:
                await _delete(collection, where)

    async def count(self, tenant: str, source_id: str) -> tuple[int, int]:
        where = Filter.by_property("source_id").equal(source_id)
        counts: dict[str, int] = {}
        for name in await self._names():
            collection = await self._collection(name, tenant, create=False)
            counts[name] = 0 if collection is None else await _count(collection, where)
        words = counts.pop(WORDS, 0)
        return words, sum(counts.values())

    async def maintain(self) -> None:
        """Weaviate looks after itself."""

    async def close(self) -> None:
        await self._client.close()

    async def _insert(self, collection: Collection, objects: Sequence[DataObject[Any, Any]]) -> None:
        for at in range(0, len(objects), BATCH):
            await self._insert_batch(collection, objects[at : at + BATCH])

    async def _insert_batch(self, collection: Collection, objects: Sequence[DataObject[Any, Any]]) -> None:
        for pause in (*BACKOFF, None):
            try:
                outcome = await _asked(lambda: collection.data.insert_many(objects))
                if not outcome.has_errors:
                    return
                failure: Exception = IndexUnavailable(f"Weaviate refused {len(outcome.errors)} chunks")
            except IndexUnavailable as unavailable:
                failure = unavailable
            if pause is None:
                raise failure
            await asyncio.sleep(pause)

    async def _names(self) -> list[str]:
        listed = await _asked(lambda: self._client.collections.list_all(simple=True))
        return [name for name in listed if name == WORDS or name.startswith(VECTORS)]

    async def _collection(self, name: str, tenant: str, *, create: bool) -> Any:
        """Return the tenant's part of a collection; without `create`, None when there is none."""
        key = (name, _tenant(tenant))
        collection: Collection = self._client.collections.use(name)
        if key not in self._tenants:
            async with self._making:
                if name not in self._known:
                    await self._create(name)
                    self._known.add(name)
                if not await _asked(lambda: collection.tenants.exists(key[1])):
                    if not create:
                        return None
                    await _asked(lambda: collection.tenants.create(Tenant(name=key[1])))
                self._tenants.add(key)
        return collection.with_tenant(key[1])

    async def _create(self, name: str) -> None:
        if await _asked(lambda: self._client.collections.exists(name)):
            return
        properties = [Property(name=key, data_type=DataType.TEXT, tokenization=Tokenization.FIELD) for key in KEYS]
        properties.append(Property(name="index", data_type=DataType.INT))
        if name == WORDS:
            properties.append(Property(name="tokens", data_type=DataType.TEXT, tokenization=Tokenization.WHITESPACE))
        await _asked(
            lambda: self._client.collections.create(
                name=name,
                properties=properties,
                vector_config=Configure.Vectors.self_provided(
                    vector_index_config=Configure.VectorIndex.hnsw(distance_metric=VectorDistances.COSINE)
                ),
                multi_tenancy_config=Configure.multi_tenancy(enabled=True, auto_tenant_activation=True),
                # Terms are content words already; Weaviate's list of English ones would hide some of them.
                inverted_index_config=Configure.inverted_index(stopwords_preset=StopwordsPreset.NONE),
            )
        )


async def _asked(call: Callable[[], Awaitable[T]]) -> T:
    try:
        return await call()
    except WeaviateBaseError as failure:
        log.warning("weaviate failed: %s", failure, extra={"event": "index.failed"})
        raise IndexUnavailable("the index does not answer; try again shortly") from failure


async def _delete(collection: Any, where: _Filters) -> None:
    """Delete what matches; one call of the server deletes at most as many as its query limit."""
    while (await _asked(lambda: collection.data.delete_many(where=where))).matches:
        pass


async def _count(collection: Any, where: _Filters) -> int:
    answer = await _asked(lambda: collection.aggregate.over_all(filters=where, total_count=True))
    return answer.total_count or 0


async def _near(collection: Any, vector: Sequence[float], where: _Filters, limit: int) -> list[Match]:
    answer = await _asked(
        lambda: collection.query.near_vector(
            near_vector=list(vector),
            filters=where,
            limit=limit,
            return_properties=["chunk_id", "passage_id", "index"],
            return_metadata=MetadataQuery(distance=True),
        )
    )
    return [_match(one, 1.0 - one.metadata.distance) for one in answer.objects]


def _by_tenant(rows: Sequence[Any]) -> dict[str, list[Any]]:
    grouped: dict[str, list[Any]] = {}
    for row in rows:
        grouped.setdefault(row.tenant, []).append(row)
    return grouped


def _keys(row: IndexedChunk | ChunkVector) -> dict[str, Any]:
    return {
        "chunk_id": row.id,
        "source_id": row.source_id,
        "document_id": row.document_id,
        "revision": row.revision,
        "passage_id": row.passage_id,
        "index": row.index,
    }


def _match(one: Any, score: float) -> Match:
    found = one.properties
    return Match(
        chunk_id=found["chunk_id"], passage_id=found["passage_id"], index=int(found["index"]), score=float(score)
    )


def _within(scope: Scope) -> _Filters:
    where: _Filters = Filter.by_property("source_id").contains_any(list(scope.sources))
    if scope.documents is not None:
        where = where & Filter.by_property("document_id").contains_any(list(scope.documents))
    return where


def _uuid(chunk_id: str) -> uuid.UUID:
    return uuid.uuid5(NAMESPACE, chunk_id)


def _vectors_name(space: str) -> str:
    return f"{VECTORS}_{hashlib.sha256(space.encode()).hexdigest()[:16]}"


def _tenant(tenant: str) -> str:
    """Return the name of our tenant in Weaviate, which allows letters, digits, dash and underscore."""
    return f"t{hashlib.sha256(tenant.encode()).hexdigest()[:32]}"
