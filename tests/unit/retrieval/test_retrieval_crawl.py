"""How politely a site is read, and what its addresses are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from services.retrieval.crawl import Crawler, Politeness
from services.retrieval.domain.errors import PageUnavailable
from services.retrieval.domain.sites import PageOutcome, Site, SitePage, SiteState, followed, normal
from services.retrieval.page_intake import PageIntake
from services.retrieval.site_ports import PageAnswer
from tests.support.clock import FakeClock, SequentialIds

SITE = Site(id="w", tenant="t", source_id="s", url="https://w.example/", max_pages=9, max_depth=1)


@dataclass(slots=True)
class Desk:
    """Pages of one site, a reader that gives its answers, and the pauses that were made."""

    pages: list[SitePage]
    answers: list[Exception | PageAnswer]
    asked_delay: float = 0.0
    settled: list[SitePage] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    state: SiteState | None = None

    async def next_page(self, site: Site) -> SitePage | None:
        return self.pages[0] if self.pages else None

    async def settle(self, site: Site, page: SitePage, links: Sequence[Any], read_bytes: int) -> bool:
        self.pages.pop(0)
        self.settled.append(page)
        return True

    async def cut(self, site: Site) -> bool:
        return True

    async def finish(self, site: Site, state: SiteState, message: str) -> None:
        self.state = state

    async def read(self, page: SitePage, host: str) -> PageAnswer:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def delay(self, url: str) -> float:
        return self.asked_delay

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


UNCHANGED = PageAnswer(url=SITE.url, body=b"", media_type="", unchanged=True)


async def synced(desk: Desk) -> Desk:
    parts: Any = desk
    nothing: Any = SimpleNamespace()
    intake = PageIntake(
        parts, nothing, nothing, nothing, nothing, parts, nothing, SequentialIds(), page_bytes=99, pause=desk.pause
    )
    await Crawler(parts, intake, parts, Politeness(delay=2.0), FakeClock(), pause=desk.pause)._sync(SITE)
    return desk


def page(name: str) -> SitePage:
    return SitePage(site_id="w", url=f"https://w.example/{name}", depth=1)


@pytest.mark.parametrize(("asked", "waited"), [(0.0, 2.0), (1.0, 2.0), (7.0, 7.0)])
async def test_there_is_a_pause_between_two_pages_as_long_as_the_site_asks_for(asked: float, waited: float) -> None:
    desk = await synced(Desk([page("a"), page("b"), page("c")], [UNCHANGED] * 3, asked_delay=asked))

    assert desk.pauses == [waited, waited]
    assert [one.outcome for one in desk.settled] == [PageOutcome.UNCHANGED] * 3
    assert desk.state is SiteState.DONE


async def test_a_site_that_says_later_is_waited_for_but_not_for_ever() -> None:
    later = PageUnavailable("busy", retry_after=10.0)
    long = PageUnavailable("busy", retry_after=86_400.0)
    desk = await synced(Desk([page("a"), page("b")], [later, UNCHANGED, long, long, long]))

    assert desk.pauses == [10.0, 2.0, 60.0, 60.0]
    assert [one.outcome for one in desk.settled] == [PageOutcome.UNCHANGED, PageOutcome.FAILED]


async def test_a_failure_without_a_remedy_is_told_at_once() -> None:
    desk = await synced(Desk([page("a")], [PageUnavailable("answered 500")]))

    assert (desk.pauses, desk.settled[0].message) == ([], "answered 500")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("HTTPS://W.Example:443/a?b=1#c", "https://w.example/a?b=1"),
        ("http://w.example", "http://w.example/"),
        ("http://w.example:8080/x", "http://w.example:8080/x"),
        ("../up", "https://w.example/up"),
        ("mailto:ann@w.example", ""),
        ("javascript:void(0)", ""),
        ("https://u:p@w.example/", ""),
        ("http://w.example:99999/", ""),
        ("https://w.example/" + "x" * 1024, ""),
    ],
)
def test_an_address_has_one_form(url: str, expected: str) -> None:
    assert normal(url, "https://w.example/deep/page") == expected


def test_only_documents_of_the_same_host_are_followed() -> None:
    links = ["a", "a#x", "https://other.example/", "/pic.PNG", "/map.xml.gz", "/report.pdf", "//w.example/b"]

    assert followed(links, "https://w.example/", "w.example") == [
        "https://w.example/a",
        "https://w.example/map.xml.gz",
        "https://w.example/report.pdf",
        "https://w.example/b",
    ]
