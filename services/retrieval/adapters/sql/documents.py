"""Documents in SQL, from upload to publication."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Row
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.chassis.clock import Clock, Ids
from services.chassis.database import reading
from services.retrieval.adapters.sql.rows import passage_values, to_document
from services.retrieval.adapters.sql.tables import documents, micros, passages, purges, sources
from services.retrieval.adapters.sql.vocabulary import add_terms, revision_terms, subtract_terms
from services.retrieval.domain.errors import DocumentNotFound, SourceNotFound
from services.retrieval.domain.filters import Condition, matches
from services.retrieval.domain.library import Document, DocumentState, Passage, Source, Upload, revision_of
from services.retrieval.domain.search import Scope
from services.retrieval.ports import Admission, Purge

_SCAN = 500
_NAMED = 64


class SqlDocuments:
    """Implements the port Documents."""

    def __init__(self, engine: AsyncEngine, clock: Clock, ids: Ids) -> None:
        self._engine = engine
        self._read = reading(engine)
        self._clock = clock
        self._ids = ids

    async def admit(self, upload: Upload, document_id: str) -> Admission:
        described = {
            "url": upload.url,
            "metadata": json.dumps(dict(upload.metadata), ensure_ascii=False, sort_keys=True),
        }
        queued = {
            **described,
            "staged": upload.staged,
            "size": upload.size,
            "state": DocumentState.QUEUED.value,
            "reason": "",
            "message": "",
            "ingested_at": micros(self._clock.now()),
        }
        here = sa.and_(documents.c.source_id == upload.source_id, documents.c.path == upload.path)
        try:
            async with self._engine.begin() as connection:
                row = (await connection.execute(documents.select().where(here).with_for_update())).first()
                unchanged = row is not None and _holds(row, upload)
                if row is None:
                    await connection.execute(documents.insert().values(**_fresh(upload, document_id), **queued))
                else:
                    await connection.execute(documents.update().where(here).values(described if unchanged else queued))
                row = (await connection.execute(documents.select().where(here))).one()
        except IntegrityError:
            raise SourceNotFound(upload.source_id) from None
        return Admission(document=to_document(row), unchanged=unchanged)

    async def interrupted(self) -> list[tuple[Document, str]]:
        query = documents.select().where(documents.c.staged != "").order_by(documents.c.ingested_at)
        async with self._read.begin() as connection:
            return [(to_document(row), row.staged) for row in await connection.execute(query)]

    async def advance(self, document_id: str, staged: str, state: DocumentState) -> bool:
        mine = sa.and_(documents.c.id == document_id, documents.c.staged == staged)
        async with self._engine.begin() as connection:
            done = await connection.execute(documents.update().where(mine).values(state=state.value))
            return done.rowcount == 1

    async def fail(self, document_id: str, staged: str, reason: str, message: str) -> None:
        mine = sa.and_(documents.c.id == document_id, documents.c.staged == staged)
        failed = {"state": DocumentState.FAILED.value, "reason": reason, "message": message, "staged": ""}
        async with self._engine.begin() as connection:
            row = (await connection.execute(documents.select().where(mine).with_for_update())).first()
            if row is not None:
                await connection.execute(documents.update().where(mine).values(failed))
                await self._drop_revisions_but(connection, to_document(row))

    async def write(self, batch: Sequence[Passage]) -> bool:
        insert = postgresql_insert if self._engine.dialect.name == "postgresql" else sqlite_insert
        statement = insert(passages).on_conflict_do_nothing(index_elements=["id"])
        try:
            async with self._engine.begin() as connection:
                await connection.execute(statement, [passage_values(passage) for passage in batch])
        except IntegrityError:
            return False
        return True

    async def publish(self, document: Document, staged: str, terms: Mapping[str, int], *, embed: bool) -> bool:
        before = await self._find(document.id)
        if before is None:
            return False
        renewed = before.revision != document.revision
        old_terms = await revision_terms(self._engine, document.id, before.revision) if before.revision else {}
        now = micros(self._clock.now())
        mine = sa.and_(
            documents.c.id == document.id, documents.c.staged == staged, documents.c.revision == before.revision
        )
        async with self._engine.begin() as connection:
            done = await connection.execute(
                documents.update()
                .where(mine)
                .values(
                    title=document.title,
                    media_type=document.media_type,
                    message=document.message,
                    state=(DocumentState.EMBEDDING if embed else DocumentState.DONE).value,
                    passages=document.passages,
                    ingested_at=now,
                    content_hash=document.content_hash,
                    revision=document.revision,
                    staged="",
                    embedded=0,
                    embed_attempts=0,
                    embed_after=now if embed else None,
                )
            )
            if not done.rowcount:
                return False
            if renewed:
                await subtract_terms(connection, document.source_id, old_terms)
                await add_terms(connection, document.source_id, terms)
            await self._drop_revisions_but(connection, document)
            live = sa.and_(purges.c.document_id == document.id, purges.c.revision == document.revision)
            await connection.execute(purges.delete().where(live))
        return True

    async def abandon(self, document: Document) -> None:
        async with self._engine.begin() as connection:
            query = documents.select().where(documents.c.id == document.id).with_for_update()
            row = (await connection.execute(query)).first()
            queued = "" if row is None or not row.staged else revision_of(row.id, row.staged.rpartition("-")[2])
            if row is not None and document.revision in (row.revision, queued):
                return
            lost = sa.and_(passages.c.document_id == document.id, passages.c.revision == document.revision)
            await connection.execute(passages.delete().where(lost))
            await self._record_purge(connection, document, revision=document.revision)

    async def page(
        self,
        among: Sequence[Source],
        *,
        after: tuple[str, str] = ("", ""),
        limit: int = 100,
        path_glob: str = "",
        condition: Condition | None = None,
    ) -> list[Document]:
        names = {source.id: source.name for source in among}
        scanned = _SCAN if path_glob or condition else limit
        found: list[Document] = []
        while len(found) < limit:
            beyond = sa.or_(
                documents.c.path > after[0], sa.and_(documents.c.path == after[0], documents.c.id > after[1])
            )
            query = documents.select().where(documents.c.source_id.in_(names), beyond)
            async with self._read.begin() as connection:
                ordered = query.order_by(documents.c.path, documents.c.id).limit(scanned)
                page = [to_document(row) for row in await connection.execute(ordered)]
            found.extend(
                one
                for one in page
                if (not path_glob or fnmatchcase(one.path, path_glob))
                and (condition is None or matches(condition, one, names[one.source_id]))
            )
            if len(page) < scanned:
                break
            after = (page[-1].path, page[-1].id)
        return found[:limit]

    async def named(self, among: Sequence[Source], name: str) -> list[Document]:
        called = sa.or_(documents.c.id == name, documents.c.path == name, documents.c.title == name)
        query = documents.select().where(documents.c.source_id.in_([source.id for source in among]), called)
        # An id or a path must not drown in equal titles.
        wins = sa.case((documents.c.id == name, 0), (documents.c.path == name, 1), else_=2)
        async with self._read.begin() as connection:
            rows = await connection.execute(query.order_by(wins, documents.c.path, documents.c.id).limit(_NAMED))
            return [to_document(row) for row in rows]

    async def get(self, source: Source, document_id: str) -> Document:
        document = await self._find(document_id)
        if document is None or document.source_id != source.id:
            raise DocumentNotFound(document_id)
        return document

    async def at(self, source_id: str, path: str) -> Document | None:
        here = sa.and_(documents.c.source_id == source_id, documents.c.path == path)
        async with self._read.begin() as connection:
            row = (await connection.execute(documents.select().where(here))).first()
        return None if row is None else to_document(row)

    async def remove(self, document: Document) -> None:
        # The terms are counted outside of the transaction, so a revision published meanwhile means counting again.
        while (current := await self._find(document.id)) is not None:
            gone_terms = await revision_terms(self._engine, current.id, current.revision)
            this = sa.and_(documents.c.id == current.id, documents.c.revision == current.revision)
            async with self._engine.begin() as connection:
                gone = await connection.execute(documents.delete().where(this))
                if gone.rowcount:
                    await subtract_terms(connection, current.source_id, gone_terms)
                    await self._record_purge(connection, current, revision="")
                    return
        raise DocumentNotFound(document.id)

    async def matching(self, scope: Scope, condition: Condition) -> tuple[str, ...]:
        query = (
            sa.select(documents, sources.c.name.label("source_name"))
            .join(sources, sources.c.id == documents.c.source_id)
            .where(documents.c.tenant == scope.tenant, documents.c.source_id.in_(scope.sources))
        )
        async with self._read.begin() as connection:
            rows = await connection.execute(query)
            return tuple(row.id for row in rows if matches(condition, to_document(row), row.source_name))

    async def purges(self) -> list[Purge]:
        async with self._read.begin() as connection:
            rows = await connection.execute(purges.select().order_by(purges.c.created_at))
            return [
                Purge(
                    id=row.id,
                    tenant=row.tenant,
                    source_id=row.source_id,
                    document_id=row.document_id,
                    revision=row.revision,
                )
                for row in rows
            ]

    async def purged(self, purge_id: str) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(purges.delete().where(purges.c.id == purge_id))

    async def _find(self, document_id: str) -> Document | None:
        async with self._read.begin() as connection:
            row = (await connection.execute(documents.select().where(documents.c.id == document_id))).first()
        return None if row is None else to_document(row)

    async def _drop_revisions_but(self, connection: AsyncConnection, document: Document) -> None:
        """Forget passages of every revision but `document.revision`, and leave the index a purge for each."""
        others = sa.and_(passages.c.document_id == document.id, passages.c.revision != document.revision)
        found = await connection.execute(sa.select(passages.c.revision).where(others).distinct())
        for (revision,) in found.all():
            await self._record_purge(connection, document, revision=revision)
        await connection.execute(passages.delete().where(others))

    async def _record_purge(self, connection: AsyncConnection, document: Document, *, revision: str) -> None:
        await connection.execute(
            purges.insert().values(
                id=self._ids.new(),
                tenant=document.tenant,
                source_id=document.source_id,
                document_id=document.id,
                revision=revision,
                created_at=micros(self._clock.now()),
            )
        )


def _holds(row: Row[Any], upload: Upload) -> bool:
    """Return whether the document already is what the upload would make it."""
    settled = row.state in (DocumentState.EMBEDDING.value, DocumentState.DONE.value)
    return settled and row.staged == "" and row.revision == revision_of(row.id, upload.content_hash)


def _fresh(upload: Upload, document_id: str) -> dict[str, Any]:
    return {
        "id": document_id,
        "tenant": upload.tenant,
        "source_id": upload.source_id,
        "path": upload.path,
        "title": "",
        "media_type": "",
        "passages": 0,
        "content_hash": "",
        "revision": "",
        "space": "",
        "embedded": 0,
        "embed_attempts": 0,
        "embed_after": None,
    }
