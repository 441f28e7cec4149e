"""Following a web site: a site of our own on loopback, crawled by the whole service."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from proctor.retrieval.v1 import source_service_pb2 as source_pb
from services.chassis.errors import from_rpc_error
from services.retrieval.settings import EmbedderChoice, Settings
from tests.support.platform import principal
from tests.support.retrieval_service import Retrieval, running

SETTINGS = Settings(embedder=EmbedderChoice.NONE, site_delay=0.0, site_pages=50, fetch_allow_networks=("127.0.0.1/32",))
HTML = "text/html; charset=utf-8"


@dataclass(slots=True)
class Site:
    """A web site: bodies by path, and what was asked for with which headers."""

    port: int = 0
    pages: dict[str, bytes] = field(default_factory=dict)
    answers: dict[str, list[tuple[int, dict[str, str]]]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    held: asyncio.Event = field(default_factory=asyncio.Event)
    stuck: set[str] = field(default_factory=set)

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def page(self, path: str, text: str, *links: str) -> None:
        anchors = "".join(f"<a href='{link}'>more</a>" for link in links)
        self.pages[path] = f"<!doctype html><title>{path}</title><main><p>{text}</p>{anchors}</main>".encode()

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked if path != "/robots.txt"]

    def answer(self, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        self.asked.append((path, headers))
        if self.answers.get(path):
            status, told = self.answers[path].pop(0)
            return status, told, b""
        if path not in self.pages:
            return 404, {}, b""
        tag = f'"{hash(self.pages[path])}"'
        if headers.get("if-none-match") == tag:
            return 304, {"etag": tag}, b""
        kind = HTML if not path.endswith((".xml", ".gz", ".pdf")) else "application/octet-stream"
        return 200, {"content-type": kind, "etag": tag}, self.pages[path]


@asynccontextmanager
async def serving() -> AsyncIterator[Site]:
    site = Site()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        path = head[0].split(" ")[1]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        if path in site.stuck:
            await site.held.wait()
        status, told, body = site.answer(path, headers)
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in told.items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        await server.wait_closed()


@pytest.fixture
async def web() -> AsyncIterator[Site]:
    async with serving() as site:
        yield site


@pytest.fixture
async def retrieval(tmp_path: Path) -> AsyncIterator[Retrieval]:
    async with running(tmp_path, SETTINGS) as opened:
        await opened.create("web")
        yield opened


@dataclass(frozen=True, slots=True)
class Synced:
    """What a sync told: outcomes by path, and the site at its end."""

    pages: dict[str, str]
    messages: dict[str, str]
    site: source_pb.Site


async def sync(retrieval: Retrieval, url: str, **limits: int) -> Synced:
    request = source_pb.SyncSiteRequest(source_id="web", url=url, **limits)  # type: ignore[arg-type]
    call = retrieval.source_stub.SyncSite(request, metadata=retrieval.metadata)
    steps = [step async for step in call]
    assert steps[0].site.state == source_pb.SITE_STATE_SYNCING
    host = url.split("/")[2]
    pages = {step.page.url.partition(host)[2]: step.page for step in steps if step.HasField("page")}
    return Synced(
        {path: source_pb.PageOutcome.Name(page.outcome).removeprefix("PAGE_OUTCOME_") for path, page in pages.items()},
        {path: page.message for path, page in pages.items()},
        steps[-1].site,
    )


async def test_a_page_alone_becomes_a_document_that_cites_its_address(retrieval: Retrieval, web: Site) -> None:
    web.page("/prices?year=2026", "The ferry costs 40 euro.", "/other")

    synced = await sync(retrieval, web.url("/prices?year=2026"))

    assert synced.pages == {"/prices?year=2026": "ADDED"}
    assert (synced.site.state, synced.site.documents, synced.site.waiting) == (source_pb.SITE_STATE_DONE, 1, 0)
    (hit,) = (await retrieval.search("What does the ferry cost?")).hits
    assert (hit.url, hit.title) == (web.url("/prices?year=2026"), "/prices?year=2026")
    assert len((await retrieval.search("ferry", filter=f'meta.site = "{web.url("/prices?year=2026")}"')).hits) == 1


async def test_links_are_followed_as_deep_as_asked_on_this_host_alone(retrieval: Retrieval, web: Site) -> None:
    web.page("/", "Start", "/a#top", "a", "/logo.png", "http://other.example/", "mailto:x@y.z")
    web.page("/a", "First", "/b")
    web.page("/b", "Second", "/c")
    web.page("/c", "Third")

    synced = await sync(retrieval, web.url(), max_depth=2)

    assert synced.pages == {"/": "ADDED", "/a": "ADDED", "/b": "ADDED"}
    assert web.paths() == ["/", "/a", "/b"]
    assert {agent for _, headers in web.asked if (agent := headers["user-agent"])} == {"ProctorBot"}


async def test_a_sitemap_names_the_pages(retrieval: Retrieval, web: Site) -> None:
    locations = "".join(f"<url><loc>{web.url(f'/{name}')}</loc></url>" for name in ("one", "two"))
    web.pages["/pages.xml.gz"] = gzip.compress(f"<urlset xmlns='http://x'>{locations}</urlset>".encode())
    index = (
        f"<?xml version='1.0'?><sitemapindex><sitemap><loc>{web.url('/pages.xml.gz')}</loc></sitemap></sitemapindex>"
    )
    web.pages["/sitemap.xml"] = index.encode()
    web.page("/one", "The first.", "/unlisted")
    web.page("/two", "The second.")

    synced = await sync(retrieval, web.url("/sitemap.xml"))
    again = await sync(retrieval, web.url("/sitemap.xml"))

    assert synced.pages == {"/sitemap.xml": "FOLLOWED", "/pages.xml.gz": "FOLLOWED", "/one": "ADDED", "/two": "ADDED"}
    assert again.pages == synced.pages | {"/one": "UNCHANGED", "/two": "UNCHANGED"}
    assert set(await retrieval.documents("web")) == {web.url("/one"), web.url("/two")}


async def test_a_second_sync_takes_what_changed_and_drops_what_vanished(retrieval: Retrieval, web: Site) -> None:
    web.page("/", "Start", "/same", "/changes", "/leaves", "/dies", "/ill")
    for name in ("same", "changes", "leaves", "dies", "ill"):
        web.page(f"/{name}", f"About the {name} page.")
    await sync(retrieval, web.url(), max_depth=1)
    web.asked.clear()
    web.page("/", "Start", "/same", "/changes", "/dies", "/ill")
    web.page("/changes", "Now about penguins.")
    del web.pages["/dies"]
    web.answers["/ill"] = [(500, {})]

    synced = await sync(retrieval, web.url(), max_depth=1)

    assert synced.pages == {
        "/": "CHANGED",
        "/same": "UNCHANGED",
        "/changes": "CHANGED",
        "/dies": "GONE",
        "/ill": "FAILED",
        "/leaves": "GONE",
    }
    assert "500" in synced.messages["/ill"]
    assert set(await retrieval.documents("web")) == {web.url(path) for path in ("/", "/same", "/changes", "/ill")}
    assert "penguins" in (await retrieval.search("penguins")).hits[0].text
    assert (await retrieval.search("leaves")).hits == []
    assert (synced.site.documents, synced.site.failed) == (4, 1)
    sent = {path: headers.get("if-none-match", "") for path, headers in web.asked}
    assert all(sent[path] for path in ("/", "/same", "/changes"))


async def test_a_start_that_cannot_be_read_loses_nothing(retrieval: Retrieval, web: Site) -> None:
    web.page("/", "Start", "/a")
    web.page("/a", "First")
    await sync(retrieval, web.url(), max_depth=1)
    del web.pages["/"]

    synced = await sync(retrieval, web.url(), max_depth=1)

    assert (synced.site.state, synced.pages) == (source_pb.SITE_STATE_FAILED, {})
    assert "404" in synced.site.message
    assert len(await retrieval.documents("web")) == 2


async def test_what_a_page_led_to_stays_while_that_page_cannot_be_read(retrieval: Retrieval, web: Site) -> None:
    web.page("/", "Start", "/hub")
    web.page("/hub", "The hub.", "/leaf")
    web.page("/leaf", "The leaf.")
    await sync(retrieval, web.url(), max_depth=2)
    web.answers["/hub"] = [(500, {})]

    synced = await sync(retrieval, web.url(), max_depth=2)

    assert synced.pages == {"/": "UNCHANGED", "/hub": "FAILED", "/leaf": "UNCHANGED"}
    assert len(await retrieval.documents("web")) == 3


async def test_wishes_of_a_site_are_kept(retrieval: Retrieval, web: Site) -> None:
    web.pages["/robots.txt"] = b"User-agent: *\nDisallow: /*?print=\nAllow: /\n"
    web.page("/", "Start", "/page?print=1", "/hidden", "/moved", "/away", "/picture", "/busy")
    web.pages["/hidden"] = b"<!doctype html><meta name=robots content=noindex><p>Hidden.</p><a href=/below>x</a>"
    web.page("/below", "Below.")
    web.page("/busy", "Busy.")
    web.pages["/picture"] = b"\x89PNG\r\n\x1a\n" + b"\0" * 64
    web.answers["/moved"] = [(301, {"location": "/"})]
    web.answers["/away"] = [(302, {"location": "http://127.0.0.2:1/"})]
    web.answers["/busy"] = [(429, {"retry-after": "0"}), (503, {"retry-after": "0"})]

    synced = await sync(retrieval, web.url(), max_depth=2)

    assert synced.pages == {
        "/": "ADDED",
        "/page?print=1": "SKIPPED",
        "/hidden": "FOLLOWED",
        "/moved": "SKIPPED",
        "/away": "SKIPPED",
        "/picture": "SKIPPED",
        "/busy": "ADDED",
        "/below": "ADDED",
    }
    assert "robots.txt" in synced.messages["/page?print=1"]
    assert "another site" in synced.messages["/away"]
    assert "/page?print=1" not in web.paths()
    assert set(await retrieval.documents("web")) == {web.url(path) for path in ("/", "/busy", "/below")}


async def test_a_limit_of_pages_stops_and_says_so(retrieval: Retrieval, web: Site) -> None:
    web.page("/", "Start", *(f"/{n}" for n in range(9)))
    for n in range(9):
        web.page(f"/{n}", f"Page {n}.")

    synced = await sync(retrieval, web.url(), max_depth=1, max_pages=4)

    assert (len(synced.pages), synced.site.documents) == (4, 4)
    assert "stopped at 4 pages" in synced.site.message
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await sync(retrieval, web.url(), max_pages=51)
    assert from_rpc_error(refused.value).code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_sync_goes_on_after_a_restart_where_it_stood(tmp_path: Path, web: Site) -> None:
    web.page("/", "Start", "/a", "/b")
    web.page("/a", "First")
    web.page("/b", "Second")
    web.stuck.add("/b")
    async with running(tmp_path, SETTINGS) as before:
        await before.create("web")
        request = source_pb.SyncSiteRequest(source_id="web", url=web.url(), max_depth=1)
        call = before.source_stub.SyncSite(request, metadata=before.metadata)
        async for step in call:
            if step.page.url == web.url("/a"):
                break
        call.cancel()
    web.held.set()
    async with running(tmp_path, SETTINGS) as after:
        synced = await sync(after, web.url(), max_depth=1)

        assert synced.site.state == source_pb.SITE_STATE_DONE
        assert synced.pages == {"/": "ADDED", "/a": "ADDED", "/b": "ADDED"}
        assert web.paths().count("/") == web.paths().count("/a") == 1


async def test_sites_are_listed_and_given_up_with_their_documents(retrieval: Retrieval, web: Site) -> None:
    for name in "ab":
        web.page(f"/{name}", f"About {name}.", "/shared")
    web.page("/shared", "Shared.")
    await retrieval.ingest("web", {"own.md": "# Own\n\nOurs."})
    for name in "ba":
        await sync(retrieval, web.url(f"/{name}"), max_depth=1)

    listed = source_pb.ListSitesRequest(source_id="web", page_size=1)
    first = await retrieval.source_stub.ListSites(listed, metadata=retrieval.metadata)
    listed.page_token = first.next_page_token
    second = await retrieval.source_stub.ListSites(listed, metadata=retrieval.metadata)
    (site,) = first.sites
    request = source_pb.DeleteSiteRequest(source_id="web", site_id=site.site_id)
    gone = await retrieval.source_stub.DeleteSite(request, metadata=retrieval.metadata)

    assert [s.url for s in (*first.sites, *second.sites)] == [web.url("/a"), web.url("/b")]
    assert second.next_page_token == ""
    assert gone.documents == 1  # the shared page is the other site's too
    assert set(await retrieval.documents("web")) == {web.url("/b"), web.url("/shared"), "own.md"}
    with pytest.raises(grpc.aio.AioRpcError) as twice:
        await retrieval.source_stub.DeleteSite(request, metadata=retrieval.metadata)
    assert from_rpc_error(twice.value).reason == "SITE_NOT_FOUND"


async def test_private_addresses_and_others_sources_are_refused(tmp_path: Path, web: Site) -> None:
    web.page("/", "Inside")
    async with running(tmp_path, Settings(embedder=EmbedderChoice.NONE, site_delay=0.0)) as retrieval:
        await retrieval.create("web")
        synced = await sync(retrieval, web.url())
        assert (synced.site.state, web.asked) == (source_pb.SITE_STATE_FAILED, [])
        assert "not public" in synced.site.message
        bob = retrieval.as_(principal("bob", "local", "chat"))
        rival = retrieval.as_(principal("ann", "rival"))
        attempts: list[tuple[Awaitable[object], str]] = [
            (sync(bob, web.url()), "PERMISSION_DENIED"),
            (sync(rival, web.url()), "SOURCE_NOT_FOUND"),
            (sync(retrieval, "ftp://example.org/"), "URL_FORBIDDEN"),
            (sync(retrieval, "http://u:p@example.org/"), "URL_FORBIDDEN"),
        ]
        for attempt, reason in attempts:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await attempt
            assert from_rpc_error(refused.value).reason == reason
