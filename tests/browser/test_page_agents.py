"""Agents on the page, over the real services: made, refused by field, changed, asked, deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.browser.conftest import OpenPage
from tests.browser.test_page_places import CONTRAST, NAMELESS
from tests.support.page_actions import ask, finished
from tests.support.suite import Suite, suite

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def running() -> AsyncIterator[Suite]:
    """The suite with the keyless reader and an empty source."""
    services = ("approval", "retrieval", "orchestrator")
    async with suite(services=services, PROCTOR_ORCHESTRATOR_MODEL_NETWORKS="127.0.0.0/8") as started:
        (await started.http.post("/v1/sources", json={"name": "handbook"})).raise_for_status()
        yield started


async def test_an_agent_is_made_mended_changed_and_asked(open_page: OpenPage, running: Suite) -> None:
    page = await open_page(f"{running.base_url}/agents")
    await page.get_by_role("link", name="New agent").click()
    form = page.locator(".agent-form")
    await form.get_by_label("Name").fill("help desk")
    await form.get_by_label("Prompt", exact=True).fill("{{ nope }}")
    await form.get_by_role("button", name="Add a source").click()
    await form.get_by_label("Source").select_option("handbook")
    await form.get_by_role("button", name="Add a tool").click()
    await form.get_by_label("Tool", exact=True).fill("serch")
    await form.get_by_role("button", name="Save").click()
    # What is wrong stands at its field, the first one has the focus, and nothing was kept.
    await expect(form.locator(".wrong", has_text="unknown variables ['nope']")).to_be_visible()
    await expect(form.locator(".binding-tools .wrong")).to_contain_text("there is no tool 'serch'")
    await expect(form.locator("[aria-invalid=true]")).to_have_count(2)
    await form.get_by_label("Prompt", exact=True).fill("You are {{ agent }}.")
    await form.get_by_label("Tool", exact=True).fill("run_code")
    await form.get_by_label("Policy").select_option("deny")
    await form.get_by_role("button", name="Check").click()
    await expect(form.locator(".form-good")).to_have_text("Nothing is wrong with it.")
    await form.get_by_role("button", name="Save").click()

    await expect(page.get_by_role("heading", name="help desk")).to_be_visible()
    await expect(page.locator(".marks")).to_contain_text("version 1")
    await expect(page.locator("main")).to_contain_text("never runs")
    assert await page.evaluate(CONTRAST) == []
    assert await page.evaluate(NAMELESS) == []
    await page.get_by_role("button", name="Edit").click()
    await page.locator(".agent-form").get_by_label("Description").fill("Answers what is in the handbook.")
    assert await page.evaluate(NAMELESS) == []
    await page.locator(".agent-form").get_by_role("button", name="Save").click()
    await expect(page.locator(".marks")).to_contain_text("version 2")
    await page.get_by_role("button", name="version 1").click()
    await expect(page.locator("main")).not_to_contain_text("Answers what is in the handbook.")

    await page.get_by_role("button", name="Ask", exact=True).click()
    turn = await finished(await ask(page, "What is the mileage rate?"))
    await turn.get_by_role("link", name="How it ran").click()
    await expect(page.locator("main")).to_contain_text("help desk")
    (run,) = (await running.http.get("/v1/runs")).json()["runs"]
    assert (run["agent_name"], run["agent_version"]) == ("help desk", 2)


async def test_the_operators_are_shown_and_prompts_kept_in_chinese_and_dark(
    open_page: OpenPage, running: Suite
) -> None:
    page = await open_page(f"{running.base_url}/agents", width=390, height=800, locale="zh-CN", color_scheme="dark")
    await page.get_by_role("button", name="新建提示词").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("名称").fill("礼貌")
    await dialog.get_by_label("提示词", exact=True).fill("{% if %}")
    await dialog.get_by_role("button", name="保存").click()
    await expect(dialog.locator(".wrong-text")).to_contain_text("not a valid template")
    await dialog.get_by_label("提示词", exact=True).fill("请对 {{ user }} 保持礼貌。")
    await dialog.get_by_role("button", name="保存").click()
    await expect(page.locator(".prompts").first).to_contain_text("礼貌")
    await page.get_by_role("link", name="assistant").click()
    await expect(page.locator(".marks")).to_contain_text("由运营者设置，只读")
    await expect(page.get_by_role("button", name="编辑")).to_have_count(0)
    await page.get_by_role("button", name="复制", exact=True).click()
    form = page.locator(".agent-form")
    await form.get_by_label("使用哪个提示词").select_option("礼貌")
    await expect(form.get_by_label("提示词", exact=True)).to_be_hidden()
    await form.get_by_role("button", name="保存").click()
    await expect(page.get_by_role("heading", name="assistant 副本")).to_be_visible()
    await expect(page.locator("main")).to_contain_text("提示词“礼貌”，版本 最新")
    assert await page.evaluate(CONTRAST) == []
    overflow = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0
    await page.get_by_role("button", name="删除").click()
    await page.get_by_role("dialog").get_by_role("button", name="删除").click()
    await expect(page.locator(".agent-row")).not_to_contain_text(["assistant 副本"])


async def test_a_model_of_ones_own_is_kept_and_its_key_never_shown(open_page: OpenPage, running: Suite) -> None:
    page = await open_page(f"{running.base_url}/agents")
    await page.get_by_role("button", name="New model").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name", exact=True).fill("mine")
    await dialog.get_by_label("Address, ending in /v1").fill("https://10.0.0.1/v1")
    await dialog.get_by_label("Key", exact=True).fill("sk-secret")
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("leads to a private network")
    await dialog.get_by_label("Address, ending in /v1").fill("https://127.0.0.1:9/v1")
    await dialog.get_by_label("sees pictures").check()
    await dialog.get_by_role("button", name="Save").click()
    row = page.locator(".panel li", has_text="mine")
    await expect(row).to_contain_text("https://127.0.0.1:9/v1 · mine · key stored")
    assert "sk-secret" not in await page.content()
    await row.get_by_role("button", name="Edit: mine").click()
    await expect(dialog.get_by_label("sees pictures")).to_be_checked()
    await expect(dialog.get_by_label("Key", exact=True)).to_have_value("")
    await dialog.get_by_label("Window in tokens").fill("32000")
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog).to_have_count(0)
    (kept,) = (await running.http.get("/v1/models/own")).json()["models"]
    assert (kept["window"], kept["has_key"], "vision" in kept["capabilities"]) == (32000, True, True)
    assert await page.evaluate(CONTRAST) == []
    assert await page.evaluate(NAMELESS) == []
    await row.get_by_role("button", name="Delete: mine").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(row).to_have_count(0)
