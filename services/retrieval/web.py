"""The web as a source: search by a configured provider, pages as clean text. Not configured, it does not exist."""

from __future__ import annotations

from dataclasses import dataclass

from services.chassis.errors import NotConfigured
from services.retrieval.domain.search import Hit, HitKind, Provenance
from services.retrieval.ports import PageFetcher, WebSearch

RESULTS = 6
PAGE_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A page as a hit, where it was found in the end, and whether its text was cut."""

    hit: Hit
    final_url: str
    truncated: bool


class Web:
    """Searches the web and fetches pages."""

    def __init__(self, search: WebSearch | None, fetcher: PageFetcher | None) -> None:
        self._search = search
        self._fetcher = fetcher

    @property
    def provider(self) -> str:
        """Name of the search provider, empty when there is none."""
        return self._search.provider if self._search is not None else ""

    @property
    def fetches(self) -> bool:
        """Whether pages are fetched."""
        return self._fetcher is not None

    async def search(self, query: str, limit: int) -> tuple[list[Hit], str]:
        """Return hits of kind web and the provider's name."""
        if self._search is None:
            raise NotConfigured(
                "web search is off; set PROCTOR_RETRIEVAL_WEB_SEARCH to tavily, brave, searxng or duckduckgo",
                metadata={"setting": "PROCTOR_RETRIEVAL_WEB_SEARCH"},
            )
        return await self._search.search(query, limit or RESULTS), self._search.provider

    async def fetch(self, url: str, limit: int) -> Fetched:
        """Return a public page; UrlForbidden for an address that is not public."""
        if self._fetcher is None:
            raise NotConfigured(
                "fetching pages is off; set PROCTOR_RETRIEVAL_FETCH_PAGES to true",
                metadata={"setting": "PROCTOR_RETRIEVAL_FETCH_PAGES"},
            )
        page = await self._fetcher.fetch(url)
        shown = page.text[: limit or PAGE_CHARACTERS]
        hit = Hit(
            passage_id="",
            title=page.title or page.url,
            text=shown,
            url=page.url,
            kind=HitKind.WEB,
            provenance=Provenance(end=len(shown)),
        )
        return Fetched(hit=hit, final_url=page.url, truncated=len(shown) < len(page.text))
