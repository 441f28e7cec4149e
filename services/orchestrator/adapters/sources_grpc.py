"""The sources of the retrieval service, by name."""

from __future__ import annotations

import grpc

from proctor.retrieval.v1 import source_service_pb2 as pb
from proctor.retrieval.v1.source_service_pb2_grpc import SourceServiceStub
from services.chassis.identity import IdentitySigner, Principal
from services.orchestrator.adapters.remote import remote_failure

TIMEOUT = 10.0
PAGE = 500
# A tenant with more sources than this names them by id.
MOST_PAGES = 20


class GrpcSources:
    """Implements the Sources port."""

    def __init__(self, channel: grpc.aio.Channel, signer: IdentitySigner) -> None:
        self._stub = SourceServiceStub(channel)
        self._signer = signer

    async def source_names(self, principal: Principal) -> frozenset[str]:
        """Return ids and names of the sources that `principal` may read."""
        found: set[str] = set()
        request = pb.ListSourcesRequest(page_size=PAGE)
        for _ in range(MOST_PAGES):
            with remote_failure():
                page = await self._stub.ListSources(request, metadata=self._signer.metadata(principal), timeout=TIMEOUT)
            for source in page.sources:
                found |= {source.source_id, source.name}
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        return frozenset(found)
