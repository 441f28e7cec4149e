"""The `reason` argument: asked of the model with every call, shown to people, never part of the call itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from services.orchestrator.domain.messages import ToolSpec

NAME = "reason"
# For a tool that has a parameter called `reason` itself.
OTHER_NAME = "reason_for_people"
DESCRIPTION = "One short sentence, in the user's language, for the people who approve this call: why it is needed now."


def name_for(schema: Mapping[str, Any]) -> str:
    """Return the name of the injected argument that does not clash with the tool's own parameters."""
    properties = schema.get("properties")
    return OTHER_NAME if isinstance(properties, Mapping) and NAME in properties else NAME


def reason_names(tools: Iterable[ToolSpec]) -> dict[str, str]:
    """Return, for each tool, the name of the argument that carries its reason."""
    return {tool.name: _name_of(tool.parameters_json) for tool in tools}


@lru_cache(maxsize=1024)
def _name_of(parameters_json: bytes) -> str:
    return name_for(json.loads(parameters_json or b"{}"))


def inject(parameters_json: bytes) -> dict[str, Any]:
    """Return the tool's parameter schema with the reason as its first and required property."""
    schema: dict[str, Any] = json.loads(parameters_json) if parameters_json else {}
    name = name_for(schema)
    own = schema.get("properties")
    required = schema.get("required")
    return {
        **schema,
        "type": "object",
        "properties": {name: {"type": "string", "description": DESCRIPTION}, **(own if isinstance(own, dict) else {})},
        "required": [name, *(required if isinstance(required, list) else ())],
    }


def take_out(arguments: dict[str, Any], name: str = NAME) -> tuple[dict[str, Any], str]:
    """Return (arguments without the reason, the reason); a reason that is no text is shown as JSON."""
    if name not in arguments:
        return arguments, ""
    rest = {key: value for key, value in arguments.items() if key != name}
    reason = arguments[name]
    if reason is None:
        return rest, ""
    return rest, reason if isinstance(reason, str) else json.dumps(reason, ensure_ascii=False)


def put_back(arguments: Mapping[str, Any], reason: str, name: str = NAME) -> dict[str, Any]:
    """Return the arguments as the model wrote them, for replaying its own call to it."""
    return {name: reason, **arguments} if reason else dict(arguments)
