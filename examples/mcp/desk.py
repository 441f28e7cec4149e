"""A small MCP server: a desk with tickets. `python examples/mcp/desk.py` speaks over standard input and output."""

from __future__ import annotations

from typing import Annotated, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp_types import ToolAnnotations
from pydantic import BaseModel

desk = MCPServer("desk", version="1", instructions="Tickets are numbered from 1. Read a ticket before you change it.")
tickets: dict[int, dict[str, str]] = {1: {"title": "The lift is stuck", "state": "open"}}


class Priority(BaseModel):
    """What the desk asks the user when a ticket is made."""

    priority: Literal["low", "high"]


@desk.tool(annotations=ToolAnnotations(read_only_hint=True, title="Read a ticket"))
def read_ticket(number: int) -> dict[str, str]:
    """Return the title and state of a ticket."""
    return tickets[number]


async def ask_priority() -> Elicit[Priority]:
    """Ask the user, not the model."""
    return Elicit("How urgent is it?", Priority)


@desk.tool(annotations=ToolAnnotations(title="Make a ticket"))
def make_ticket(title: str, asked: Annotated[Priority, Resolve(ask_priority)]) -> str:
    """Make a ticket and return its number."""
    number = max(tickets) + 1
    tickets[number] = {"title": title, "state": f"open, {asked.priority} priority"}
    return f"Ticket {number} is made."


if __name__ == "__main__":
    desk.run("stdio")
