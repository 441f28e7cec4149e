"""What the gate and the model are told of servers' tools."""

from __future__ import annotations

from datetime import timedelta
from fnmatch import fnmatchcase

from services.orchestrator.domain.messages import ToolSpec
from services.orchestrator.guardrails.framing import neutral
from services.orchestrator.mcp.naming import tool_name
from services.orchestrator.mcp.ports import ListedTool, Listing
from services.orchestrator.mcp.settings import Cooldown, McpSettings, ServerSettings
from services.orchestrator.tools.ports import Consent, Effect, ToolDefinition

COOLDOWN = timedelta(seconds=30)


def define(tool: ListedTool, settings: ServerSettings, everything: McpSettings) -> ToolDefinition:
    """Return what the gate knows of a server's tool.

    The server's hints are its own word: they count only where the operator trusts them. Otherwise every tool may have
    an effect, and is asked for.
    """
    trusted = settings.trusts_hints
    reads = trusted and tool.reads_only
    effect = Effect.READ if reads else Effect.IDEMPOTENT if trusted and tool.idempotent else Effect.SIDE_EFFECT
    return ToolDefinition(
        spec=ToolSpec(
            name=tool_name(settings.name, tool.name),
            description=tool.description,
            parameters_json=tool.parameters_json,
        ),
        title=f"{tool.title} ({settings.name})",
        effect=effect,
        consent=Consent.ALLOW if reads and settings.consent is Consent.ASK else settings.consent,
        cooldown=_cooldown(settings.cooldown or everything.cooldown, tool),
        deadline=settings.timeout,
        narrowable=True,
        foreign=True,
    )


def _cooldown(mode: Cooldown, tool: ListedTool) -> timedelta | None:
    rests = mode is Cooldown.ON or (mode is Cooldown.AUTO and not tool.output_schema)
    return COOLDOWN if rests else None


def is_suppressed(settings: ServerSettings, tool: str) -> bool:
    """Tell whether the operator takes the tool out of the offer."""
    return any(fnmatchcase(tool, pattern) for pattern in settings.suppressed)


def left_out_of(settings: ServerSettings, listing: Listing) -> list[tuple[str, str]]:
    """Return tools that are not offered, each with why."""
    suppressed = [
        (tool.name, "the operator suppresses it") for tool in listing.tools if is_suppressed(settings, tool.name)
    ]
    return [*listing.left_out, *suppressed]


def framed_instructions(server: str, text: str) -> str:
    """Return a server's instructions as what they are: its own words."""
    return f"The tool server '{server}' says of its tools (its word, not the operator's):\n{neutral(text)}"
