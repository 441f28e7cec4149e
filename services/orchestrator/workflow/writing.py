"""Workflows to YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import yaml

from services.orchestrator.workflow.graph import Branch, Node, Retry, Workflow


def write(workflow: Workflow) -> str:
    """Return `workflow` as YAML that `read` makes an equal one of; defaults are left out."""
    document: dict[str, Any] = _without_defaults(workflow, leave=("nodes", "state"))
    if workflow.state:
        document["state"] = {name: {"type": v.type.value, "default": v.default} for name, v in workflow.state.items()}
    document["nodes"] = {node.node_id: _plain_node(node) for node in workflow.nodes.values()}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def _plain_node(node: Node) -> dict[str, Any]:
    plain: dict[str, Any] = {"type": node.kind.value}
    plain |= _without_defaults(node, leave=("node_id", "kind", "work", "retry"))
    for name, value in _without_defaults(node.work).items():
        plain["else" if name == "otherwise" else name] = _plain(value)
    if node.retry != Retry():
        plain["retry"] = _without_defaults(node.retry)
    return plain


def _without_defaults(item: Any, leave: tuple[str, ...] = ()) -> dict[str, Any]:
    found = {}
    for field in fields(item):
        value = getattr(item, field.name)
        default = field.default if field.default is not MISSING else None
        if field.default_factory is not MISSING:
            default = field.default_factory()
        if field.name not in leave and value != default:
            found[field.name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Branch):
        return {"when": value.when, "next": value.next}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value
