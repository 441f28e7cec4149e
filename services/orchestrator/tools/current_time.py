"""The current_time tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from services.chassis.canonical import canonical_json
from services.chassis.clock import Clock
from services.orchestrator.domain.messages import ToolSpec
from services.orchestrator.tools.ports import Consent, Effect, ToolContext, ToolDefinition, ToolResult

_PARAMETERS = canonical_json(
    {
        "type": "object",
        "properties": {
            "time_zone": {"type": "string", "description": "IANA name such as Europe/Berlin. UTC when left out."}
        },
        "additionalProperties": False,
    }
)


class CurrentTimeTool:
    """Tells date, time and weekday in a time zone."""

    definition = ToolDefinition(
        spec=ToolSpec(
            name="current_time",
            description="Tell the current date, time and weekday in a time zone.",
            parameters_json=_PARAMETERS,
        ),
        title="Look at the clock",
        effect=Effect.READ,
        consent=Consent.ALLOW,
        repeatable=True,
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return ISO 8601 time with the weekday."""
        del context
        name = arguments.get("time_zone") or "UTC"
        try:
            now = self._clock.now().astimezone(ZoneInfo(name))
        except (ZoneInfoNotFoundError, ValueError):
            return ToolResult(
                text=f"there is no time zone '{name}'; use an IANA name such as Europe/Berlin", failed=True
            )
        return ToolResult(text=f"{now.isoformat(timespec='seconds')} {now:%A} ({name})")
