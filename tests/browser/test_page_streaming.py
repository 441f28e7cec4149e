"""Text that grows piece by piece ends as the whole text would, and costs little."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

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
