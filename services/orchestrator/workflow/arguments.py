"""What a workflow is given: its arguments out of a message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from services.chassis.canonical import canonical_json
from services.chassis.errors import InvalidRequest
from services.orchestrator.checks import ArgumentsRefused, validate_arguments
from services.orchestrator.domain.agent import Agent, AgentType
from services.orchestrator.workflow.graph import Workflow
from services.orchestrator.workflow.validate import checked


def admit(agent: Agent, text: str) -> None:
    """Refuse a run that could only fail: raises WorkflowInvalid, and InvalidRequest for a message that does not fit."""
    if agent.type is AgentType.WORKFLOW:
        arguments_of(agent.name, checked(agent.workflow_yaml), text.strip())


def arguments_of(agent: str, workflow: Workflow, text: str) -> dict[str, Any]:
    """Return the workflow's arguments out of the message: a JSON object, or the text itself for its only one.

    Raises InvalidRequest when the message does not fit.
    """
    properties: Mapping[str, Any] = workflow.parameters.get("properties", {})
    if not workflow.parameters:
        return {}
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        given = {next(iter(properties)): text} if len(properties) == 1 else {}
    defaults = {name: schema["default"] for name, schema in properties.items() if "default" in schema}
    try:
        return dict(validate_arguments(canonical_json(defaults | given), canonical_json(workflow.parameters)))
    except ArgumentsRefused as error:
        raise InvalidRequest(
            f"agent '{agent}' takes a JSON object as its message, with {', '.join(map(repr, properties))}: {error}"
        ) from error
