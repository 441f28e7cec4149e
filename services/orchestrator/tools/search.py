"""The search tool: the model looks into the agent's sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.chassis.canonical import canonical_json
from services.orchestrator.domain.messages import ToolSpec
from services.orchestrator.ports import Retrieval
from services.orchestrator.tools.ports import Consent, Effect, ToolContext, ToolDefinition, ToolResult

_PARAMETERS = canonical_json(
    {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": 2000,
                "description": "What to look for: a question or key words, in the language of the documents if known.",
            },
            "path": {
                "type": "string",
                "maxLength": 1024,
                "description": "Only documents whose path fits, such as policies/*.pdf; left out: all. Case matters.",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    }
)

SOURCE_FAILED = "source_failed"
NOT_SEARCHED = "Say that they could not be searched; what they hold is not known."


class SearchTool:
    """Searches the run's sources and returns numbered evidence."""

    definition = ToolDefinition(
        spec=ToolSpec(
            name="search",
            description=(
                "Search the organisation's documents. Returns numbered passages to cite. Search again with other words "
                "when nothing useful comes back."
            ),
            parameters_json=_PARAMETERS,
        ),
        title="Search documents",
        effect=Effect.READ,
        consent=Consent.ALLOW,
    )

    def __init__(self, retrieval: Retrieval) -> None:
        self._retrieval = retrieval

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return what the sources hold on `query`."""
        result = await self._retrieval.search(
            context.principal,
            arguments["query"],
            sources=context.sources,
            history=context.questions[-6:],
            how=context.searching,
            path=arguments.get("path", ""),
        )
        notices = tuple((notice.code, notice.text) for notice in result.notices)
        if not result.findings and (broken := [n.text for n in result.notices if n.code == SOURCE_FAILED]):
            # Nothing found would be a statement about the documents, which nobody has looked into.
            return ToolResult(text=" ".join((*broken, NOT_SEARCHED)), notices=notices, failed=True)
        if not result.findings:
            nothing = ("no_results", f"The search for “{arguments['query'][:120]}” found nothing.")
            return ToolResult(
                text="The search found nothing that fits. Try other words, or say that the documents do not answer it.",
                notices=(*notices, nothing),
            )
        return ToolResult(text="", findings=result.findings, notices=notices)
