"""Embeddings of the retrieval service over gRPC."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from proctor.retrieval.v1 import retrieval_service_pb2 as pb
from proctor.retrieval.v1.retrieval_service_pb2_grpc import RetrievalServiceStub
from services.chassis.identity import IdentitySigner, Principal
from services.orchestrator.adapters.remote import remote_failure


class GrpcEmbedder:
    """Implements the router's port TextEmbedder."""

    def __init__(self, channel: grpc.aio.Channel, signer: IdentitySigner, timeout: float) -> None:
        self._retrieval = RetrievalServiceStub(channel)
        self._signer = signer
        self._timeout = timeout

    async def embed(self, principal: Principal, texts: Sequence[str]) -> tuple[str, Sequence[Sequence[float]]]:
        """Embed `texts` as questions: they are compared with each other, not with passages."""
        request = pb.EmbedRequest(texts=texts, purpose=pb.EMBED_PURPOSE_QUERY)
        with remote_failure():
            response = await self._retrieval.Embed(
                request, metadata=self._signer.metadata(principal), timeout=self._timeout
            )
        return response.embedder, [tuple(vector.values) for vector in response.vectors]
