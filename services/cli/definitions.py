"""Agents and prompts as files: YAML or TOML, read into what the gateway takes, and written so that they read back."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

# Fields that the service sets; a file that has them is not refused, but they change nothing.
_SET_BY_SERVICE = frozenset({"agent_id", "prompt_id", "owner", "read_only", "updated_at", "version"})
# Words of proctor.toml, and how the gateway calls them.
_RENAMED = {"router": "router_json", "workflow": "workflow_yaml"}


class DefinitionInvalid(Exception):
    """The file holds nothing that can be applied; the message says what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One agent or prompt of a file. `kind` is agent or prompt, `body` what the gateway takes."""

    kind: str
    name: str
    body: Mapping[str, Any]


def read_definitions(path: Path) -> list[Definition]:
    """Return what `path` holds: one agent with its name, or tables `agents` and `prompts`, the prompts first."""
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except OSError as error:
        raise DefinitionInvalid(f"'{path}' cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise DefinitionInvalid(f"'{path}' is neither YAML nor TOML (.toml): {error}") from error
    found = list(_definitions(document)) if isinstance(document, dict) else []
    if not found:
        raise DefinitionInvalid(f"'{path}' has no agent: write its name and type, or tables [agents.NAME]")
    return found


def _definitions(document: Mapping[str, Any]) -> Iterator[Definition]:
    if not {"agents", "prompts"} & document.keys():
        if name := document.get("name"):
            yield Definition(kind="agent", name=str(name), body=_body(str(name), document))
        return
    # Agents may refer to the prompts of the same file.
    for kind in ("prompt", "agent"):
        for name, table in (document.get(f"{kind}s") or {}).items():
            if not isinstance(table, dict):
                raise DefinitionInvalid(f"{kind} '{name}' must be a table, not {table!r}")
            yield Definition(kind=kind, name=name, body=_body(name, table))


def _body(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    body = {_RENAMED.get(key, key): value for key, value in table.items() if key not in _SET_BY_SERVICE}
    if isinstance(body.get("workflow_yaml"), dict):
        body["workflow_yaml"] = yaml.safe_dump(body["workflow_yaml"], allow_unicode=True, sort_keys=False)
    if isinstance(body.get("budget"), dict):
        body["budget"] = _in_seconds(body["budget"], "wall_time")
    if isinstance(body.get("tools"), list):
        body["tools"] = [_in_seconds(t, "deadline") if isinstance(t, dict) else t for t in body["tools"]]
    return body | {"name": name}


def _in_seconds(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the table with `name_seconds`, as proctor.toml has it, called `name`."""
    return {name if key == f"{name}_seconds" else key: value for key, value in table.items()}


def write_definition(shown: Mapping[str, Any]) -> str:
    """Return what the gateway shows of an agent or prompt as YAML that `read_definitions` takes, without defaults."""
    return yaml.dump(_short(shown), Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=100)


def _short(shown: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: _plain(value) for name, value in shown.items() if name not in _SET_BY_SERVICE and _says(value)}
    kept = {name: value for name, value in plain.items() if _says(value)}
    if "sources" in kept:
        kept["sources"] = [s["source"] if s.keys() == {"source"} else s for s in kept["sources"]]
    if "tools" in kept:
        kept["tools"] = [t["tool"] if t.keys() == {"tool"} else t for t in kept["tools"]]
    return kept


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(item) for name, item in value.items() if _says(item)}
        case list():
            return [_plain(item) for item in value]
        case str():
            for prefix in ("AGENT_TYPE_", "EXPOSURE_", "TOOL_POLICY_"):
                if value.startswith(prefix):
                    return value.removeprefix(prefix).lower()
            return value
        case _:
            return value


def _says(value: Any) -> bool:
    """Whether a value is other than its default."""
    if isinstance(value, str) and value.endswith("_UNSPECIFIED"):
        return False
    return value not in ("", 0, False, None, [], {})


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)
