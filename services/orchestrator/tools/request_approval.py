"""A tool that does nothing but be approved: how a workflow asks people before it goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from services.chassis.canonical import canonical_json
from services.orchestrator.domain.messages import ToolSpec
from services.orchestrator.tools.ports import Consent, Effect, ToolContext, ToolDefinition, ToolResult

_PARAMETERS = canonical_json(
    {
        "type": "object",
        "properties": {
            "message": {"type": "string", "minLength": 1, "description": "What is to be approved."},
            "details": {"type": "object", "description": "Values that are approved with it; people may change them."},
        },
        "required": ["message"],
        "additionalProperties": False,
    }
)


class RequestApprovalTool:
    """Asks every time. Its result is the details as they were approved."""

    definition = ToolDefinition(
        spec=ToolSpec(
            name="request_approval",
            description="Ask a person to approve what comes next; nothing is done by this itself.",
            parameters_json=_PARAMETERS,
        ),
        title="Approve",
        effect=Effect.READ,
        consent=Consent.ASK_EVERY_CALL,
        repeatable=True,
        bound_only=True,
    )

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return the details that were approved, as one line of JSON."""
        return ToolResult(text=canonical_json(arguments.get("details", {})).decode())

    @staticmethod
    def approved(text: str) -> Any:
        """Return the details out of a result, which may say before them that a person changed them."""
        return json.loads(text.rpartition("\n\n")[2])
