"""Files of messages: bytes from the blob store, text by the retrieval service's parsers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import replace

import grpc

from proctor.retrieval.v1 import retrieval_service_pb2 as pb
from proctor.retrieval.v1.retrieval_service_pb2_grpc import RetrievalServiceStub
from services.chassis.identity import IdentitySigner, Principal
from services.orchestrator.artifacts import Blobs
from services.orchestrator.domain.messages import MediaPart

CHUNK = 256 * 1024
KEPT_TEXTS = 128
MAX_CHARACTERS = 200_000
PDF = "application/pdf"


class StoredMedia:
    """Implements MediaReader. Whose file it is was checked when the message was admitted.

    Extracted texts are kept for a while: a run sends the same file with every round.
    """

    def __init__(self, blobs: Blobs, channel: grpc.aio.Channel, signer: IdentitySigner, timeout: float) -> None:
        self._blobs = blobs
        self._stub = RetrievalServiceStub(channel)
        self._signer = signer
        self._timeout = timeout
        self._texts: OrderedDict[str, str] = OrderedDict()

    async def load(self, part: MediaPart, tenant: str) -> MediaPart:
        """Return the part with its bytes inline; as it is when it has them or a URL."""
        if not part.artifact_id:
            return part
        content = b"".join([chunk async for chunk in self._blobs.read(part.artifact_id)])
        return replace(part, inline=content, artifact_id="")

    async def text(self, part: MediaPart, tenant: str) -> str:
        """Return the text in a file, empty when none can be read. Pictures have none."""
        if part.is_image or part.url:
            return ""
        if part.artifact_id in self._texts:
            self._texts.move_to_end(part.artifact_id)
            return self._texts[part.artifact_id]
        try:
            text = (await self._extract(part, tenant, 0)).text
        except (grpc.aio.AioRpcError, OSError):
            return ""
        if part.artifact_id:
            self._texts[part.artifact_id] = text
            if len(self._texts) > KEPT_TEXTS:
                self._texts.popitem(last=False)
        return text

    async def pages(self, part: MediaPart, tenant: str, most: int) -> list[bytes]:
        """Return the first pages of a PDF as PNG; none for other files or when they cannot be had."""
        if part.media_type != PDF or part.url:
            return []
        try:
            return list((await self._extract(part, tenant, most)).pages)
        except (grpc.aio.AioRpcError, OSError):
            return []

    async def _extract(self, part: MediaPart, tenant: str, pages: int) -> pb.ExtractTextResponse:
        identity = Principal(tenant=tenant, user="orchestrator", actor="orchestrator")
        return await self._stub.ExtractText(
            self._upload(part, pages), metadata=self._signer.metadata(identity), timeout=self._timeout
        )

    async def _upload(self, part: MediaPart, pages: int) -> AsyncIterator[pb.ExtractTextRequest]:
        header = pb.ExtractHeader(name=part.name or "file", max_characters=MAX_CHARACTERS, max_pages=pages)
        yield pb.ExtractTextRequest(header=header)
        if part.artifact_id:
            async for chunk in self._blobs.read(part.artifact_id):
                yield pb.ExtractTextRequest(chunk=chunk)
            return
        for start in range(0, len(part.inline), CHUNK):
            yield pb.ExtractTextRequest(chunk=part.inline[start : start + CHUNK])
