"""The part of bootstrap that opens the web: search, pages, sites."""

from __future__ import annotations

import ipaddress
from contextlib import AsyncExitStack
from typing import assert_never

import httpx

from services.chassis.clock import Clock, Ids
from services.retrieval.adapters.web.checked_transport import CheckedTransport
from services.retrieval.adapters.web.page_fetcher import FetchLimits, HttpPageFetcher
from services.retrieval.adapters.web.providers import BraveSearch, DuckDuckGoSearch, SearxngSearch, TavilySearch
from services.retrieval.adapters.web.site_reader import HttpSiteReader
from services.retrieval.crawl import Crawler, Politeness
from services.retrieval.ingest import Ingest
from services.retrieval.page_intake import PageIntake
from services.retrieval.ports import Documents, Parser, Staging, WebSearch
from services.retrieval.purge import Purger
from services.retrieval.settings import Settings, WebSearchChoice
from services.retrieval.site_ports import LinkParser, Sites
from services.retrieval.web import Web


def open_web(settings: Settings, parser: Parser, clock: Clock, opened: AsyncExitStack) -> Web:
    """Return web search and page fetch, each as far as it is configured."""
    client = _checked_client(settings)
    opened.push_async_callback(client.aclose)
    limits = FetchLimits(seconds=settings.fetch_seconds, max_bytes=settings.fetch_bytes)
    fetcher = HttpPageFetcher(client, parser, limits, clock) if settings.fetch_pages else None
    return Web(_open_search(settings, client, opened), fetcher)


def open_crawler(
    settings: Settings,
    sites: Sites,
    documents: Documents,
    staging: Staging,
    ingest: Ingest,
    purger: Purger,
    parser: LinkParser,
    clock: Clock,
    ids: Ids,
    opened: AsyncExitStack,
) -> Crawler | None:
    """Return what follows sites, None when pages are not to be fetched."""
    if not settings.fetch_pages:
        return None
    client = _checked_client(settings)
    opened.push_async_callback(client.aclose)
    # A document of some size takes its time; a page that is fetched for an answer must not.
    seconds = 3 * settings.fetch_seconds
    reader = HttpSiteReader(client, max_bytes=settings.site_page_bytes, seconds=seconds, clock=clock)
    intake = PageIntake(
        sites, documents, staging, ingest, purger, reader, parser, ids, page_bytes=settings.site_page_bytes
    )
    politeness = Politeness(delay=settings.site_delay, site_bytes=settings.site_bytes)
    return Crawler(sites, intake, reader, politeness, clock)


def _checked_client(settings: Settings) -> httpx.AsyncClient:
    allowed = [ipaddress.ip_network(text) for text in settings.fetch_allow_networks]
    return httpx.AsyncClient(transport=CheckedTransport(allowed=allowed), follow_redirects=False, trust_env=False)


def _open_search(settings: Settings, checked: httpx.AsyncClient, opened: AsyncExitStack) -> WebSearch | None:
    key = str.__str__(settings.web_search_key)
    match settings.web_search:
        case WebSearchChoice.TAVILY:
            return TavilySearch(checked, key)
        case WebSearchChoice.BRAVE:
            return BraveSearch(checked, key)
        case WebSearchChoice.DUCKDUCKGO:
            return DuckDuckGoSearch()
        case WebSearchChoice.SEARXNG:
            # The operator names this server, and it commonly stands beside us on a private network.
            plain = httpx.AsyncClient(follow_redirects=False, trust_env=False)
            opened.push_async_callback(plain.aclose)
            return SearxngSearch(plain, settings.web_search_url)
        case WebSearchChoice.NONE:
            return None
        case _:
            assert_never(settings.web_search)
