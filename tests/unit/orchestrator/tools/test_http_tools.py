"""HTTP services from OpenAPI documents: what becomes a tool, what is sent, and where secrets stay."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services.chassis.identity import Principal
from services.chassis.settings import Secret
from services.orchestrator.domain.events import ToolStatus
from services.orchestrator.ports import RecordState
from services.orchestrator.tools.http_client import CheckedHttpClient, guard_of
from services.orchestrator.tools.openapi.document import DocumentInvalid, parse
from services.orchestrator.tools.openapi.services import HttpServices
from services.orchestrator.tools.openapi.settings import HttpCredentials, HttpService
from services.orchestrator.tools.openapi.tool import HttpTool
from services.orchestrator.tools.ports import Consent, Effect
from tests.support.http_site import Site, site
from tests.support.orchestrator_kit import ANN, Bench, bench, tool_call

TICKETS = """
openapi: 3.0.3
info: {title: Tickets, version: "1"}
servers: [{url: "https://tickets.example.com/v1"}]
paths:
  /tickets:
    parameters:
      - {name: X-Team, in: header, schema: {type: string}}
    get:
      operationId: listTickets
      summary: List tickets
      parameters:
        - {name: state, in: query, schema: {type: array, items: {enum: [open, closed]}}}
        - {name: "page[size]", in: query, schema: {type: integer, minimum: 0, exclusiveMinimum: true}}
        - {name: tags, in: query, explode: false, schema: {type: array, items: {type: string}}}
        - {name: where, in: query, style: deepObject, schema: {type: object}}
    post:
      operationId: createTicket
      description: Open a ticket.
      requestBody:
        required: true
        content:
          application/json:
            schema: {$ref: "#/components/schemas/Ticket"}
  /tickets/{id}:
    get:
      operationId: getTicket
      parameters: [{$ref: "#/components/parameters/Id"}]
    delete:
      parameters: [{$ref: "#/components/parameters/Id"}]
  /tickets/{id}/picture:
    get:
      operationId: picture
      parameters: [{$ref: "#/components/parameters/Id"}]
  /upload:
    post:
      operationId: upload
      requestBody: {required: true, content: {multipart/form-data: {schema: {type: object}}}}
  /elsewhere:
    post:
      operationId: elsewhere
      requestBody: {content: {application/json: {schema: {$ref: "other.yaml#/Thing"}}}}
components:
  parameters:
    Id: {name: id, in: path, required: true, schema: {type: string}}
  schemas:
    Ticket:
      type: object
      required: [title, number]
      properties:
        number: {type: integer, readOnly: true}
        title: {type: string, maxLength: 80, example: Printer}
        note: {type: string, nullable: true}
        parent: {$ref: "#/components/schemas/Ticket"}
"""
TOKEN = "tok-s3cret-4711"
KEY = "key-s3cret-0815"
OPERATIONS = ("listTickets", "createTicket", "getTicket", "DELETE /tickets/{id}", "picture")


async def answer(request: web.Request) -> web.StreamResponse:
    if request.path.endswith("/picture"):
        return web.Response(body=b"\x89PNG....", content_type="image/png")
    if request.path.endswith("/broken"):
        return web.Response(status=503, text="try later")
    if request.path.endswith("/binary"):
        return web.Response(body=b"\x00\x01\x02", content_type="application/zip")
    if request.path.endswith("/long"):
        return web.Response(text="x" * 5000)
    # A service that tells everything it was sent, credentials too.
    return web.json_response({"path": request.path_qs, "auth": request.headers.get("Authorization", "")})


@pytest_asyncio.fixture
async def tickets() -> AsyncIterator[Site]:
    async with site(answer) as running:
        yield running


def described(tickets: Site, folder: Path, **changes: Any) -> HttpService:
    (folder / "tickets.yaml").write_text(TICKETS, encoding="utf-8")
    service = HttpService(
        name="tickets",
        document="tickets.yaml",
        base_url=f"{tickets.url}/v1",
        operations=OPERATIONS,
        read=("listTickets", "GET /tickets/{id}", "picture"),
        credentials=HttpCredentials(
            headers={"Authorization": Secret(f"Bearer {TOKEN}")}, query={"api_key": Secret(KEY)}
        ),
    )
    return replace(service, **changes)


def services(service: HttpService, folder: Path, networks: tuple[str, ...] = ("127.0.0.0/8",)) -> HttpServices:
    return HttpServices([(service, CheckedHttpClient(guard_of(networks)))], folder)


async def tools(service: HttpService, folder: Path) -> dict[str, HttpTool]:
    provided = await services(service, folder).tools(ANN, ())
    return {tool.definition.name.removeprefix("tickets__"): tool for tool in provided.tools}  # type: ignore[misc]


async def call(tool: HttpTool, **arguments: Any) -> tuple[Bench, str]:
    """Bring one call through the gate, allowed by a person where one is asked; return what the model reads."""
    b = bench(tool)
    b.propose(tool_call("c1", tool.definition.name, **arguments))
    await b.gate.work_off(b.leg)
    if b.approvals.requests:
        assert b.results() == {}
        b.approvals.settle("c1", RecordState.APPROVED)
        await b.gate.work_off(b.leg)
    return b, b.results()["c1"]


# --- what becomes a tool ---------------------------------------------------------------------------------------------


async def test_allowed_operations_are_tools_that_ask_unless_they_are_set_to_read(tickets: Site, tmp_path: Path) -> None:
    found = await tools(described(tickets, tmp_path), tmp_path)
    says = {name: (tool.definition.effect, tool.definition.consent) for name, tool in found.items()}
    ask, read = (Effect.SIDE_EFFECT, Consent.ASK), (Effect.READ, Consent.ALLOW)
    delete = next(name for name in says if name.startswith("DELETE"))
    assert says == {"listTickets": read, "createTicket": ask, "getTicket": read, "picture": read, delete: ask}
    assert len(delete) <= 64 - len("tickets__")
    assert all(tool.definition.foreign and tool.definition.narrowable for tool in found.values())


async def test_schemas_stand_alone_and_keep_their_rules(tickets: Site, tmp_path: Path) -> None:
    found = await tools(described(tickets, tmp_path), tmp_path)
    listing = json.loads(found["listTickets"].definition.spec.parameters_json)
    assert listing["properties"]["page_size_"] == {"type": "integer", "exclusiveMinimum": 0}
    assert set(listing["properties"]) == {"X-Team", "state", "page_size_", "tags", "where"}
    creating = json.loads(found["createTicket"].definition.spec.parameters_json)
    assert creating["required"] == ["body"]
    assert creating["properties"]["body"] == {"$ref": "#/$defs/Ticket"}
    assert creating["$defs"]["Ticket"] == {
        "type": "object",
        "required": ["title"],
        "properties": {
            "title": {"type": "string", "maxLength": 80},
            "note": {"type": ["string", "null"]},
            "parent": {"$ref": "#/$defs/Ticket"},
        },
    }


def test_what_cannot_be_a_tool_is_told_with_its_reason() -> None:
    document = parse(TICKETS)
    assert document.server == "https://tickets.example.com/v1"
    assert "multipart/form-data" in document.unusable["upload"]
    assert "other.yaml#/Thing" in document.unusable["elsewhere"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"operations": ("listTicket",)}, "'listTicket': the document has no such operation"),
        ({"operations": ("upload",)}, "multipart/form-data"),
        ({"read": ("createTicket",)}, "only GET can be set to read"),
        ({"document": "none.yaml"}, "'none.yaml' cannot be used"),
        ({"base_url": "", "document": "bare.yaml"}, "set base_url"),
        ({"document": "old.json"}, "convert it to OpenAPI 3"),
    ],
)
async def test_a_wrong_service_is_refused_at_the_start(
    tickets: Site, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    (tmp_path / "bare.yaml").write_text("openapi: 3.1.0\npaths: {}\n")
    (tmp_path / "old.json").write_text('{"swagger": "2.0"}')
    with pytest.raises(DocumentInvalid) as caught:
        services(described(tickets, tmp_path, **changes), tmp_path)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "- 1",
        "openapi: 3.1.0\npaths: [1]",
        "openapi: 3.1.0\nservers: [3]",
        "openapi: 3.1.0\nservers: {a: b}",
        "openapi: 3.1.0\ninfo: 3",
        "a: &a [*a]\nopenapi: 3",
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_openapi_is_refused_in_words(text: str | bytes) -> None:
    with pytest.raises(DocumentInvalid):
        parse(text)


@pytest.mark.parametrize(
    "entry",
    [
        {"parameters": [{"name": "a"}]},
        {"parameters": [{"name": "a", "in": "body"}]},
        {"parameters": [3]},
        {"parameters": [{"$ref": "#/components/parameters/None"}]},
        {"requestBody": {"content": {"application/json": {"schema": {"type": "no such type"}}}}},
        {"requestBody": {"content": {"application/json": {"schema": {"pattern": "("}}}}},
        {"requestBody": 3},
    ],
)
def test_an_operation_that_is_wrong_leaves_the_others(entry: dict[str, Any]) -> None:
    paths = {"/x": {"get": {"operationId": "wrong", **entry}}, "/y": {"get": {"operationId": "right"}}}
    document = parse(json.dumps({"openapi": "3.1.0", "paths": paths}))
    assert [operation.operation_id for operation in document.operations] == ["right"]
    assert document.unusable["wrong"]


def test_a_document_that_multiplies_itself_makes_no_tool() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(12):
        schema = {"type": "object", "properties": {str(n): schema for n in range(3)}}
    content = {"application/json": {"schema": schema}}
    operation = {"operationId": "bomb", "requestBody": {"content": content}}
    document = parse(yaml.dump({"openapi": "3.1.0", "paths": {"/x": {"post": operation}}}))
    assert document.operations == ()
    assert "more than 5,000 parts" in document.unusable["bomb"]


# --- what is sent ----------------------------------------------------------------------------------------------------


async def test_parameters_are_written_as_the_document_says(tickets: Site, tmp_path: Path) -> None:
    found = await tools(described(tickets, tmp_path, credentials=HttpCredentials()), tmp_path)
    await call(
        found["listTickets"],
        **{"X-Team": "it", "state": ["open", "closed"], "page_size_": 5, "tags": ["a b", "ü"], "where": {"n": 1}},
    )
    await call(found["getTicket"], id="a/../b c")
    (_, listing, headers, _), (_, getting, _, _) = tickets.seen
    assert listing == "/v1/tickets?state=open&state=closed&page%5Bsize%5D=5&tags=a%20b,%C3%BC&where%5Bn%5D=1" or (
        listing == "/v1/tickets?state=open&state=closed&page%5Bsize%5D=5&tags=a%20b%2C%C3%BC&where%5Bn%5D=1"
    )
    assert headers["x-team"] == "it"
    assert getting == "/v1/tickets/a%2F..%2Fb%20c"


@pytest.mark.parametrize("climbing", ["..", ".", ""])
async def test_a_path_cannot_be_climbed(tickets: Site, tmp_path: Path, climbing: str) -> None:
    found = await tools(described(tickets, tmp_path), tmp_path)
    _, text = await call(found["getTicket"], id=climbing)
    assert "cannot stand in a path" in text
    assert tickets.seen == []


async def test_a_body_is_json_and_is_checked_before_it_is_sent(tickets: Site, tmp_path: Path) -> None:
    found = await tools(described(tickets, tmp_path), tmp_path)
    b, text = await call(found["createTicket"], body={"note": "no title"})
    assert "'title' is a required property" in text
    assert b.statuses() == {"c1": "INVALID"}
    b, text = await call(found["createTicket"], body={"title": "Printer", "note": None})
    assert text.count("HTTP 200 OK") == 1
    ((method, _, headers, body),) = tickets.seen
    assert (method, headers["content-type"]) == ("POST", "application/json")
    assert json.loads(body) == {"title": "Printer", "note": None}
    assert [request.tool for request in b.approvals.requests] == ["tickets__createTicket"]


async def test_a_denied_call_sends_nothing(tickets: Site, tmp_path: Path) -> None:
    found = await tools(described(tickets, tmp_path), tmp_path)
    b = bench(found["createTicket"])
    b.propose(tool_call("c1", "tickets__createTicket", body={"title": "x"}))
    await b.gate.work_off(b.leg)
    b.approvals.settle("c1", RecordState.DENIED)
    await b.gate.work_off(b.leg)
    assert b.statuses() == {"c1": "DENIED"}
    assert tickets.seen == []


# --- secrets ---------------------------------------------------------------------------------------------------------


async def test_secrets_are_sent_and_stand_nowhere_else(tickets: Site, tmp_path: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    found = await tools(described(tickets, tmp_path), tmp_path)
    tool = found["createTicket"]
    b = bench(tool)
    b.gate._carrying._tracer = provider.get_tracer("test")
    b.gate._carrying._content = True
    b.propose(tool_call("c1", tool.definition.name, body={"title": "x"}))
    await b.gate.work_off(b.leg)
    b.approvals.settle("c1", RecordState.APPROVED)
    await b.gate.work_off(b.leg)

    ((_, path, headers, _),) = tickets.seen
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert f"api_key={KEY}" in path
    (span,) = exporter.get_finished_spans()
    everything = " ".join(
        (
            b.results()["c1"],
            repr(b.journal.events),
            repr(b.journal.checkpoints),
            repr(b.approvals.requests),
            span.to_json(),
            repr(tool.definition),
            b.leg.checkpoint().__repr__(),
        )
    )
    assert "[secret]" in b.results()["c1"]
    for secret in (TOKEN, KEY):
        assert secret not in everything


async def test_each_tenant_has_its_own_secret_and_others_do_not_have_the_service(tickets: Site, tmp_path: Path) -> None:
    theirs = {"t1": HttpCredentials(headers={"Authorization": Secret("Bearer of-tenant-one")})}
    found = services(described(tickets, tmp_path, tenants=theirs), tmp_path)
    other = Principal(tenant="t2", user="eve", scopes=frozenset({"*"}))
    assert (await found.tools(other, ())).tools == ()
    assert await found.find(other, "tickets__getTicket") is None
    tool = await found.find(ANN, "tickets__getTicket")
    assert tool is not None
    await call(tool, id="1")  # type: ignore[arg-type]
    assert tickets.seen[0][2]["authorization"] == "Bearer of-tenant-one"


# --- answers ---------------------------------------------------------------------------------------------------------


async def test_a_picture_goes_back_as_a_picture(tickets: Site, tmp_path: Path) -> None:
    found = await tools(described(tickets, tmp_path), tmp_path)
    b, _ = await call(found["picture"], id="1")
    result = b.leg.progress.pending[0].result
    assert result is not None
    assert [part.media_type for part in result.parts if hasattr(part, "media_type")] == ["image/png"]


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("broken", "FAILED", "HTTP 503 Service Unavailable\ntry later"),
        ("binary", "COMPLETED", "[3 bytes of application/zip, not shown]"),
        ("long", "COMPLETED", "the answer was longer and is cut here"),
    ],
)
async def test_answers_are_told_in_words(tickets: Site, tmp_path: Path, path: str, status: str, told: str) -> None:
    found = await tools(described(tickets, tmp_path, max_bytes=1000), tmp_path)
    b, text = await call(found["getTicket"], id=path)
    assert told in text
    assert b.statuses() == {"c1": status}


async def test_a_private_address_is_refused_where_the_operator_has_not_opened_it(tickets: Site, tmp_path: Path) -> None:
    provided = await services(described(tickets, tmp_path), tmp_path, networks=()).tools(ANN, ())
    tool = next(tool for tool in provided.tools if tool.definition.name == "tickets__getTicket")
    b, text = await call(tool, id="1")  # type: ignore[arg-type]
    assert b.statuses() == {"c1": "FAILED"}
    assert "public addresses only" in text
    assert tickets.seen == []


async def test_a_connection_that_breaks_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    async def breaking(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async with site(breaking) as running:
        found = await tools(described(running, tmp_path), tmp_path)
        b, text = await call(found["createTicket"], body={"title": "x"})
        assert b.statuses() == {"c1": ToolStatus.OUTCOME_UNKNOWN.name}
        assert "do not repeat it" in text
        b, _ = await call(found["getTicket"], id="1")
        assert b.statuses() == {"c1": "FAILED"}


async def test_a_service_that_is_not_there_has_done_nothing(tickets: Site, tmp_path: Path) -> None:
    found = await tools(described(tickets, tmp_path, base_url="http://127.0.0.1:1/v1"), tmp_path)
    b, text = await call(found["createTicket"], body={"title": "x"})
    assert b.statuses() == {"c1": "FAILED"}
    assert KEY not in text


async def test_a_call_with_an_idempotency_header_may_run_again(tickets: Site, tmp_path: Path) -> None:
    found = await tools(described(tickets, tmp_path, idempotency_header="Idempotency-Key"), tmp_path)
    assert found["createTicket"].definition.effect is Effect.IDEMPOTENT
    await call(found["createTicket"], body={"title": "x"})
    assert tickets.seen[0][2]["idempotency-key"].endswith("/c1")


# --- documents by URL ------------------------------------------------------------------------------------------------


async def test_a_document_is_read_from_its_url_and_stays_when_that_fails_later(tmp_path: Path) -> None:
    state = {"status": 500}

    async def document(request: web.Request) -> web.StreamResponse:
        text = TICKETS.replace("https://tickets.example.com/v1", "/v1")
        return web.Response(status=state["status"], text=text)

    async with site(document) as running:
        service = described(running, tmp_path, document=f"{running.url}/openapi.yaml", base_url="")
        client = CheckedHttpClient(guard_of(("127.0.0.0/8",)))
        found = HttpServices([(service, client)], tmp_path)
        assert not await found.load(service, client)
        missing = await found.tools(ANN, ())
        assert missing.tools == ()
        assert "answered 500" in missing.withheld["tickets__*"]

        state["status"] = 200
        assert await found.load(service, client)
        assert len((await found.tools(ANN, ())).tools) == len(OPERATIONS)
        assert running.seen[-1][2].get("authorization") is None

        state["status"] = 404
        assert not await found.load(service, client)
        tool = await found.find(ANN, "tickets__getTicket")
        state["status"] = 200
        await call(tool, id="7")  # type: ignore[arg-type]
        assert running.seen[-1][1].startswith("/v1/tickets/7?")
