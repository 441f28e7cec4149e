"""Around the conversation: sidebar, run pages, documents, languages, themes, sizes, names for screen readers."""

from __future__ import annotations

from datetime import datetime

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.conftest import OpenPage
from tests.support.fake_gateway import FakeGateway
from tests.support.page_actions import ask, finished

pytestmark = pytest.mark.asyncio(loop_scope="session")

DROP = """names => {
  const data = new DataTransfer();
  for (const name of names) data.items.add(new File(["text"], name));
  for (const kind of ["dragenter", "dragover", "drop"])
    document.body.dispatchEvent(new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: data }));
}"""
CONTRAST = """() => {
  const rgb = text => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const channel = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const solid = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = rgb(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.9) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim();
    if (!text || !element.checkVisibility() || element.closest(":disabled, .visually-hidden, .skip")) continue;
    const style = getComputedStyle(element);
    const [a, b] = [luminance(rgb(style.color)), luminance(solid(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const enough = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
    if (ratio < enough) poor.push(`${ratio.toFixed(2)} ${element.className || element.localName}: ${text.slice(0, 9)}`);
  }
  return poor;
}"""
NAMELESS = """() => [...document.querySelectorAll("button, a[href], input, select, textarea, summary")]
  .filter(e => e.checkVisibility() && !e.closest("[aria-hidden=true]"))
  .filter(e => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.[0]?.textContent.trim()))
  .map(e => e.outerHTML.slice(0, 120))"""


async def test_conversations_are_renamed_and_deleted(page: Page, gateway: FakeGateway) -> None:
    await finished(await ask(page, "Count"))
    row = page.locator(".conversation-list li").first
    await expect(row).to_contain_text("Count")
    await row.hover()
    await row.get_by_role("button", name="Rename: Count").click()
    await page.get_by_role("dialog").get_by_label("New title").fill("Numbers")
    await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await expect(row).to_contain_text("Numbers")
    await row.hover()
    await row.get_by_role("button", name="Delete: Numbers").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.locator(".conversation-list")).to_contain_text("Nothing asked yet.")
    assert gateway.deleted == {"conv-run-1"}


async def test_conversations_are_found_by_what_was_said(page: Page, gateway: FakeGateway) -> None:
    for number in range(8):
        gateway.start_run({"request_id": f"r{number}", "input": "Count" if number else "What is the per diem"})
    await page.goto(gateway.url)
    rows = page.locator(".conversation-list li")
    await expect(rows).to_have_count(8)
    search = page.get_by_label("Search conversations")
    await search.fill("breakfast takes")
    await expect(rows).to_have_text(["What is the per diem"])
    await search.fill("nobody said this")
    await expect(rows).to_have_text(["Nothing found."])
    await search.fill("")
    await expect(rows).to_have_count(8)


async def test_a_server_without_conversations_lists_them_from_its_runs(
    open_page: OpenPage, gateway: FakeGateway
) -> None:
    gateway.keeps_conversations = False
    page = await open_page(gateway.url)
    await finished(await ask(page, "Count"))
    await page.goto(gateway.url)
    await page.locator(".conversation-list").get_by_role("link", name="Count").click()
    await finished(page.locator(".turn"))


async def test_the_run_page_tells_the_whole_run(page: Page, gateway: FakeGateway) -> None:
    turn = await finished(await ask(page, "What is the per diem"))
    await turn.get_by_role("link", name="How it ran").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("What is the per diem")
    await expect(page.locator(".waterfall li")).to_have_count(2)
    await expect(page.locator(".waterfall li").first).to_contain_text("first token 0.42 s")
    await expect(page.locator(".time-table .is-state").last).to_have_text("completed")
    await expect(page.locator(".panel", has_text="Tools").locator(".record")).to_contain_text("search")
    await page.locator(".record", has_text="Rates by city").locator("summary").click()
    await expect(page.locator(".passage")).to_contain_text("Singapore")
    await page.get_by_text("66 events").click()
    await expect(page.locator(".raw > li")).to_have_count(66)
    await page.reload()
    await expect(page.locator(".waterfall li")).to_have_count(2)


async def test_an_unknown_run_says_so(page: Page, gateway: FakeGateway) -> None:
    await page.goto(f"{gateway.url}/runs/nothing")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("does not exist")


async def test_dropped_files_show_progress_and_their_own_errors(page: Page, gateway: FakeGateway) -> None:
    await page.get_by_role("link", name="Documents", exact=True).click()
    await page.evaluate(DROP, ["rules.md", "virus.exe"])
    panel = page.get_by_role("region", name="Uploads")
    await expect(panel.locator("li", has_text="rules.md")).to_contain_text("searchable · 4 passages")
    await expect(panel.locator("li", has_text="virus.exe")).to_contain_text("not added: this type is not supported")
    await expect(page.locator(".listing")).to_contain_text("rules.md")
    assert [document["path"] for document in gateway.documents["s1"]] == ["rules.md"]


async def test_files_dropped_where_there_is_no_source_make_one(open_page: OpenPage, gateway: FakeGateway) -> None:
    gateway.sources.clear()
    page = await open_page(gateway.url)
    await page.evaluate(DROP, ["rules.md"])
    await expect(page.locator(".upload-state")).to_contain_text("searchable")
    assert [source["name"] for source in gateway.sources] == ["documents"]


async def test_language_and_theme_are_chosen_and_remembered(page: Page) -> None:
    await page.get_by_label("Language").select_option("zh")
    await expect(page.get_by_role("link", name="文档", exact=True)).to_be_visible()
    await expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    await page.get_by_role("button", name="主题：跟随系统").click()
    await page.get_by_role("button", name="主题：浅色").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await page.reload()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await expect(page.get_by_role("link", name="文档", exact=True)).to_be_visible()


async def test_a_browser_that_prefers_chinese_gets_chinese(open_page: OpenPage, gateway: FakeGateway) -> None:
    page = await open_page(gateway.url, locale="zh-CN")
    await expect(page.locator(".greeting")).to_contain_text("想了解什么")
    await expect(page.locator(".example").first).to_contain_text("苏州")


@pytest.mark.parametrize("width", [390, 1280, 1920])
async def test_no_page_is_wider_than_its_window(open_page: OpenPage, gateway: FakeGateway, width: int) -> None:
    page = await open_page(gateway.url, width=width)
    await finished(await ask(page, "What is the per diem"))
    await page.locator("button.cite").first.click()
    turn = await ask(page, "/python " + "x = 1; " * 60)
    await expect(page.locator(".slip")).to_be_visible()
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert await page.evaluate(wide) == 0
    await page.locator(".slip .allow").click()
    await finished(turn)
    assert await page.evaluate(wide) == 0
    for path in ("/runs", "/runs/run-1", "/runs/run-2", "/approvals", "/sources", "/usage"):
        await page.goto(gateway.url + path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert await page.evaluate(wide) == 0, path


async def test_every_control_has_a_name(page: Page, gateway: FakeGateway) -> None:
    await finished(await ask(page, "What is the per diem"))
    await ask(page, "/python print(1)")
    await expect(page.locator(".slip")).to_be_visible()
    assert await page.evaluate(NAMELESS) == []
    for path in ("/runs", "/runs/run-1", "/approvals", "/sources", "/usage"):
        await page.goto(gateway.url + path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert await page.evaluate(NAMELESS) == [], path


async def test_the_keyboard_reaches_content_menu_and_decision(open_page: OpenPage, gateway: FakeGateway) -> None:
    page = await open_page(gateway.url, width=390, height=844)
    await page.get_by_role("button", name="Menu").press("Enter")
    await expect(page.get_by_role("link", name="Runs")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("link", name="Runs")).to_be_hidden()
    await expect(page.get_by_role("button", name="Menu")).to_be_focused()
    await ask(page, "/python print(1)")
    await expect(page.locator(".slip")).to_be_visible()
    await page.get_by_role("button", name="Allow once").press("Enter")
    await finished(page.locator(".turn"))
    await expect(page.get_by_role("textbox", name="Your question")).to_be_focused()


async def test_screen_readers_hear_what_matters(page: Page) -> None:
    turn = await ask(page, "/python print(1)")
    voice = page.get_by_role("log")
    await expect(voice).to_contain_text("A decision is needed: run_code")
    await page.get_by_role("button", name="Allow once").click()
    await finished(turn)
    await expect(voice).to_contain_text("The answer is complete.")


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_text_stands_out_from_its_ground(open_page: OpenPage, gateway: FakeGateway, theme: str) -> None:
    page = await open_page(gateway.url, color_scheme=theme)
    await expect(page.locator(".greeting")).to_be_visible()
    assert await page.evaluate(CONTRAST) == []
    turn = await finished(await ask(page, "What is the per diem"))
    await turn.locator("button.cite").first.click()
    await turn.locator(".steps > summary").click()
    await ask(page, "/python print(1)")
    await expect(page.locator(".slip .hljs-built_in").first).to_be_visible()
    await page.locator(".passage").evaluate("e => Promise.all(e.getAnimations().map(a => a.finished))")
    assert await page.evaluate(CONTRAST) == []
    for path in ("/runs", "/runs/run-1", "/approvals", "/sources", "/usage"):
        await page.goto(gateway.url + path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert await page.evaluate(CONTRAST) == [], path


async def test_writing_below_does_not_move_what_is_read_above(page: Page) -> None:
    await finished(await ask(page, "What is the per diem"))
    turn = await ask(page, "/python print(1)")
    await page.locator(".slip").get_by_role("button", name="Edit").click()
    await page.locator(".slip textarea").press_sequentially("x = 1")
    await expect(turn.locator(".question")).to_be_in_viewport()
    await page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
    await page.get_by_role("textbox", name="Your question").press_sequentially("and then?")
    assert await page.evaluate("scrollY") == 0


async def test_usage_is_summed_over_the_runs(page: Page, gateway: FakeGateway) -> None:
    await finished(await ask(page, "Count"))
    await finished(await ask(page, "Fail please"), "failed")
    await page.get_by_role("link", name="Usage").click()
    await expect(page.locator(".totals")).to_contain_text("1,624")
    await expect(page.locator(".day-chart li")).to_have_count(30)
    await expect(page.locator(".day-chart li").last).to_contain_text("1,624 in, 192 out")
    await expect(page.locator(".bar-list").first).to_contain_text("reader")


async def test_a_run_of_steps_tells_route_plan_and_what_each_step_did(page: Page, gateway: FakeGateway) -> None:
    turn = await finished(await ask(page, "Compare London and Zurich"))
    await turn.locator(".steps > summary").click()
    route = turn.locator(".row", has_text="Routed to agent")
    await route.locator("summary").click()
    await expect(route.locator(".bar-list li").first).to_contain_text("agent0.91")
    await expect(turn.locator(".row-plan")).to_contain_text("Rates in Zurich")
    step = turn.locator(".row-step", has_text="Rates in London")
    await step.locator("summary").first.click()
    await expect(step).to_contain_text("Found: Rates in London.")
    await turn.get_by_role("link", name="How it ran").click()
    router = page.locator(".panel", has=page.get_by_role("heading", name="Router"))
    await expect(router.locator("li")).to_have_text(["agent0.91", "off_topic0.07", "small_talk0.02"])
    await expect(router.locator(".chosen")).to_have_text("agent0.91")
    await expect(router).to_contain_text("0.91 is above 0.60")
    steps = page.locator(".panel", has=page.get_by_role("heading", name="Steps"))
    await expect(steps).to_contain_text("2 steps planned · simple")
    await steps.locator(".record", has_text="Rates in Zurich").locator("summary").click()
    await expect(steps.locator(".record", has_text="Rates in Zurich")).to_contain_text("1 model call · 2,494 tokens")
    await expect(page.locator(".waterfall li", has_text="Rates in London")).to_have_count(1)
    tagged = page.locator(".time-table tr", has=page.locator(".in-step", has_text="Rates in Zurich"))
    await expect(tagged.first).to_contain_text("tool_call_proposed")


async def test_the_run_page_links_to_the_trace_where_the_operator_says(page: Page, gateway: FakeGateway) -> None:
    gateway.me["trace_url"] = "https://jaeger.example/trace/{trace_id}?x=1"
    turn = await finished(await ask(page, "Count"))
    await turn.get_by_role("link", name="How it ran").click()
    link = page.get_by_role("link", name="4bf92f3577b34da6a3ce929d0e0e4736")
    await expect(link).to_have_attribute("href", "https://jaeger.example/trace/4bf92f3577b34da6a3ce929d0e0e4736?x=1")
    gateway.me["trace_url"] = "javascript:window.hacked={trace_id}"
    await page.reload()
    await expect(page.locator(".facts")).to_contain_text("4bf92f3577b34da6a3ce929d0e0e4736")
    assert await page.locator(".facts a").count() == 0


async def test_quotas_are_seen_by_all_and_set_by_those_who_may(page: Page, gateway: FakeGateway) -> None:
    used = {"runs": 9, "tokens": 120000, "cost_micros": 2_500_000}
    gateway.quotas = [{"scope": "QUOTA_SCOPE_USER", "subject": "", "runs": 10, "tokens": 500000, "used": used}]
    await page.goto(f"{gateway.url}/usage")
    panel = page.locator(".panel", has=page.get_by_role("heading", name="Quotas"))
    await expect(panel.locator("li")).to_contain_text("Each user")
    await expect(panel.locator(".cap").first).to_have_text("Runs9 of 10")
    await expect(panel.locator(".cap").first).to_have_class("cap nearly")
    await panel.get_by_role("button", name="New quota").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Whose use").select_option("A user")
    await dialog.get_by_label("User or key").fill("zoe")
    await dialog.get_by_label("Cost").fill("1.5")
    await dialog.get_by_role("button", name="Save").click()
    await expect(panel.locator("li", has_text="zoe")).to_contain_text("Cost1.5")
    assert gateway.quotas[-1] == {"scope": "QUOTA_SCOPE_USER", "subject": "zoe", "cost_micros": 1_500_000}
    await panel.get_by_role("button", name="Change: Each user").click()
    await expect(dialog.get_by_label("Whose use")).to_be_disabled()
    await dialog.get_by_label("Runs").fill("20")
    await dialog.get_by_role("button", name="Save").click()
    await expect(panel.locator("li", has_text="Each user")).to_contain_text("Runs20")
    assert gateway.quotas[-1] == {"scope": "QUOTA_SCOPE_USER", "subject": "", "runs": 20, "tokens": 500000}
    await panel.get_by_role("button", name="Remove: User zoe").click()
    await dialog.get_by_role("button", name="Delete").click()
    await expect(panel.locator("li")).to_have_count(1)
    async with page.expect_response("**/v1/usage?whole_tenant=true"):
        await page.get_by_label("Everybody in the tenant").check()
    await expect(page.locator(".page-head")).to_contain_text("Everybody's runs")
    gateway.me["scopes"] = ["runs"]
    await page.reload()
    await expect(panel.locator("li")).to_contain_text("Each user")
    await expect(panel.get_by_role("button")).to_have_count(0)
    await expect(page.get_by_label("Everybody in the tenant")).to_be_hidden()


async def test_two_requests_for_one_tool_have_names_of_their_own(page: Page, gateway: FakeGateway) -> None:
    await ask(page, "/python print(1)")
    await expect(page.locator(".slip")).to_have_attribute("aria-label", "May “run_code” run?")
    other = await page.context.new_page()
    await other.goto(gateway.url)
    await ask(other, "/python print(2)")
    await other.goto(f"{gateway.url}/approvals")
    await expect(other.get_by_role("region", name="May “run_code” run? (1 of 2)")).to_be_visible()
    await other.get_by_role("region", name="May “run_code” run? (2 of 2)").get_by_role("button", name="Deny").click()
    await expect(other.locator(".slip")).to_have_count(1)
    await expect(other.locator(".slip")).to_have_attribute("aria-label", "May “run_code” run?")


async def test_a_server_slower_than_the_queue_looks_still_shows_the_queue(page: Page, gateway: FakeGateway) -> None:
    await ask(page, "/python print(1)")
    await expect(page.locator(".slip")).to_be_visible()
    held: list[Route] = []
    await page.clock.install()
    await page.route("**/v1/approvals*", lambda route: held.append(route))  # noqa: PLW0108  # it is given attributes
    await page.goto(f"{gateway.url}/approvals")
    await expect(page.get_by_role("heading", name="Approvals")).to_be_visible()
    await page.clock.run_for(500)
    looks = len(held)
    await page.clock.run_for(5_000)
    assert len(held) == looks  # no second look while the first is under way, which would make its answer an old one
    for route in held:
        await route.continue_()
    await expect(page.locator(".queue .slip")).to_be_visible()


async def test_charts_are_of_tokens_or_of_cost(page: Page, gateway: FakeGateway) -> None:
    today = datetime.now().astimezone().strftime("%Y-%m-%dT00:00:00Z")
    row = {"day": today, "user": "ann", "runs": 1, "input_tokens": 900, "output_tokens": 100}
    gateway.usage = [
        {**row, "model": "cheap", "cost_micros": 20_000},
        {**row, "model": "dear", "input_tokens": 100, "cost_micros": 4_500_000},
    ]
    await page.goto(f"{gateway.url}/usage")
    models = page.locator(".bar-list").first.locator("li")
    await expect(models).to_have_text(["cheap1,000 tokens", "dear200 tokens"])
    await page.get_by_role("button", name="Cost").click()
    await expect(page.get_by_role("button", name="Cost")).to_be_focused()
    await expect(models).to_have_text(["dear4.5", "cheap0.02"])
    await expect(page.locator(".day-chart li").last).to_contain_text("4.52")
