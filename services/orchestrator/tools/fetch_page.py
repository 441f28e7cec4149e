"""The fetch_page tool: a public page that somebody named.

A page may tell the model to "fetch" an address into which it writes what it knows. Therefore only addresses are fetched
that stand, as they are, in what the user wrote or a tool returned.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any
from urllib.parse import urldefrag

from services.chassis.canonical import canonical_json
from services.chassis.identity import Principal
from services.orchestrator.domain.messages import ToolSpec
from services.orchestrator.tools.library import LibraryRefused, Web
from services.orchestrator.tools.ports import Consent, Effect, ToolContext, ToolDefinition, ToolResult

CHARACTERS = 20_000
_PARAMETERS = canonical_json(
    {
        "type": "object",
        "properties": {
            "url": {
                "type": "string",
                "pattern": "^https?://",
                "maxLength": 2048,
                "description": "An address as the user or a result gave it; never one that you made up or changed.",
            }
        },
        "required": ["url"],
        "additionalProperties": False,
    }
)


class FetchPageTool:
    """Fetches a page as numbered evidence of kind web."""

    definition = ToolDefinition(
        spec=ToolSpec(
            name="fetch_page",
            description="Read a public web page whose address the user or a result gave; returns numbered text.",
            parameters_json=_PARAMETERS,
        ),
        title="Read a web page",
        effect=Effect.READ,
        consent=Consent.ALLOW,
    )

    def __init__(self, web: Web) -> None:
        self._web = web

    async def withheld(self, principal: Principal) -> str:
        """Where fetching is off the tool does not exist."""
        del principal
        access = await self._web.access()
        return access.problem if access.problem or access.fetches else "fetching pages is off"

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return the page's text."""
        # Results show addresses as attributes, where & is written &amp;.
        url = urldefrag(html.unescape(arguments["url"])).url
        if not context.mentioned(url.rstrip("/")):
            return ToolResult(
                text=(
                    f"'{url}' stands neither in what the user wrote nor in a result, so it was not fetched. Use an "
                    "address as it was given, search for one, or ask the user."
                ),
                failed=True,
            )
        try:
            page = await self._web.fetch(context.principal, url, CHARACTERS)
        except LibraryRefused as error:
            return ToolResult(text=f"The page was not fetched: {error}", failed=True)
        cut = f"The page is longer; its first {CHARACTERS:,} characters are shown." if page.truncated else ""
        moved = f"The page is now at {page.url}." if page.url.rstrip("/") != url.rstrip("/") else ""
        return ToolResult(text=" ".join(part for part in (moved, cut) if part), findings=(page.finding,))
