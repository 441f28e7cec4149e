"""Charts in mermaid: a workflow, and the way of a request through the suite."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.orchestrator.workflow.draw import draw
from services.orchestrator.workflow.problems import WorkflowInvalid
from services.orchestrator.workflow.reading import read

# Returns an agent as the gateway has it, or raises GatewayError.
Fetch = Callable[[str], dict[str, Any]]


class NothingToDraw(Exception):
    """There is no workflow of that name, or it is not one; the message says what to do."""


def workflow_chart(name: str, config: Path, fetch: Fetch) -> str:
    """Return the chart of a workflow: a YAML file, an agent of the operator's file, or one that the gateway keeps."""
    try:
        return draw(read(_yaml_of(name, config, fetch)))
    except WorkflowInvalid as error:
        raise NothingToDraw(error.message) from error


def _yaml_of(name: str, config: Path, fetch: Fetch) -> str:
    if name.endswith((".yaml", ".yml")):
        return _text(Path(name))
    table = _tables(config).get(name)
    if table is not None:
        if "workflow" not in table:
            raise NothingToDraw(
                f"agent '{name}' of {config} is no workflow; its type is {table.get('type', 'agentic')}"
            )
        return _text(config.parent / table["workflow"])
    workflow = str(fetch(name).get("workflow_yaml", ""))
    if not workflow:
        raise NothingToDraw(f"agent '{name}' is no workflow")
    return workflow


def _tables(config: Path) -> dict[str, Any]:
    if not config.is_file():
        return {}
    try:
        found: dict[str, Any] = tomllib.loads(_text(config)).get("agents", {})
    except tomllib.TOMLDecodeError as error:
        raise NothingToDraw(f"{config}: {error}") from error
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NothingToDraw(f"'{file}' cannot be read: {error}") from error
