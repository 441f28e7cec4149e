"""Sites: web addresses that a source follows, and their pages. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import PurePosixPath
from urllib.parse import urljoin, urlsplit, urlunsplit

# A document's path holds its address.
MAX_URL = 1024
_PORTS = {"http": 80, "https": 443}
# What pages link to and no parser reads: not asked for at all.
_SUFFIXES = """
    .png .jpg .jpeg .gif .svg .webp .ico .bmp .tif .tiff .css .js .mjs .map .woff .woff2 .ttf .otf .eot .mp3 .mp4 .m4a
    .webm .ogg .wav .avi .mov .zip .gz .tgz .bz2 .xz .7z .rar .tar .exe .dmg .msi .deb .rpm .apk .jar .whl .iso .bin
"""
_NO_DOCUMENT = frozenset(_SUFFIXES.split())


class SiteState(StrEnum):
    """Where a site stands."""

    SYNCING = "syncing"
    DONE = "done"
    FAILED = "failed"


class PageOutcome(StrEnum):
    """What became of a page in a sync; QUEUED is still to read."""

    QUEUED = "queued"
    ADDED = "added"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    FOLLOWED = "followed"
    SKIPPED = "skipped"
    FAILED = "failed"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A page or sitemap to begin at, and how far to go. `sync` counts its syncs; `host` is where it leads, once known.

    `every` is None when it is read on demand alone. `cut` says that a limit kept pages out of the current sync.
    """

    id: str
    tenant: str
    source_id: str
    url: str
    max_pages: int
    max_depth: int
    every: timedelta | None = None
    state: SiteState = SiteState.SYNCING
    message: str = ""
    sync: int = 1
    host: str = ""
    cut: bool = False
    read_bytes: int = 0
    synced_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCounts:
    """Pages of a site: those that are documents, that failed in the current sync, that are still to read."""

    documents: int = 0
    failed: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePage:
    """One page. `path` is the document it became, empty when none; the validators are those of its last answer.

    `number` counts the pages of a site in the order in which they were dealt with.
    """

    site_id: str
    url: str
    depth: int
    outcome: PageOutcome = PageOutcome.QUEUED
    message: str = ""
    path: str = ""
    passages: int = 0
    etag: str = ""
    last_modified: str = ""
    links: tuple[str, ...] = ()
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLinks:
    """Where a page leads, absolute, in order; whether it allows to be kept and followed; whether it is a sitemap."""

    found: tuple[str, ...] = ()
    keep: bool = True
    follow: bool = True
    sitemap: bool = False


def normal(url: str, base: str = "") -> str:
    """Return an address in its one form: absolute, without fragment and default port; empty when it is no page's."""
    try:
        parts = urlsplit(urljoin(base, url.strip()))
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return ""
    if parts.scheme not in _PORTS or not host or parts.username or parts.password:
        return ""
    bare = f"[{host}]" if ":" in host else host
    place = bare if port in (None, _PORTS[parts.scheme]) else f"{bare}:{port}"
    whole = urlunsplit((parts.scheme, place, parts.path or "/", parts.query, ""))
    return whole if len(whole) <= MAX_URL else ""


def host_of(url: str) -> str:
    """Return host and port of an address."""
    return urlsplit(url).netloc.lower()


def may_be_document(url: str) -> bool:
    """Return whether the address does not end like a picture, a style or a program."""
    path = urlsplit(url).path.lower()
    return path.endswith(".xml.gz") or PurePosixPath(path).suffix not in _NO_DOCUMENT


def followed(links: Sequence[str], base: str, host: str) -> list[str]:
    """Return the links of a page that stay on its host and may be documents, each once, in order."""
    found = (normal(link, base) for link in links)
    return list(dict.fromkeys(url for url in found if url and host_of(url) == host and may_be_document(url)))
