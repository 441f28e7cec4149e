"""Retrieval and approval for gateway tests, small but real over a socket, and a whole gateway before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import httpx

from proctor.approval.v1 import approval_service_pb2, approval_service_pb2_grpc
from proctor.retrieval.v1 import (
    retrieval_service_pb2,
    retrieval_service_pb2_grpc,
    source_service_pb2,
    source_service_pb2_grpc,
)
from services.chassis.errors import FieldViolation, InvalidRequest, ServiceError
from services.chassis.identity import Principal, current_principal
from services.chassis.platform import Platform
from services.chassis.serve import Service, start_server
from services.gateway.bootstrap import Gateway
from services.gateway.settings import Settings
from tests.support.fake_orchestrator import FakeOrchestrator, orchestrator_service
from tests.support.platform import test_platform
from tests.support.servers import nothing, socket_address


class SourceNotFound(ServiceError):
    code = grpc.StatusCode.NOT_FOUND
    reason = "SOURCE_NOT_FOUND"


class FakeRetrieval(retrieval_service_pb2_grpc.RetrievalServiceServicer, source_service_pb2_grpc.SourceServiceServicer):
    """Keeps what was uploaded, by path."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.headers: list[source_service_pb2.DocumentHeader] = []

    async def Search(self, request: Any, context: Any) -> Any:
        if request.filter == "bad":
            raise InvalidRequest("the filter is wrong", violations=[FieldViolation(field="filter", description="no")])
        return retrieval_service_pb2.SearchResponse(
            hits=[retrieval_service_pb2.Hit(passage_id="p1", text=request.query)]
        )

    async def GetPassage(self, request: Any, context: Any) -> Any:
        hit = retrieval_service_pb2.Hit(passage_id=request.passage_id, text="25 days")
        return retrieval_service_pb2.GetPassageResponse(passage=hit, before="b", after="a")

    async def CreateSource(self, request: Any, context: Any) -> Any:
        source = source_service_pb2.Source(source_id="s1", name=request.name, owner=current_principal().user)
        return source_service_pb2.CreateSourceResponse(source=source)

    async def ListSources(self, request: Any, context: Any) -> Any:
        return source_service_pb2.ListSourcesResponse(sources=[source_service_pb2.Source(source_id="s1", name="rules")])

    async def DeleteSource(self, request: Any, context: Any) -> Any:
        if request.source_id != "s1":
            raise SourceNotFound(f"there is no source '{request.source_id}'")
        return source_service_pb2.DeleteSourceResponse(documents=2)

    async def ListDocuments(self, request: Any, context: Any) -> Any:
        return source_service_pb2.ListDocumentsResponse()

    async def ReadDocument(self, request: Any, context: Any) -> Any:
        document = source_service_pb2.Document(document_id=request.document, source_name=request.sources[0])
        part = source_service_pb2.DocumentPart(text="words", start=request.offset, end=request.offset + 5)
        return source_service_pb2.ReadDocumentResponse(document=document, parts=[part], characters=99)

    async def SyncSite(self, request: Any, context: Any) -> Any:
        if request.url.endswith("/broken"):
            raise SourceNotFound("there is no such source")
        site = source_service_pb2.Site(site_id="w1", url=request.url, max_depth=request.max_depth)
        site.every.CopyFrom(request.every)
        yield source_service_pb2.SyncSiteResponse(site=site)
        page = source_service_pb2.SitePage(url=request.url, outcome=source_service_pb2.PAGE_OUTCOME_ADDED, passages=3)
        yield source_service_pb2.SyncSiteResponse(page=page)
        site.state = source_service_pb2.SITE_STATE_DONE
        yield source_service_pb2.SyncSiteResponse(site=site)

    async def ListSites(self, request: Any, context: Any) -> Any:
        return source_service_pb2.ListSitesResponse(sites=[source_service_pb2.Site(site_id="w1")])

    async def DeleteSite(self, request: Any, context: Any) -> Any:
        return source_service_pb2.DeleteSiteResponse(documents=2)

    async def DeleteDocument(self, request: Any, context: Any) -> Any:
        return source_service_pb2.DeleteDocumentResponse()

    async def IngestDocuments(self, request_iterator: Any, context: Any) -> Any:
        path = ""
        async for message in request_iterator:
            match message.WhichOneof("payload"):
                case "header":
                    path = message.header.path
                    self.headers.append(message.header)
                    self.files[path] = b""
                    yield _progress(path, "QUEUED")
                case "chunk":
                    self.files[path] += message.chunk
                case _:
                    state = "DONE" if self.files[path] else "FAILED"
                    yield _progress(path, state)


class FakeApprovals(approval_service_pb2_grpc.ApprovalServiceServicer):
    """Holds records and tells changes."""

    def __init__(self) -> None:
        self.records: dict[str, approval_service_pb2.Approval] = {}
        self.decisions: list[tuple[Principal, approval_service_pb2.DecideRequest]] = []
        self.links: list[tuple[Principal, approval_service_pb2.DecideByLinkRequest]] = []
        self.changes: asyncio.Queue[approval_service_pb2.Approval] = asyncio.Queue()

    async def ListApprovals(self, request: Any, context: Any) -> Any:
        found = [one for one in self.records.values() if not request.states or one.state in request.states]
        return approval_service_pb2.ListApprovalsResponse(approvals=found)

    async def Decide(self, request: Any, context: Any) -> Any:
        self.decisions.append((current_principal(), request))
        record = approval_service_pb2.Approval(approval_id=request.approval_id)
        return approval_service_pb2.DecideResponse(approval=record, decided_now=True)

    async def CreateAllowRule(self, request: Any, context: Any) -> Any:
        rule = approval_service_pb2.AllowRule(rule_id="rule1", tool=request.tool, user=current_principal().user)
        return approval_service_pb2.CreateAllowRuleResponse(rule=rule)

    async def ListAllowRules(self, request: Any, context: Any) -> Any:
        return approval_service_pb2.ListAllowRulesResponse()

    async def DeleteAllowRule(self, request: Any, context: Any) -> Any:
        return approval_service_pb2.DeleteAllowRuleResponse()

    async def GetLink(self, request: Any, context: Any) -> Any:
        return approval_service_pb2.GetLinkResponse(approval=self._linked(request.token), decider="mail.example")

    async def DecideByLink(self, request: Any, context: Any) -> Any:
        record = self._linked(request.token)
        self.links.append((current_principal(), request))
        record.state = approval_service_pb2.ApprovalState.APPROVAL_STATE_DENIED
        return approval_service_pb2.DecideByLinkResponse(approval=record)

    def _linked(self, token: str) -> approval_service_pb2.Approval:
        if token not in self.records:
            raise InvalidRequest("the link is not valid")
        return self.records[token]

    async def ListAuditEntries(self, request: Any, context: Any) -> Any:
        return approval_service_pb2.ListAuditEntriesResponse()

    async def VerifyAudit(self, request: Any, context: Any) -> Any:
        return approval_service_pb2.VerifyAuditResponse(intact=True)

    async def ExportAudit(self, request: Any, context: Any) -> Any:
        for number in range(2):
            yield approval_service_pb2.ExportAuditResponse(json_lines=b'{"sequence":%d}\n' % number)

    async def WatchApprovals(self, request: Any, context: Any) -> Any:
        for record in self.records.values():
            yield approval_service_pb2.WatchApprovalsResponse(approval=record)
        while True:
            yield approval_service_pb2.WatchApprovalsResponse(approval=await self.changes.get())


def _progress(path: str, state: str) -> source_service_pb2.IngestDocumentsResponse:
    return source_service_pb2.IngestDocumentsResponse(
        path=path, state=source_service_pb2.DocumentState.Value(f"DOCUMENT_STATE_{state}")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A gateway over fakes. `url` is where it serves, `http` a client of it."""

    gateway: Gateway
    http: httpx.AsyncClient
    url: str
    orchestrator: FakeOrchestrator
    retrieval: FakeRetrieval
    approvals: FakeApprovals
    platform: Platform
    targets: dict[str, str] = field(default_factory=dict)

    def forget(self) -> Suite:
        """Return this suite with fakes as new, so that tests may share it."""
        for fake in (self.orchestrator, self.retrieval, self.approvals):
            fake.__init__()  # type: ignore[misc]
        return self


@asynccontextmanager
async def gateway_suite(platform: Platform | None = None, **settings: Any) -> AsyncIterator[Suite]:
    """Run fakes and a gateway on a free port, for the length of the block."""
    platform = platform or test_platform()
    orchestrator, retrieval, approvals = FakeOrchestrator(), FakeRetrieval(), FakeApprovals()  # type: ignore[abstract]
    services = {
        "orchestrator_target": orchestrator_service(orchestrator),
        "retrieval_target": Service(
            name="retrieval",
            register=lambda server: _register_retrieval(retrieval, server),
            grpc_services=("proctor.retrieval.v1.RetrievalService", "proctor.retrieval.v1.SourceService"),
            start=nothing,
            drain=nothing,
            close=nothing,
        ),
        "approval_target": Service(
            name="approval",
            register=lambda server: approval_service_pb2_grpc.add_ApprovalServiceServicer_to_server(approvals, server),
            grpc_services=("proctor.approval.v1.ApprovalService",),
            start=nothing,
            drain=nothing,
            close=nothing,
        ),
    }
    async with AsyncExitStack() as stack:
        targets: dict[str, str] = {}
        for name, service in services.items():
            address = await stack.enter_async_context(socket_address(service.name))
            server = await start_server(service, address, platform)
            stack.push_async_callback(server.stop, 0.2)
            targets[name] = address
        folder = await stack.enter_async_context(socket_address("gateway"))
        data_dir = Path(folder.removeprefix("unix:")).parent
        defaults = {"listen": "127.0.0.1:0", "data_dir": data_dir, "sandbox_target": "unix:/nonexistent/sandbox.sock"}
        gateway = Gateway(replace(Settings(), **{**defaults, **targets, **settings}), platform)
        stack.push_async_callback(gateway.close)
        await gateway.start()
        stack.push_async_callback(gateway.drain)
        url = gateway.http.address
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=20, trust_env=False))
        yield Suite(
            gateway=gateway,
            http=client,
            url=url,
            orchestrator=orchestrator,
            retrieval=retrieval,
            approvals=approvals,
            platform=platform,
            targets=targets,
        )


def _register_retrieval(fake: FakeRetrieval, server: grpc.aio.Server) -> None:
    retrieval_service_pb2_grpc.add_RetrievalServiceServicer_to_server(fake, server)
    source_service_pb2_grpc.add_SourceServiceServicer_to_server(fake, server)
