"""Pages and providers: what is not public is never connected to, whatever form its address takes."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from services.retrieval.adapters.parsers.parsing_children import Limits
from services.retrieval.adapters.parsers.process import ProcessParser
from services.retrieval.adapters.web.addresses import is_public
from services.retrieval.adapters.web.checked_transport import CheckedTransport, resolve
from services.retrieval.adapters.web.page_fetcher import FetchLimits, HttpPageFetcher
from services.retrieval.adapters.web.providers import BraveSearch, DuckDuckGoSearch, SearxngSearch, TavilySearch
from services.retrieval.domain.errors import PageUnavailable, UrlForbidden
from services.retrieval.domain.search import HitKind
from services.retrieval.ports import WebSearch
from tests.support.clock import FakeClock

LOOPBACK = (ipaddress.ip_network("127.0.0.1/32"),)
Answer = tuple[int, dict[str, str], bytes]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "198.18.0.1",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::",
        "2001:0:7f00:1::",
        "fd00:ec2::254",
        "not an address",
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"]
)
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(address)


def test_an_allowed_network_is_allowed_in_every_form() -> None:
    assert is_public("127.0.0.1", LOOPBACK)
    assert is_public("::ffff:127.0.0.1", LOOPBACK)
    assert not is_public("127.0.0.2", LOOPBACK)


@asynccontextmanager
async def site(answer: Callable[[str], Answer]) -> AsyncIterator[tuple[int, list[str]]]:
    """Serve `answer(path)` on loopback; yields the port and the paths that were asked for."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ")[1].decode()
        asked.append(path)
        status, headers, body = answer(path)
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def fetcher(
    resolver: Callable[[str, int], object] = resolve,
    *,
    allowed: bool = True,
    max_bytes: int = 100_000,
    seconds: float = 30,
) -> AsyncIterator[HttpPageFetcher]:
    parser = ProcessParser(Limits(seconds=30, memory_bytes=2**31, max_characters=10**6), workers=1)
    transport = CheckedTransport(allowed=LOOPBACK if allowed else (), resolver=resolver)  # type: ignore[arg-type]
    client = httpx.AsyncClient(transport=transport, follow_redirects=False, trust_env=False)
    opened = HttpPageFetcher(client, parser, FetchLimits(seconds=seconds, max_bytes=max_bytes), FakeClock())
    try:
        yield opened
    finally:
        await opened.close()
        await parser.close()


def page(path: str) -> Answer:
    if path == "/robots.txt":
        return 200, {}, b"User-agent: *\nDisallow: /secret\n"
    if path == "/moved":
        return 302, {"location": "/page"}, b""
    if path == "/inside":
        return 302, {"location": "http://169.254.169.254/latest/meta-data"}, b""
    if path == "/loop":
        return 302, {"location": "/loop"}, b""
    if path == "/big":
        return 200, {"content-type": "text/plain"}, b"x" * 200_000
    if path == "/gone":
        return 404, {}, b""
    body = "<title>News</title><script>x()</script><nav>Home</nav><main><h1>Opening</h1><p>门店周一开业。</p></main>"
    return 200, {"content-type": "text/html; charset=utf-8"}, body.encode()


async def test_a_page_is_clean_text_and_is_fetched_once() -> None:
    async with site(page) as (port, asked), fetcher() as web:
        first = await web.fetch(f"http://127.0.0.1:{port}/moved")
        again = await web.fetch(f"http://127.0.0.1:{port}/moved")

    assert (first.url, first.title, first.text) == (
        f"http://127.0.0.1:{port}/page",
        "Opening",
        "Opening\n\n门店周一开业。",
    )
    assert again == first
    assert asked == ["/robots.txt", "/moved", "/page"]


@pytest.mark.parametrize(
    ("path", "failure", "told"),
    [
        ("/inside", UrlForbidden, "not public"),
        ("/secret/plan", UrlForbidden, "robots.txt"),
        ("/loop", PageUnavailable, "redirects more than 5"),
        ("/big", PageUnavailable, "larger than"),
        ("/gone", PageUnavailable, "answered 404"),
    ],
)
async def test_what_a_site_may_not_do_to_us(path: str, failure: type[Exception], told: str) -> None:
    async with site(page) as (port, _), fetcher() as web:
        with pytest.raises(failure, match=told):
            await web.fetch(f"http://127.0.0.1:{port}{path}")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]"]
)
async def test_no_form_of_a_private_address_is_connected_to(host: str) -> None:
    async with site(page) as (port, asked), fetcher(allowed=False) as web:
        with pytest.raises((UrlForbidden, PageUnavailable)) as refused:
            await web.fetch(f"http://{host}:{port}/page")

    assert asked == []
    assert isinstance(refused.value, UrlForbidden) or "cannot be reached" in refused.value.message


async def test_a_name_that_is_public_at_first_and_private_later_is_refused() -> None:
    answers = iter([["127.0.0.1"], ["127.0.0.1"], ["10.0.0.1"]])

    async def rebinding(host: str, port: int) -> list[str]:
        return next(answers)

    async with site(page) as (port, asked), fetcher(rebinding) as web:
        await web.fetch(f"http://news.example:{port}/page")
        with pytest.raises(UrlForbidden):
            await web.fetch(f"http://news.example:{port}/other")

    assert asked == ["/robots.txt", "/page"]


async def test_a_name_with_one_private_address_among_public_ones_is_refused() -> None:
    async def mixed(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "10.0.0.1"]

    async with fetcher(mixed) as web:
        with pytest.raises(UrlForbidden):
            await web.fetch("http://news.example/")


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "http://", "http://u:p@example.org/", "gopher://x/", "http://x:99999/"]
)
async def test_other_forms_of_url_are_refused(url: str) -> None:
    async with fetcher() as web:
        with pytest.raises(UrlForbidden):
            await web.fetch(url)


FOUND = [{"title": "A", "url": "https://a.example", "content": "<b>x</b> y", "description": "<b>x</b> y"}]


@pytest.mark.parametrize("kind", ["tavily", "brave", "searxng"])
async def test_providers_give_hits_of_kind_web(kind: str) -> None:
    body = json.dumps({"results": FOUND * 3, "web": {"results": FOUND * 3}}).encode()
    async with (
        site(lambda path: (200, {"content-type": "application/json"}, body)) as (port, _),
        httpx.AsyncClient() as client,
    ):
        url = f"http://127.0.0.1:{port}"
        providers: dict[str, WebSearch] = {
            "tavily": TavilySearch(client, "k", url),
            "brave": BraveSearch(client, "k", url),
            "searxng": SearxngSearch(client, url),
        }
        hits = await providers[kind].search("q", 2)

    assert [(hit.title, hit.url, hit.text, hit.kind) for hit in hits] == [
        ("A", "https://a.example", "x y", HitKind.WEB)
    ] * 2


async def test_a_provider_that_refuses_the_key_says_so() -> None:
    async with site(lambda path: (401, {}, b"{}")) as (port, _), httpx.AsyncClient() as client:
        with pytest.raises(PageUnavailable, match="tavily answered 401"):
            await TavilySearch(client, "k", f"http://127.0.0.1:{port}").search("q", 2)


DUCKDUCKGO = (
    "<html><body><div class='links_main result__body'><h2><a href='https://a.example'>A title</a></h2>"
    "<a href='https://a.example'>What <b>it</b> says</a></div>"
    "<div class='result__body'><h2>Ad</h2><a href='https://duckduckgo.com/y.js?ad=1'>Buy</a></div></body></html>"
)


async def test_duckduckgo_gives_hits_and_tells_a_refusal_from_nothing_found() -> None:
    answers = iter([(200, DUCKDUCKGO), (200, "<html><body>No results.</body></html>"), (202, "Too often")])

    def answer(path: str) -> Answer:
        status, body = next(answers)
        return status, {"content-type": "text/html"}, body.encode()

    async with site(answer) as (port, asked):
        provider = DuckDuckGoSearch(f"http://127.0.0.1:{port}/html/")
        (hit,) = await provider.search("what it says", 3)
        nothing = await provider.search("what it says", 3)
        with pytest.raises(PageUnavailable, match="asked often"):
            await provider.search("what it says", 3)
    with pytest.raises(PageUnavailable, match="does not answer"):
        await provider.search("what it says", 3)

    assert (hit.title, hit.url, hit.text, hit.kind) == ("A title", "https://a.example", "What it says", HitKind.WEB)
    assert (nothing, asked) == ([], ["/html/"] * 3)
