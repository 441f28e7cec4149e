"""Model output, titles, names and documents are hostile; nothing of them runs."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from tests.support import page_scripts
from tests.support.fake_gateway import FakeGateway
from tests.support.page_actions import ask, finished

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def unharmed(page: Page) -> None:
    """Nothing hostile ran, and nothing executable stands in the page."""
    assert await page.evaluate("window.hacked") is None
    own = "form:not(.composer, .slip form, .agent-form), svg:not(.icon)"
    bad = f"main :is(script, iframe, object, embed, style, base, meta, link, {own})"
    assert await page.locator(bad).count() == 0
    assert await page.locator("main img:not([src^='blob:'])").count() == 0
    attributes = "() => [...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
    assert not any(name.lower().startswith("on") for name in await page.evaluate(attributes))
    links = await page.eval_on_selector_all("main a", "links => links.map(link => link.protocol)")
    assert set(links) <= {"http:", "https:", "mailto:"}


async def test_hostile_text_everywhere_stays_text(page: Page, gateway: FakeGateway) -> None:
    turn = await finished(await ask(page, "Hostile <img src=x onerror='window.hacked=20'>"))
    await expect(turn.locator(".question")).to_contain_text("<img src=x")
    await expect(turn.locator(".prose")).to_contain_text("<img src=x onerror=")
    await turn.locator(".steps > summary").click()
    for summary in await turn.locator(".row summary").all():
        await summary.click()
    await turn.locator("button.cite:not(.unknown)").first.click()
    await expect(turn.locator(".prose .passage")).to_be_visible()
    await unharmed(page)
    await page.goto(f"{gateway.url}/runs/run-1")
    for summary in await page.locator("summary").all():
        await summary.click()
    await unharmed(page)
    await page.goto(f"{gateway.url}/runs")
    await expect(page.locator(".run-row")).to_contain_text("<img src=x")
    await unharmed(page)


async def test_hostile_source_and_document_names_stay_text(page: Page, gateway: FakeGateway) -> None:
    bad = '<img src=x onerror="window.hacked=30">'
    gateway.sources.append({"source_id": "s2", "name": bad, "description": bad, "documents": 1, "passages": 1})
    gateway.documents["s2"] = [{"document_id": "d", "path": bad, "title": bad, "state": bad, "reason": bad}]
    await page.goto(f"{gateway.url}/sources")
    await expect(page.locator(".source").nth(1)).to_contain_text(bad)
    await unharmed(page)
    await page.goto(gateway.url)
    await expect(page.locator(".greeting")).to_contain_text(bad)
    await unharmed(page)


async def test_hostile_agents_routes_steps_tools_and_people_stay_text(page: Page, gateway: FakeGateway) -> None:
    bad = page_scripts.BAD
    gateway.agents, gateway.models = [{"agent_id": bad, "name": bad}], [bad]
    gateway.titles["conv-run-1"] = bad
    gateway.rules = [{"rule_id": "r", "tool": bad, "when": bad, "conversation_id": bad}]
    gateway.quotas = [{"scope": "QUOTA_SCOPE_USER", "subject": bad, "runs": 1, "used": {"runs": bad}}]
    gateway.me |= {"user": bad, "trace_url": f"https://x.example/{bad}{{trace_id}}"}
    await page.reload()
    turn = await ask(page, "Hostile steps")
    await expect(page.locator(".slip")).to_have_count(2)
    await expect(page.locator(".slip h3").last).to_contain_text(bad)
    for summary in await turn.locator("summary").all():
        await summary.evaluate("element => { element.parentElement.open = true; }")
    await expect(turn.locator(".row-step")).to_contain_text(bad)
    await page.locator(".slip").last.get_by_role("button", name="Edit").click()
    await unharmed(page)
    for path, shown in (("/approvals", ".slip"), ("/usage", ".quota-list")):
        await page.goto(gateway.url + path)
        await expect(page.locator(shown).first).to_contain_text("<img src=x")
        await unharmed(page)
    await page.goto(f"{gateway.url}/approvals")
    await page.get_by_role("button", name="Decided").click()
    await page.locator(".record summary").click()
    await expect(page.locator(".record .origin")).to_contain_text(bad)
    await expect(page.locator(".rule-list")).to_contain_text(bad)
    await unharmed(page)
    gateway.release("hostile")
    await page.goto(f"{gateway.url}/runs/run-1")
    await expect(page.locator(".page-head .trouble")).to_contain_text(bad)
    for summary in await page.locator("summary").all():
        await summary.click()
    await unharmed(page)
    await page.goto(f"{gateway.url}/c/conv-run-1")
    await finished(page.locator(".turn"), "failed")
    await expect(page.locator(".conversation-list")).to_contain_text(bad)
    await unharmed(page)


async def test_hostile_agents_workflows_prompts_and_memories_stay_text(page: Page, gateway: FakeGateway) -> None:
    bad = page_scripts.BAD
    words = dict.fromkeys(("name", "description", "model", "prompt", "owner", "language", "workflow_yaml"), bad)
    bindings = {"sources": [{"source": bad, "exposure": bad}], "tools": [{"tool": bad, "when": bad, "policy": bad}]}
    agent = {"agent_id": "a1", "type": "AGENT_TYPE_WORKFLOW", "version": 1, **words, **bindings}
    gateway.agents = [agent, {**agent, "agent_id": "a2", "prompt_name": bad, "read_only": True}]
    gateway.prompts = [
        {"prompt_id": "p1", "name": bad, "description": bad, "template": bad, "owner": bad, "version": 1}
    ]
    gateway.memories = [{"memory_id": "m1", "text": bad, "run_id": bad}]
    for path, shown in (("/agents", ".agent-row"), ("/agents/a1", "pre.sheet"), ("/memories", ".memories li")):
        await page.goto(gateway.url + path)
        await expect(page.locator(shown).first).to_contain_text(bad)
        await unharmed(page)
    await page.goto(f"{gateway.url}/agents")
    await page.get_by_role("button", name="Edit").click()
    await expect(page.get_by_role("dialog").locator("textarea")).to_have_value(bad)
    await unharmed(page)
    await page.goto(f"{gateway.url}/agents/a1")
    await page.get_by_role("button", name="Edit").click()
    await expect(page.locator(".agent-form").get_by_label("Name")).to_have_value(bad)
    await unharmed(page)


async def test_the_policy_refuses_html_strings(browser: Browser, gateway: FakeGateway) -> None:
    page = await browser.new_page()  # not the fixture: the browser's complaint is wanted here
    await page.goto(gateway.url)
    verdict = await page.evaluate(
        """() => {
          try { document.createElement("div").innerHTML = "<b>x</b>"; return "html strings are accepted"; }
          catch (error) { return error.name; }
        }"""
    )
    await page.close()
    assert verdict == "TypeError"
