"""Where a web page leads: links of HTML, addresses of a sitemap, and what the page asks programs not to do."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from urllib.parse import urljoin
from xml.etree import ElementTree as ET

from selectolax.lexbor import LexborHTMLParser

from services.retrieval.adapters.parsers.detect import looks_like_html
from services.retrieval.domain.sites import PageLinks

MOST = 5_000
# Of a sitemap that unpacks to more only the beginning is read (the protocol's own limit).
MAX_XML = 50 * 2**20
_GZIP = b"\x1f\x8b"
_SITEMAP = re.compile(rb"<(?:\w+:)?(?:urlset|sitemapindex)[\s>]")


def links(path: Path, url: str) -> PageLinks:
    """Return where the file that `url` answered leads."""
    raw = _unpacked(path)
    head = raw[:2048]
    if _SITEMAP.search(head):
        return PageLinks(found=_locations(raw), keep=False, sitemap=True)
    if looks_like_html(head):
        return _of_html(raw, url)
    return PageLinks()


def _unpacked(path: Path) -> bytes:
    with path.open("rb") as file:
        if file.read(2) != _GZIP:
            file.seek(0)
            return file.read(MAX_XML)
    with gzip.open(path) as packed:
        return packed.read(MAX_XML)


def _locations(raw: bytes) -> tuple[str, ...]:
    # Entities that multiply are refused by expat since 2.4.1, and this process has limits of its own.
    root = ET.fromstring(raw)  # noqa: S314
    entries = (entry.find("{*}loc") for entry in root)
    found = ((entry.text or "").strip() for entry in entries if entry is not None)
    return tuple(url for url in found if url)[:50_000]


def _of_html(raw: bytes, url: str) -> PageLinks:
    tree = LexborHTMLParser(raw.decode("utf-8", errors="replace"))
    asked = ""
    for node in tree.css("meta[name][content]"):
        if (node.attributes.get("name") or "").lower() in ("robots", "proctorbot"):
            asked += f",{node.attributes.get('content') or ''}".lower()
    wishes = {wish.strip() for wish in asked.split(",")}
    base = tree.css_first("base[href]")
    start = _joined(url, (base.attributes.get("href") or "") if base else "") or url
    found = [
        _joined(start, node.attributes.get("href") or "")
        for node in tree.css("a[href], area[href]")
        if "nofollow" not in (node.attributes.get("rel") or "").lower().split()
    ]
    follow = wishes.isdisjoint({"nofollow", "none"})
    return PageLinks(
        found=tuple(dict.fromkeys(filter(None, found)))[:MOST] if follow else (),
        keep=wishes.isdisjoint({"noindex", "none"}),
        follow=follow,
    )


def _joined(start: str, href: str) -> str:
    """Return the address that a link stands for, empty when it stands for none: the page's other links still count."""
    try:
        return urljoin(start, href)
    except ValueError:
        return ""
