"""Whatever a model's endpoint, a website, a search provider or an API's description answers: it is read or refused.

The answers have the form they should have, with anything in the place of some of their parts. `make test` tries inputs
that never change; `make prove` looks for new ones.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import strategies as st

from services.chassis.clock import SystemClock
from services.chassis.errors import ServiceError
from services.orchestrator.models.chat_chunks import MAX_COUNT, ChatChunks
from services.orchestrator.models.openai_model import Decoder
from services.orchestrator.models.openai_model import _decode as decode_batch
from services.orchestrator.models.reply import ReplyBuilder
from services.orchestrator.models.responses_dialect import ResponsesEvents
from services.orchestrator.tools.openapi.document import DocumentInvalid
from services.orchestrator.tools.openapi.document import parse as parse_openapi
from services.orchestrator.workflow.problems import WorkflowInvalid
from services.orchestrator.workflow.validate import checked
from services.retrieval.adapters.parsers.exchange import LinksJob, pack_job, unpack_links
from services.retrieval.adapters.parsers.links import links
from services.retrieval.adapters.parsers.worker import answers
from services.retrieval.adapters.web.http_reader import HttpReader
from services.retrieval.adapters.web.providers import BraveSearch, SearxngSearch, TavilySearch
from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.domain.sites import followed
from tests.support.hostile import HOSTILE, TEXTS, WRONG, shaped, taking_anything

TEXT = st.sampled_from(["x", "tok ", "{}", ""])
COUNT = st.integers(-5, 2**70)
DETAILS = shaped({"cached_tokens": COUNT, "reasoning_tokens": COUNT})
ERROR = shaped({"message": TEXT, "code": TEXT, "type": TEXT})

PART = shaped({"type": st.just("output_text"), "text": TEXT, "refusal": TEXT})
ITEM = shaped(
    {
        "type": st.sampled_from(["message", "function_call"]),
        "content": st.lists(PART | WRONG, max_size=2),
        "name": st.just("search"),
        "arguments": TEXT,
    }
)
RESPONSE = shaped(
    {
        "id": TEXT,
        "output": st.lists(ITEM | WRONG, max_size=2),
        "usage": shaped({"input_tokens": COUNT, "output_tokens": COUNT, "input_tokens_details": DETAILS}),
        "incomplete_details": shaped({"reason": TEXT}),
        "error": ERROR,
    }
)
KINDS = (
    "response.output_text.delta response.output_item.added response.output_item.done response.completed "
    "response.failed response.incomplete response.function_call_arguments.delta error"
).split()
EVENT = shaped(
    {
        "type": st.sampled_from(KINDS),
        "item": ITEM,
        "response": RESPONSE,
        "output_index": st.integers(0, 3),
        "delta": TEXT,
        "message": TEXT,
    }
)
FUNCTION = shaped({"name": st.just("search"), "arguments": TEXT})
CALL = shaped({"index": st.integers(-1, 3), "id": TEXT, "function": FUNCTION})
DELTA = shaped(
    {
        "content": st.lists(PART | WRONG, max_size=2) | TEXT,
        "reasoning_content": TEXT,
        "tool_calls": st.lists(CALL | WRONG, max_size=2),
        "function_call": FUNCTION,
    }
)
CHOICE = shaped({"delta": DELTA, "message": DELTA, "finish_reason": TEXT})
CHUNK = shaped(
    {
        "id": TEXT,
        "choices": st.lists(CHOICE | WRONG, max_size=2),
        "usage": shaped({"prompt_tokens": COUNT, "completion_tokens": COUNT, "prompt_tokens_details": DETAILS}),
        "error": ERROR,
    }
)

TYPES = st.sampled_from(["object", "string", "array", "number", "path", "query", "header"])
REFERENCE = st.sampled_from(["#/components/schemas/A", "#/paths", "#", "other.yaml#/A", "#/components/schemas/B"])
SCHEMA = st.recursive(
    WRONG,
    lambda inner: shaped(
        {
            "type": TYPES,
            "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
            "items": inner,
            "allOf": st.lists(inner, max_size=2),
            "$ref": REFERENCE,
            "required": st.lists(TEXT, max_size=2),
        }
    ),
    max_leaves=6,
)
PARAMETER = shaped({"name": TEXT, "in": TYPES, "required": st.booleans(), "schema": SCHEMA, "style": TEXT})
CONTENT = st.dictionaries(st.sampled_from(["application/json", "text/plain"]), shaped({"schema": SCHEMA}), max_size=2)
OPERATION = shaped(
    {
        "operationId": TEXT,
        "parameters": st.lists(PARAMETER | WRONG, max_size=2),
        "requestBody": shaped({"content": CONTENT, "$ref": REFERENCE}),
        "summary": TEXT,
    }
)
OPENAPI = st.fixed_dictionaries(
    {
        "openapi": st.just("3.1.0"),
        "paths": st.dictionaries(TEXT, shaped({"get": OPERATION, "post": OPERATION})) | WRONG,
    },
    optional={
        "info": shaped({"title": TEXT}) | WRONG,
        "servers": st.lists(shaped({"url": TEXT}) | WRONG, max_size=2) | WRONG,
        "components": shaped({"schemas": st.dictionaries(st.sampled_from("AB"), SCHEMA, max_size=2)}) | WRONG,
    },
)

NODE = shaped(
    {
        "type": st.sampled_from("start agent tool end condition state code http parallel question note".split()),
        "next": st.sampled_from("abc") | st.lists(st.sampled_from("abc"), max_size=2),
        "prompt": st.sampled_from(["{{ nodes.a.text }}", "{{", "{% for x in y %}", "x"]),
        "tool": TEXT,
        "arguments": st.dictionaries(TEXT, WRONG, max_size=2),
        "cases": st.lists(
            shaped({"when": st.sampled_from(["state.x > 1", "1 +", "nodes.a"]), "next": TEXT}), max_size=2
        ),
        "output": TEXT,
        "timeout_seconds": st.integers(-1, 2**70),
    }
)
WORKFLOW = shaped(
    {
        "nodes": st.dictionaries(st.sampled_from("abc"), NODE | WRONG, max_size=3),
        "state": st.dictionaries(TEXT, WRONG, max_size=2),
        "parameters": SCHEMA,
        "steps": COUNT,
    }
)

RESULT = shaped({"title": TEXT | st.just("\ud800"), "url": TEXT, "content": st.just("<b>x</b>"), "description": TEXT})
RESULTS = shaped(
    {"results": st.lists(RESULT | WRONG, max_size=2), "web": shaped({"results": st.lists(RESULT | WRONG, max_size=2)})}
)

ADDRESS = st.sampled_from(
    [
        "/a",
        "http://[",
        "http://[::1",
        "//x:99999999/",
        "http://a:b@c/",
        "javascript:1",
        "http://\ud800/",
        "?q",
        "http:///",
    ]
) | st.text(max_size=20)
PAGE = st.lists(ADDRESS, max_size=4).map(lambda found: "<html>" + "".join(f'<a href="{url}">x</a>' for url in found))
SITEMAP = st.lists(ADDRESS, max_size=4).map(
    lambda found: "<urlset>" + "".join(f"<url><loc>{url}</loc></url>" for url in found) + "</urlset>"
)
ROBOTS = st.lists(
    st.sampled_from(["User-agent: *", "Disallow: /a*$", "Crawl-delay: nan", "Crawl-delay: -1", "Allow:", "Sitemap: ["])
    | st.text(max_size=20),
    max_size=5,
).map("\n".join)


def chunk(text: str) -> None:
    reply = ReplyBuilder("m1", 1, {})
    read(text, reply, ChatChunks(reply))


def event(text: str) -> None:
    reply = ReplyBuilder("m1", 1, {})
    read(text, reply, ResponsesEvents(reply))


def read(text: str, reply: ReplyBuilder, decoder: Decoder) -> None:
    decode_batch([text.encode("utf-8", "surrogatepass")], decoder)
    reply.close()
    list(reply.take())
    reply.calls()
    if usage := reply.usage:
        assert 0 <= usage.cached_input_tokens <= usage.input_tokens <= MAX_COUNT
        assert 0 <= usage.output_tokens <= MAX_COUNT


def openapi(text: str) -> None:
    with suppress(DocumentInvalid):
        parse_openapi(text)


def workflow(text: str) -> None:
    with suppress(WorkflowInvalid):
        checked(text)


def search_answer(text: str) -> None:
    async def search() -> None:
        body = text.encode("utf-8", "surrogatepass")
        transport = httpx.MockTransport(lambda _: httpx.Response(200, content=body))
        async with httpx.AsyncClient(transport=transport) as client:
            for provider in (TavilySearch(client, "k"), BraveSearch(client, "k"), SearxngSearch(client, "http://s")):
                with suppress(ServiceError):
                    for hit in await provider.search("q", 3):
                        # Halves of characters would break whoever sends them on.
                        f"{hit.title} {hit.url} {hit.text}".encode()

    asyncio.run(search())


def page_links(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        job = LinksJob(path=str(path), url="http://site.test/start")
        (line,) = answers(pack_job(job))
        with suppress(UnreadableFile):
            followed(unpack_links(line).found, job.url, "site.test")


def website(text: str) -> None:
    """Its rules, and where it redirects to."""

    async def visit() -> None:
        def respond(request: httpx.Request) -> httpx.Response:
            if request.url.path == "/robots.txt":
                return httpx.Response(200, content=text.encode("utf-8", "surrogatepass"))
            location = text.encode("ascii", "ignore").decode().replace("\r", "").replace("\n", "")
            return httpx.Response(302, headers={"location": location, "retry-after": location})

        async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as client:
            reader = HttpReader(client, 1000, SystemClock())
            with suppress(ServiceError):
                assert 0 <= await reader.delay("http://site.test/a") < float("inf")
            with suppress(ServiceError):
                await reader.read("http://site.test/a")

    asyncio.run(visit())


TARGETS: dict[str, tuple[st.SearchStrategy[str], Callable[[str], None]]] = {
    "chunk of Chat Completions": (CHUNK.map(json.dumps), chunk),
    "event of Responses": ((EVENT | RESPONSE.map(lambda r: {"object": "response"} | r)).map(json.dumps), event),
    "OpenAPI document": (OPENAPI.map(json.dumps), openapi),
    "workflow": (WORKFLOW.map(json.dumps), workflow),
    "web search": (RESULTS.map(json.dumps), search_answer),
    "links of a page": (PAGE | SITEMAP, page_links),
    "website": (ROBOTS | ADDRESS, website),
}


@pytest.mark.parametrize("name", TARGETS)
def test_any_answer_is_read_or_refused(name: str) -> None:
    inputs, target = TARGETS[name]
    for text in HOSTILE:
        target(text)
    taking_anything(inputs, target, 60, known=True)


@pytest.mark.prove
@pytest.mark.parametrize("name", TARGETS)
def test_no_new_answer_breaks_its_reader(name: str) -> None:
    inputs, target = TARGETS[name]
    taking_anything(inputs | TEXTS, target, 1000, known=False)


def test_a_link_that_is_no_address_takes_no_other_with_it(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text('<html><a href="http://[">broken</a><a href="/b">sound</a></html>')
    assert links(page, "http://site.test/a").found == ("http://site.test/b",)


@pytest.mark.parametrize("field", ["prompt_tokens_details", "completion_tokens_details", "input_tokens_details"])
def test_details_of_usage_that_are_none_count_nothing(field: str) -> None:
    reply: Any = ReplyBuilder("m1", 1, {})
    ChatChunks(reply).take(json.dumps({"usage": {"prompt_tokens": 3, field: True}}).encode())
    assert (reply.usage.input_tokens, reply.usage.cached_input_tokens) == (3, 0)
