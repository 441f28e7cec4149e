"""What agents keep about the user, on the page: seen, erased one by one or all at once, hostile text stays text."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.conftest import OpenPage
from tests.support.fake_gateway import FakeGateway

pytestmark = pytest.mark.asyncio(loop_scope="session")
HOSTILE = "<img src=x onerror=alert(1)> likes [tea](javascript:1)"


async def test_memories_are_seen_and_erased(open_page: OpenPage, gateway: FakeGateway) -> None:
    texts = (HOSTILE, "Works in Berlin.", "Prefers short answers.")
    gateway.memories = [
        {"memory_id": f"mem-{n}", "text": text, "created_at": "2026-01-05T12:00:00Z", "run_id": "run-1"}
        for n, text in enumerate(texts)
    ]
    page = await open_page(f"{gateway.url}/agents", width=390, height=800)
    await page.get_by_role("link", name="Memories").click()
    rows = page.locator(".memories li")
    await expect(rows).to_have_count(3)
    await expect(rows.first).to_contain_text(HOSTILE)
    await expect(page.locator("main img")).to_have_count(0)
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    await page.get_by_role("button", name="Delete: Works in Berlin.").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(rows).to_have_count(2)
    await page.get_by_role("button", name="Erase everything").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await expect(rows).to_have_count(2)
    await page.get_by_role("button", name="Erase everything").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.locator(".memories")).to_contain_text("Nothing is kept about you.")
    await expect(page.get_by_role("button", name="Erase everything")).to_be_hidden()
    erased = [path for method, path, _, _ in gateway.requests if method == "DELETE"]
    assert erased == ["/v1/memories/mem-1", "/v1/memories"]
