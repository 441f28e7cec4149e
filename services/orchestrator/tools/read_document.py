"""The read_document tool: a document's own words, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.chassis.canonical import canonical_json
from services.orchestrator.domain.messages import ToolSpec
from services.orchestrator.tools.library import Library, LibraryRefused
from services.orchestrator.tools.ports import Consent, Effect, ToolContext, ToolDefinition, ToolResult

CHARACTERS = 12_000
MOST = 30_000
DOCUMENT = {
    "type": "string",
    "minLength": 1,
    "maxLength": 1024,
    "description": "Id, path or title of the document, as list_files or a search result names it.",
}
_PARAMETERS = canonical_json(
    {
        "type": "object",
        "properties": {
            "document": DOCUMENT,
            "offset": {"type": "integer", "minimum": 0, "description": "Where to begin, in characters."},
            "page": {"type": "integer", "minimum": 1, "description": "Page to begin at instead of an offset."},
            "max_characters": {"type": "integer", "minimum": 200, "maximum": MOST, "default": CHARACTERS},
        },
        "required": ["document"],
        "additionalProperties": False,
    }
)


class ReadDocumentTool:
    """Reads a part of a document. Its passages are evidence under the numbers that a search gives them too."""

    definition = ToolDefinition(
        spec=ToolSpec(
            name="read_document",
            description=(
                "Read a document from the start, a page or an offset on, in numbered passages to cite. Use it when a "
                "passage that was found is not enough."
            ),
            parameters_json=_PARAMETERS,
        ),
        title="Read a document",
        effect=Effect.READ,
        consent=Consent.ALLOW,
    )

    def __init__(self, library: Library) -> None:
        self._library = library

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return the text as passages, and where to go on."""
        try:
            part = await self._library.read(
                context.principal,
                context.sources,
                arguments["document"],
                offset=arguments.get("offset", 0),
                page=arguments.get("page", 0),
                limit=arguments.get("max_characters", CHARACTERS),
            )
        except LibraryRefused as error:
            return ToolResult(text=f"The document cannot be read: {error}", failed=True)
        where = f"'{part.path}' of source {part.source}"
        if not part.passages:
            return ToolResult(text=f"{where} has {part.characters:,} characters; there is nothing from there on.")
        more = f"go on with offset {part.next_offset}" if part.next_offset else "this is its end"
        told = f"{where}: characters {part.start:,} to {part.end:,} of {part.characters:,}; {more}."
        return ToolResult(text=told, findings=part.passages)
