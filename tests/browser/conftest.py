"""A real Chromium for the page's tests, and the fake gateway it talks to."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

from tests.support import page_scripts
from tests.support.fake_gateway import FakeGateway

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip
OpenPage = Callable[..., Awaitable[Page]]
expect.set_options(timeout=10_000)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Debian's Chromium, once for all tests."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield chromium
        await chromium.close()


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    """The fake gateway, serving, with every script."""
    fake = FakeGateway()
    page_scripts.install(fake)
    with fake.serve():
        yield fake


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(browser: Browser) -> AsyncIterator[OpenPage]:
    """Open pages in contexts of their own; a script error or a breach of the content security policy fails the test."""
    complaints: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        # A refused or broken request is the page's business to handle; the browser logs it all the same.
        if message.type == "error" and "Failed to load resource" not in message.text and "net::ERR" not in message.text:
            complaints.append(message.text)

    async with AsyncExitStack() as stack:

        async def open_at(url: str, width: int = 1280, height: int = 860, **options: object) -> Page:
            settings = {"locale": "en-GB", "viewport": {"width": width, "height": height}, **options}
            context = await browser.new_context(**settings)  # type: ignore[arg-type]
            stack.push_async_callback(context.close)
            page = await context.new_page()
            page.on("console", hear)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            await page.goto(url)
            return page

        yield open_at
    assert complaints == []


@pytest_asyncio.fixture(loop_scope="session")
async def page(open_page: OpenPage, gateway: FakeGateway) -> Page:
    """The page at `/` of the fake gateway."""
    return await open_page(gateway.url)
