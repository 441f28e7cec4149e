"""The search_web tool: the public web, by the provider that the operator configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.chassis.canonical import canonical_json
from services.chassis.identity import Principal
from services.orchestrator.domain.messages import ToolSpec
from services.orchestrator.tools.library import LibraryRefused, Web
from services.orchestrator.tools.ports import Consent, Effect, ToolContext, ToolDefinition, ToolResult

RESULTS = 6
_PARAMETERS = canonical_json(
    {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": 500,
                "description": "Key words. They leave the organisation: put nothing confidential into them.",
            }
        },
        "required": ["query"],
        "additionalProperties": False,
    }
)


class SearchWebTool:
    """Searches the web; results are numbered evidence of kind web."""

    definition = ToolDefinition(
        spec=ToolSpec(
            name="search_web",
            description=(
                "Search the public web. Returns numbered excerpts to cite. Prefer the organisation's documents for its "
                "own matters."
            ),
            parameters_json=_PARAMETERS,
        ),
        title="Search the web",
        effect=Effect.READ,
        consent=Consent.ALLOW,
    )

    def __init__(self, web: Web) -> None:
        self._web = web

    async def withheld(self, principal: Principal) -> str:
        """Without a provider the tool does not exist."""
        del principal
        access = await self._web.access()
        return access.problem if access.problem or access.searches else "no web search is configured"

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return what the web holds on `query`."""
        query = arguments["query"]
        try:
            found = await self._web.search(context.principal, query, RESULTS)
        except LibraryRefused as error:
            return ToolResult(text=f"The web could not be searched: {error}", failed=True)
        if not found:
            nothing = ("no_results", f"The web search for “{query[:120]}” found nothing.")
            return ToolResult(text="The web search found nothing. Try other words.", notices=(nothing,))
        return ToolResult(text="", findings=found)
