"""The page over the whole suite, all five services: ask, read the citations, allow, see the picture."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.browser.conftest import OpenPage
from tests.support.page_actions import ask, finished
from tests.support.suite import Suite, suite
from tests.support.suite_steps import ingest_handbook

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

CODE = """/python import matplotlib.pyplot as plt
plt.bar(["London", "Zurich"], [72, 86])
plt.savefig("per-diem.png")
print("drawn", 72 + 86)"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def running() -> AsyncIterator[Suite]:
    """The suite with the keyless reader and the handbook."""
    async with suite() as started:
        await ingest_handbook(started)
        yield started


async def test_ask_allow_and_see_the_picture_and_the_citations(open_page: OpenPage, running: Suite) -> None:
    page = await open_page(running.base_url)
    await expect(page.locator(".greeting")).to_contain_text("handbook")

    turn = await finished(await ask(page, "What is the per diem for four days in Singapore?"))
    await expect(turn.locator(".prose")).to_contain_text("EUR 224")
    await turn.get_by_role("button", name="Source 1: Per diem and hotel limits, passage").click()
    await expect(turn.locator(".prose .passage .support")).to_contain_text("2 × 70 + 2 × 42 = EUR 224")
    await turn.get_by_role("button", name="Show the whole passage").click()
    await expect(turn.locator(".passage-actions button")).to_have_count(0)

    turn = await ask(page, CODE)
    card = page.get_by_role("region", name="May “run_code” run?")
    await expect(card.get_by_role("timer")).to_contain_text("left")
    await expect(page.locator(".side .count")).to_have_text("1", timeout=15_000)
    await card.get_by_role("button", name="Allow once").click()
    await finished(turn)
    picture = turn.get_by_role("img", name="Picture from the sandbox: per-diem.png")
    assert await picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 100
    await expect(turn.locator(".prose")).to_contain_text("drawn 158")

    await page.locator(".turn").first.get_by_role("button", name="Good answer").click()
    await page.reload()
    await finished(page.locator(".turn").nth(1))
    liked = page.locator(".turn").first.get_by_role("button", name="Good answer")
    await expect(liked).to_have_attribute("aria-pressed", "true")
    await expect(page.get_by_role("img", name="Picture from the sandbox: per-diem.png")).to_be_visible()
    await page.locator(".turn").nth(1).get_by_role("link", name="How it ran").click()
    await expect(page.locator(".waterfall li")).to_have_count(2)
    await expect(page.locator(".record", has_text="run_code")).to_contain_text("done")
    await page.get_by_role("link", name="Approvals", exact=True).click()
    await page.get_by_role("button", name="Decided").click()
    await expect(page.locator(".record")).to_contain_text("allowed")


async def test_a_refused_call_never_runs(open_page: OpenPage, running: Suite) -> None:
    page = await open_page(running.base_url)
    turn = await ask(page, '/python print("it" + "ran")')
    card = page.get_by_role("region", name="May “run_code” run?")
    await card.get_by_role("button", name="Deny").click()
    await finished(turn)
    await expect(page.locator("main")).not_to_contain_text("itran")
    await turn.locator(".steps > summary").click()
    await expect(turn.locator(".row-call")).to_contain_text("denied")
