"""Web search providers, each a translation of its API. Calls go through the checked transport, except DuckDuckGo's,
whose client brings its own and speaks to fixed hosts.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from ddgs.engines.duckduckgo import Duckduckgo
from ddgs.exceptions import DDGSException
from ddgs.results import TextResult

from services.retrieval.adapters.parsers.html import parse_markup
from services.retrieval.adapters.web.checked_transport import AddressForbidden
from services.retrieval.domain.errors import PageUnavailable
from services.retrieval.domain.search import Hit, HitKind

SECONDS = 15.0
TAVILY_URL = "https://api.tavily.com/search"
BRAVE_URL = "https://api.search.brave.com/res/v1/web/search"


class TavilySearch:
    """Implements the port WebSearch by Tavily."""

    provider = "tavily"

    def __init__(self, client: httpx.AsyncClient, key: str, url: str = "") -> None:
        self._client = client
        self._key = key
        self._url = url or TAVILY_URL

    async def search(self, query: str, limit: int) -> list[Hit]:
        body = {"query": query, "max_results": limit}
        headers = {"Authorization": f"Bearer {self._key}"}
        answer = await _call(self._client, self.provider, "POST", self._url, json=body, headers=headers)
        return [_hit(one.get("title"), one.get("url"), one.get("content")) for one in _found(answer)[:limit]]


class BraveSearch:
    """Implements the port WebSearch by Brave."""

    provider = "brave"

    def __init__(self, client: httpx.AsyncClient, key: str, url: str = "") -> None:
        self._client = client
        self._key = key
        self._url = url or BRAVE_URL

    async def search(self, query: str, limit: int) -> list[Hit]:
        headers = {"X-Subscription-Token": self._key, "Accept": "application/json"}
        params = {"q": query, "count": limit}
        answer = await _call(self._client, self.provider, "GET", self._url, params=params, headers=headers)
        found = _found(answer.get("web"))[:limit]
        return [_hit(one.get("title"), one.get("url"), one.get("description")) for one in found]


class SearxngSearch:
    """Implements the port WebSearch by a SearXNG server, whose settings must allow the format json."""

    provider = "searxng"

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = f"{url.rstrip('/')}/search"

    async def search(self, query: str, limit: int) -> list[Hit]:
        params = {"q": query, "format": "json"}
        answer = await _call(self._client, self.provider, "GET", self._url, params=params)
        return [_hit(one.get("title"), one.get("url"), one.get("content")) for one in _found(answer)[:limit]]


class DuckDuckGoSearch:
    """Implements the port WebSearch by DuckDuckGo, which needs no key and limits the rate."""

    provider = "duckduckgo"

    def __init__(self, url: str = "") -> None:
        self._url = url

    async def search(self, query: str, limit: int) -> list[Hit]:
        try:
            found = await asyncio.to_thread(self._ask, query)
        except DDGSException as failure:
            raise PageUnavailable("duckduckgo does not answer; try again later") from failure
        if found is None:
            raise PageUnavailable("duckduckgo refuses to answer, as it does when it is asked often; try again later")
        return [_hit(one.title, one.href, one.body) for one in found][:limit]

    def _ask(self, query: str) -> list[TextResult] | None:
        # The library's front asks other engines too, and cannot tell a refusal from a search that found nothing.
        engine = Duckduckgo(timeout=int(SECONDS))
        engine.search_url = self._url or engine.search_url
        return engine.search(query, region="wt-wt")


async def _call(client: httpx.AsyncClient, provider: str, method: str, url: str, **options: Any) -> dict[str, Any]:
    try:
        response = await client.request(method, url, timeout=SECONDS, **options)
        response.raise_for_status()
        answer = response.json()
    except httpx.HTTPStatusError as refusal:
        raise PageUnavailable(
            f"{provider} answered {refusal.response.status_code}; check its key and limits"
        ) from refusal
    except AddressForbidden:
        raise PageUnavailable(f"{provider} lies at a private address; allow its network to use it") from None
    except (httpx.HTTPError, ValueError, RecursionError) as failure:
        raise PageUnavailable(f"{provider} does not answer ({type(failure).__name__})") from failure
    return answer if isinstance(answer, dict) else {}


def _found(answer: object) -> list[dict[str, Any]]:
    """Return the results of an answer; whatever is none is left out."""
    results = answer.get("results") if isinstance(answer, dict) else None
    return [one for one in results if isinstance(one, dict)] if isinstance(results, list) else []


def _hit(title: object, url: object, text: object) -> Hit:
    shown = " ".join(block.text for block in parse_markup(_text(text)).blocks)  # providers mark matches in HTML
    return Hit(passage_id="", title=_text(title or url), text=shown, url=_text(url), kind=HitKind.WEB)


def _text(value: object) -> str:
    """Return what JSON held as text that can be sent on: it may write halves of characters."""
    return str(value or "").encode("utf-8", "replace").decode()
