"""Bodies of the source and search routes."""

from __future__ import annotations

from pydantic import Field

from services.gateway.bodies.base import Body


class CreateSource(Body):
    """A new source."""

    name: str = Field(min_length=1, max_length=128)
    description: str = Field(default="", max_length=4096)
    private: bool = False


class SyncSite(Body):
    """A web page or sitemap to follow."""

    url: str = Field(min_length=1, max_length=1024)
    max_pages: int = Field(default=0, ge=0, le=100_000, description="Most pages; 0 is 200.")
    max_depth: int = Field(default=0, ge=0, le=10, description="How many links deep; 0 is the page alone.")
    every_hours: int = Field(default=0, ge=0, le=8760, description="Read again by itself this often; 0 is never.")


class Search(Body):
    """What to look for."""

    query: str = Field(min_length=1, max_length=32_768)
    sources: list[str] = Field(default_factory=list, max_length=64)
    top_k: int = Field(default=0, ge=0, le=50)
    max_characters: int = Field(default=0, ge=0, le=200_000)
    filter: str = Field(default="", max_length=4096)
    history: list[str] = Field(default_factory=list, max_length=32)
    retriever: str = Field(default="", max_length=64)
