"""The list_files tool: which documents there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.chassis.canonical import canonical_json
from services.orchestrator.domain.messages import ToolSpec
from services.orchestrator.tools.library import Library, LibraryRefused, Listed
from services.orchestrator.tools.ports import Consent, Effect, ToolContext, ToolDefinition, ToolResult

_PARAMETERS = canonical_json(
    {
        "type": "object",
        "properties": {
            "pattern": {
                "type": "string",
                "maxLength": 1024,
                "description": "Only paths that fit, such as *2025*.pdf; left out: all. Case matters.",
            },
            "page_token": {"type": "string", "maxLength": 512, "description": "As the listing before gave it."},
        },
        "additionalProperties": False,
    }
)


class ListFilesTool:
    """Lists the documents of the run's sources, a page at a time. Names are no evidence and get no number."""

    definition = ToolDefinition(
        spec=ToolSpec(
            name="list_files",
            description=(
                "List the organisation's documents by path, with title and size. To find what they say, search instead."
            ),
            parameters_json=_PARAMETERS,
        ),
        title="List documents",
        effect=Effect.READ,
        consent=Consent.ALLOW,
    )

    def __init__(self, library: Library) -> None:
        self._library = library

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return one line a document, and the token of the next page."""
        pattern, token = arguments.get("pattern", ""), arguments.get("page_token", "")
        try:
            listing = await self._library.list(context.principal, context.sources, glob=pattern, token=token)
        except LibraryRefused as error:
            return ToolResult(text=f"The documents cannot be listed: {error}", failed=True)
        if not listing.documents:
            told = f"No document has a path like '{pattern}'." if pattern else "There are no documents."
            return ToolResult(text=told)
        lines = [_line(document) for document in listing.documents]
        if listing.next_token:
            lines.append(f"There are more: call again with page_token {listing.next_token}")
        return ToolResult(text="\n".join(lines))


def _line(document: Listed) -> str:
    about = [f"{document.size:,} bytes", f"{document.passages} passages"]
    if document.title and document.title != document.path:
        about.insert(0, f"“{document.title}”")
    if document.state == "failed":
        about.append(f"not readable: {document.reason}")
    elif document.state not in ("done", "embedding"):
        about.append("being read in")
    return f"- {document.path} (source {document.source}, id {document.document_id}): {', '.join(about)}"
