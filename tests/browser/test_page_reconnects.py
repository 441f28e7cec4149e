"""A lost network costs no token and repeats none."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.support.fake_gateway import FakeGateway
from tests.support.page_actions import ask, finished

pytestmark = pytest.mark.asyncio(loop_scope="session")

WORDS = " ".join(f"w{number}" for number in range(200))


def watches(gateway: FakeGateway) -> list[str | None]:
    """Last-Event-ID of each re-attachment."""
    return [headers.get("Last-Event-ID") for _, path, headers, _ in gateway.requests if path.endswith("/events")]


async def test_breaks_in_the_middle_of_messages_lose_and_double_nothing(page: Page, gateway: FakeGateway) -> None:
    gateway.breaks["Count"] = [10, 40, 41, 100]
    turn = await finished(await ask(page, "Count"))
    await expect(turn.locator(".prose")).to_have_text(WORDS)
    assert watches(gateway) == ["9", "39", "40", "99"]


async def test_a_break_before_the_first_event_joins_the_same_run(page: Page, gateway: FakeGateway) -> None:
    gateway.breaks["Count"] = [1]
    turn = await finished(await ask(page, "Count"))
    await expect(turn.locator(".prose")).to_have_text(WORDS)
    started = [
        body["request_id"] for method, path, _, body in gateway.requests if (method, path) == ("POST", "/v1/runs")
    ]
    assert len(started) == 2
    assert len(set(started)) == 1
    assert len(gateway.runs) == 1


async def test_a_network_that_is_away_for_a_while_is_told_and_caught_up(page: Page, gateway: FakeGateway) -> None:
    turn = await ask(page, "Wait for it")
    await expect(turn.locator(".prose")).to_contain_text("First half.")
    gateway.online = False
    gateway.cut()
    await expect(page.get_by_text("Connection lost. The run goes on")).to_be_visible()
    gateway.release("rest")
    gateway.online = True
    await page.evaluate("dispatchEvent(new Event('online'))")
    await finished(turn)
    await expect(turn.locator(".prose")).to_have_text("First half. Second half.")
    await expect(page.locator(".banner")).to_be_hidden()


async def test_leaving_the_page_leaves_the_run_alone(page: Page, gateway: FakeGateway) -> None:
    await expect((await ask(page, "Wait for it")).locator(".prose")).to_contain_text("First half.")
    await page.get_by_role("link", name="Runs").click()
    await expect(page.locator(".run-row")).to_contain_text("Wait for it")
    gateway.release("rest")
    await page.go_back()
    turn = await finished(page.locator(".turn"))
    await expect(turn.locator(".prose")).to_have_text("First half. Second half.")
    assert not any(path.endswith("/cancel") for _, path, _, _ in gateway.requests)
