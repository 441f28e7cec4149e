"""Every screen under axe, the checker of accessibility: no violation, in both themes, on a phone and on a desk."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import OpenPage
from tests.support.fake_gateway import FakeGateway
from tests.support.npm_clients import NODE_MODULES, needs_package
from tests.support.page_actions import ask, finished

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_package("axe-core")]
AXE = NODE_MODULES / "axe-core" / "axe.min.js"
SETTLE = """() => Promise.all(document.getAnimations()
  .filter(each => each.effect.getComputedTiming().endTime < 2000).map(each => each.finished.catch(() => {})))"""
RUN = """async () => (await axe.run(document, {
  runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], resultTypes: ["violations"],
})).violations.map(found => [found.id, found.nodes.map(node => node.target.join(" ")).slice(0, 3)])"""


async def violations(page: Page) -> Any:
    """Return what axe finds wrong with the page as it stands, transitions over."""
    await page.evaluate(SETTLE)
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text())
    return await page.evaluate(RUN)


async def test_no_screen_breaks_a_rule(open_page: OpenPage, gateway: FakeGateway) -> None:
    gateway.quotas = [{"scope": "QUOTA_SCOPE_USER", "subject": "", "runs": 10, "used": {"runs": 9}}]
    gateway.rules = [{"rule_id": "r1", "tool": "run_code", "conversation_id": ""}]
    gateway.memories = [{"memory_id": "m1", "text": "Likes tea.", "created_at": "2026-01-05T12:00:00Z", "run_id": "r1"}]
    page = await open_page(gateway.url, color_scheme="light")
    await expect(page.locator(".example").first).to_be_visible()
    assert await violations(page) == []
    turn = await finished(await ask(page, "What is the per diem"))
    await turn.locator("button.cite").first.click()
    await turn.locator(".steps > summary").click()
    assert await violations(page) == []
    turn = await finished(await ask(page, "Compare London and Zurich"))
    await turn.locator(".steps > summary").click()
    await ask(page, "Ask me")
    await expect(page.locator(".slip")).to_be_visible()
    assert await violations(page) == []
    page = await open_page(gateway.url, width=390, color_scheme="dark")
    await ask(page, "/python print(1)")
    await expect(page.locator(".slip")).to_be_visible()
    assert await violations(page) == []
    for path, ready in (
        ("/approvals", ".slip"),
        ("/runs", ".run-row"),
        ("/runs/run-2", ".route"),
        ("/sources", ".source"),
        ("/memories", ".memories li"),
        ("/usage", ".quota-list li"),
    ):
        await page.goto(gateway.url + path)
        await expect(page.locator(ready).first).to_be_visible()
        assert await violations(page) == [], path
    await page.get_by_role("button", name="New quota").click()
    assert await violations(page) == []
