"""Text that grows piece by piece ends as the whole text would, and costs little."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.support.fake_gateway import FakeGateway
from tests.support.fake_run import FakeRun
from tests.support.page_actions import ask

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRICKY = (
    "# Title\n\nA paragraph with **bold\nwords** and [1].\nSetext\n===\n\n- one\n- two\n\n  still two\n\n1. first\n\n"
    "   ```python\n   x = 1\n   ```\n2. second\n\n> quote\nlazy line\n\n"
    "| a | b |\n|---|:-:|\n| 1 | 2 |\n\n$$\nx^2\n$$\n\n"
    "```\ncode\n\nmore\n```\n    not code\n\n    indented code\n\n***\nLast [2](https://a.example) line【3】\n"
)
GROW = """async ({ text, size }) => {
  const { MarkdownView } = await import("/assets/js/render/markdown.js");
  const grown = document.createElement("div");
  const view = new MarkdownView(grown, () => {});
  for (let end = size; end < text.length + size; end += size) view.update(text.slice(0, end));
  const whole = document.createElement("div");
  new MarkdownView(whole, () => {}).update(text);
  return [grown.innerHTML, whole.innerHTML];
}"""
WORK = """async text => {
  const { MarkdownView } = await import("/assets/js/render/markdown.js");
  const made = [];
  const view = new MarkdownView(document.createElement("div"), node => made.push(node));
  for (let end = 10; end < text.length + 10; end += 10) view.update(text.slice(0, end));
  return made.length;
}"""


@pytest.mark.parametrize("size", [1, 3, 17])
async def test_growing_text_ends_as_the_whole_text_would(page: Page, size: int) -> None:
    grown, whole = await page.evaluate(GROW, {"text": TRICKY, "size": size})
    assert grown == whole


async def test_finished_blocks_are_not_rendered_again(page: Page) -> None:
    paragraphs = 200
    text = "\n\n".join("Twenty characters ok" for _ in range(paragraphs))
    assert await page.evaluate(WORK, text) <= 4 * paragraphs


async def test_text_that_is_replaced_is_read_anew(page: Page) -> None:
    script = """async () => {
      const { MarkdownView } = await import("/assets/js/render/markdown.js");
      const element = document.createElement("div");
      const view = new MarkdownView(element, () => {});
      return ["a\\n\\nb\\n\\nc\\n\\nd", "x\\n\\ny", ""].map(text => {
        view.update(text);
        return element.textContent.replace(/\\s+/g, "");
      });
    }"""
    assert await page.evaluate(script) == ["abcd", "xy", ""]


async def test_a_step_folds_when_it_ends_unless_the_reader_opened_it(page: Page, gateway: FakeGateway) -> None:
    def steps(run: FakeRun) -> None:
        for step in ("one", "two"):
            run.emit("step_started", step_id=step, title=f"Step {step}", kind="agent")
            run.emit("answer_delta", step_id=step, text=f"Words of {step}.", model_call_id=step)
        for step in ("one", "two"):
            run.wait_for(step)
            run.emit("step_finished", step_id=step, duration="1s")
        run.wait_for("end")
        run.emit("run_completed", text="Done.", message_id="m")

    gateway.scripts["Steps"] = steps
    turn = await ask(page, "Steps please")
    one, two = (turn.locator(".row-step", has_text=f"Step {name}") for name in ("one", "two"))
    await expect(one.locator(".remark")).to_be_visible()
    gateway.release("one")
    await expect(one.locator(".remark")).to_be_hidden()
    await expect(two.locator(".remark")).to_be_visible()
    await one.locator("summary").click()
    gateway.release("two")
    await expect(two.locator(".remark")).to_be_hidden()
    await expect(one.locator(".remark")).to_be_visible()
    gateway.release("end")
