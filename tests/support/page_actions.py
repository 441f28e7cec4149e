"""What people do on the page."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect


async def ask(page: Page, text: str) -> Locator:
    """Send a question and return its turn."""
    count = await page.locator(".turn").count()
    box = page.get_by_role("textbox", name="Your question")
    await box.fill(text)
    await box.press("Enter")
    turn = page.locator(".turn").nth(count)
    await expect(turn).to_be_visible()
    return turn


async def finished(turn: Locator, phase: str = "completed") -> Locator:
    """Wait for the end of a turn."""
    await expect(turn).to_have_attribute("data-phase", phase)
    await expect(turn.locator(".turn-tools")).to_be_visible()
    return turn
