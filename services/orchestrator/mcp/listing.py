"""Reading a server's list of tools: bounded, cleaned, and only what can be called."""

from __future__ import annotations

from collections.abc import Iterable

from mcp import Client
from mcp_types import Tool

from services.chassis.canonical import canonical_json
from services.orchestrator.checks import check_schema
from services.orchestrator.mcp.naming import DESCRIPTION_LIMIT, clean_schema, visible
from services.orchestrator.mcp.ports import ListedTool, Listing

MOST_TOOLS = 500
MOST_PAGES = 50
MOST_SCHEMA_BYTES = 64 * 1024
INSTRUCTIONS_LIMIT = 2000


async def read_listing(client: Client) -> Listing:
    """Return what the server offers now."""
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        found += page.tools
        cursor = page.next_cursor
        if cursor is None or len(found) > MOST_TOOLS:
            break
    tools, left_out = _usable(found)
    info = client.server_info
    return Listing(
        tools=tuple(tools),
        left_out=tuple(left_out),
        instructions=visible(client.instructions or "", INSTRUCTIONS_LIMIT),
        server=visible(info.name, 100) if info else "",
        version=visible(info.version, 50) if info else "",
        protocol=client.protocol_version,
    )


def _usable(found: Iterable[Tool]) -> tuple[list[ListedTool], list[tuple[str, str]]]:
    tools: dict[str, ListedTool] = {}
    left_out: list[tuple[str, str]] = []
    for number, tool in enumerate(found):
        if number >= MOST_TOOLS:
            left_out.append((visible(tool.name, 100), f"its server lists more than {MOST_TOOLS} tools"))
        elif tool.name in tools:
            left_out.append((visible(tool.name, 100), "its server lists two tools of that name; the first stands"))
        elif problem := _problem(tool):
            left_out.append((visible(tool.name, 100), problem))
        else:
            tools[tool.name] = _listed(tool)
    return list(tools.values()), left_out


def _problem(tool: Tool) -> str:
    try:
        parameters = canonical_json(tool.input_schema)
    except (TypeError, ValueError) as error:
        return f"its schema is no JSON: {error}"
    if len(parameters) > MOST_SCHEMA_BYTES:
        return f"its schema is larger than {MOST_SCHEMA_BYTES} bytes"
    if tool.input_schema.get("type") != "object":
        return "its schema does not describe an object"
    return f"its schema is not valid: {problem}"[:300] if (problem := check_schema(parameters)) else ""


def _listed(tool: Tool) -> ListedTool:
    hints = tool.annotations
    title = tool.title or (hints.title if hints else None) or tool.name
    return ListedTool(
        name=tool.name,
        title=visible(title, 100),
        description=visible(tool.description or title, DESCRIPTION_LIMIT),
        parameters_json=canonical_json(clean_schema(tool.input_schema)),
        output_schema=tool.output_schema is not None,
        reads_only=bool(hints and hints.read_only_hint),
        idempotent=bool(hints and hints.idempotent_hint),
    )
