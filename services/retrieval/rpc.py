"""The servicers: parse, call one use case, render."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc

from proctor.retrieval.v1 import retrieval_service_pb2 as retrieval_pb
from proctor.retrieval.v1 import retrieval_service_pb2_grpc as retrieval_grpc
from proctor.retrieval.v1 import source_service_pb2 as source_pb
from proctor.retrieval.v1 import source_service_pb2_grpc as source_grpc
from services.chassis.errors import InvalidRequest
from services.chassis.identity import current_principal
from services.retrieval import codec, codec_sites
from services.retrieval.domain.library import SourceCounts
from services.retrieval.embedding import Embeddings
from services.retrieval.extract import TextExtractor
from services.retrieval.observe import Searching
from services.retrieval.reading import Reader
from services.retrieval.sites import Following
from services.retrieval.sources import Library
from services.retrieval.uploads import Part, Uploads
from services.retrieval.web import Web

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class RetrievalServicer(retrieval_grpc.RetrievalServiceServicer):
    """retrieval.v1.RetrievalService."""

    def __init__(
        self, search: Searching, library: Library, embeddings: Embeddings, web: Web, extractor: TextExtractor
    ) -> None:
        self._search = search
        self._extractor = extractor
        self._library = library
        self._embeddings = embeddings
        self._web = web

    async def Search(self, request: retrieval_pb.SearchRequest, context: Context) -> retrieval_pb.SearchResponse:
        return codec.from_found(await self._search.run(current_principal(), codec.to_question(request)))

    async def GetPassage(
        self, request: retrieval_pb.GetPassageRequest, context: Context
    ) -> retrieval_pb.GetPassageResponse:
        found = await self._library.passage(current_principal(), request.passage_id, request.source_id)
        return retrieval_pb.GetPassageResponse(
            passage=codec.from_hit(found.hit), before=found.before, after=found.after
        )

    async def Embed(self, request: retrieval_pb.EmbedRequest, context: Context) -> retrieval_pb.EmbedResponse:
        current_principal()
        vectors = await self._embeddings.embed(list(request.texts), codec.to_purpose(request.purpose))
        return retrieval_pb.EmbedResponse(
            vectors=[retrieval_pb.Vector(values=values) for values in vectors], embedder=self._embeddings.space
        )

    async def SearchWeb(
        self, request: retrieval_pb.SearchWebRequest, context: Context
    ) -> retrieval_pb.SearchWebResponse:
        current_principal()
        hits, provider = await self._web.search(request.query, request.top_k)
        return retrieval_pb.SearchWebResponse(hits=[codec.from_hit(hit) for hit in hits], provider=provider)

    async def FetchPage(
        self, request: retrieval_pb.FetchPageRequest, context: Context
    ) -> retrieval_pb.FetchPageResponse:
        current_principal()
        fetched = await self._web.fetch(request.url, request.max_characters)
        return retrieval_pb.FetchPageResponse(
            page=codec.from_hit(fetched.hit), final_url=fetched.final_url, truncated=fetched.truncated
        )

    async def GetWebAccess(
        self, request: retrieval_pb.GetWebAccessRequest, context: Context
    ) -> retrieval_pb.GetWebAccessResponse:
        current_principal()
        return retrieval_pb.GetWebAccessResponse(search_provider=self._web.provider, fetches_pages=self._web.fetches)

    async def ExtractText(
        self, request_iterator: AsyncIterator[retrieval_pb.ExtractTextRequest], context: Context
    ) -> retrieval_pb.ExtractTextResponse:
        current_principal()
        first = await anext(aiter(request_iterator), None)
        if first is None or first.WhichOneof("payload") != "header":
            raise InvalidRequest("an upload begins with a header; send the file's name first")
        chunks = (message.chunk async for message in request_iterator)
        header = first.header
        found = await self._extractor.extract(
            header.name, chunks, max_characters=header.max_characters, max_pages=header.max_pages
        )
        return retrieval_pb.ExtractTextResponse(
            text=found.text,
            media_type=found.media_type,
            title=found.title,
            truncated=found.truncated,
            pages=found.pages,
        )


class SourceServicer(source_grpc.SourceServiceServicer):
    """retrieval.v1.SourceService."""

    def __init__(self, library: Library, reader: Reader, uploads: Uploads, following: Following) -> None:
        self._following = following
        self._library = library
        self._reader = reader
        self._uploads = uploads

    async def CreateSource(
        self, request: source_pb.CreateSourceRequest, context: Context
    ) -> source_pb.CreateSourceResponse:
        source = await self._library.create(
            current_principal(),
            name=request.name,
            description=request.description,
            shared=not request.private,
            topics=codec.to_topics(request.topics),
        )
        return source_pb.CreateSourceResponse(source=codec.from_source(source, SourceCounts()))

    async def ListSources(
        self, request: source_pb.ListSourcesRequest, context: Context
    ) -> source_pb.ListSourcesResponse:
        page = await self._library.list_sources(current_principal(), size=request.page_size, token=request.page_token)
        return source_pb.ListSourcesResponse(
            sources=[codec.from_source(s, page.counts.get(s.id, SourceCounts())) for s in page.sources],
            next_page_token=page.next_token,
        )

    async def DeleteSource(
        self, request: source_pb.DeleteSourceRequest, context: Context
    ) -> source_pb.DeleteSourceResponse:
        count = await self._library.delete_source(current_principal(), request.source_id)
        return source_pb.DeleteSourceResponse(documents=count)

    async def IngestDocuments(
        self, request_iterator: AsyncIterator[source_pb.IngestDocumentsRequest], context: Context
    ) -> AsyncIterator[source_pb.IngestDocumentsResponse]:
        async for progress in self._uploads.run(current_principal(), _parts(request_iterator)):
            yield codec.from_progress(progress)

    async def ListDocuments(
        self, request: source_pb.ListDocumentsRequest, context: Context
    ) -> source_pb.ListDocumentsResponse:
        page = await self._reader.list_documents(
            current_principal(),
            [request.source_id] if request.source_id else list(request.sources),
            size=request.page_size,
            token=request.page_token,
            path_glob=request.path_glob,
            where=request.filter,
        )
        return source_pb.ListDocumentsResponse(
            documents=[codec.from_document(one, page.names[one.source_id]) for one in page.documents],
            next_page_token=page.next_token,
        )

    async def ReadDocument(
        self, request: source_pb.ReadDocumentRequest, context: Context
    ) -> source_pb.ReadDocumentResponse:
        reading = await self._reader.read(
            current_principal(),
            list(request.sources),
            request.document,
            offset=request.offset,
            limit=request.max_characters,
            page=request.page,
        )
        return codec.from_reading(reading)

    async def DeleteDocument(
        self, request: source_pb.DeleteDocumentRequest, context: Context
    ) -> source_pb.DeleteDocumentResponse:
        await self._library.delete_document(current_principal(), request.source_id, request.document_id)
        return source_pb.DeleteDocumentResponse()

    async def SyncSite(
        self, request: source_pb.SyncSiteRequest, context: Context
    ) -> AsyncIterator[source_pb.SyncSiteResponse]:
        steps = self._following.sync(
            current_principal(),
            request.source_id,
            request.url,
            max_pages=request.max_pages,
            max_depth=request.max_depth,
            every=request.every.ToTimedelta() if request.HasField("every") else None,
        )
        async with aclosing(steps):
            async for step in steps:
                yield codec_sites.from_step(step)

    async def ListSites(self, request: source_pb.ListSitesRequest, context: Context) -> source_pb.ListSitesResponse:
        page = await self._following.list_sites(
            current_principal(), request.source_id, size=request.page_size, token=request.page_token
        )
        return source_pb.ListSitesResponse(
            sites=[codec_sites.from_site(view) for view in page.sites], next_page_token=page.next_token
        )

    async def DeleteSite(self, request: source_pb.DeleteSiteRequest, context: Context) -> source_pb.DeleteSiteResponse:
        count = await self._following.delete(current_principal(), request.source_id, request.site_id)
        return source_pb.DeleteSiteResponse(documents=count)


async def _parts(requests: AsyncIterator[source_pb.IngestDocumentsRequest]) -> AsyncIterator[Part]:
    async for request in requests:
        yield codec.to_part(request)
