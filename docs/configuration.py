"""Write docs/configuration.md: every setting with its default and meaning, from the settings dataclasses.

Usage: `python docs/configuration.py [--out FILE]`. `make check` runs it into a scratch file and compares.

The comment above a field says what it means, also for the fields right below it that have none; fields that every
service has are described here.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from services.chassis.platform import PlatformSettings  # noqa: E402
from services.chassis.settings import Secret, variable  # noqa: E402
from services.chassis.telemetry import TelemetrySettings  # noqa: E402

SERVICES = ("gateway", "orchestrator", "retrieval", "sandbox", "approval")
COMMON = {
    "listen": "Where it serves: `host:port`, port 0 for any free one, or `unix:/path`.",
    "data_dir": "Folder of its files.",
    "database_url": "`postgresql+asyncpg://…` or `sqlite:///…`; empty is an SQLite file in the data folder.",
}
TYPES = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "`true`, `false`",
    "Path": "path",
    "Secret": "secret text",
    "timedelta": "seconds",
    "tuple[str, ...]": "list, by commas",
}
HEAD = """# Configuration

Written by `docs/configuration.py` from the settings of the services; `make docs` writes it anew.

Everything is set by environment variables, which `proctor up` hands on to the services it starts. A wrong value, or a
name that no setting has, is refused at the start with every problem named. Secrets never show in logs or errors. Agents
and models are described in `proctor.toml`; see [models.md](models.md).

## Variables of others that Proctor reads

| variable | meaning |
|---|---|
| `OPENAI_API_KEY`, `OPENAI_BASE_URL` | an OpenAI-compatible endpoint; one of them is enough to have a model |
| `PROCTOR_MODEL` | the model of that endpoint that answers |
| `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_…` | where the exporters `otlp-grpc` and `otlp-http` send to |
| `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` | `true` puts what is said and done on spans; off by default |
| `HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY` | proxies on the way to models |
"""


@dataclass(frozen=True, slots=True)
class Group:
    """Settings that one comment describes."""

    meaning: str
    fields: tuple[dataclasses.Field[Any], ...]


class Undescribed(Exception):
    """A setting whose meaning nothing says."""


def groups(settings: type[Any], service: str) -> Iterator[Group]:
    """Yield the settings as their comments group them; raise Undescribed for one without any."""
    lines = textwrap.dedent(inspect.getsource(settings)).splitlines()
    body = ast.parse("\n".join(lines)).body[0]
    assert isinstance(body, ast.ClassDef)
    fields = {field.name: field for field in dataclasses.fields(settings)}
    members: list[dataclasses.Field[Any]] = []
    meaning, last = "", 0
    for node in body.body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        name = node.target.id
        comment = _comment(lines, node.lineno - 1)
        common = COMMON.get(name) or _peer(name)
        if comment or common or node.lineno - 1 != last:
            if members:
                yield Group(meaning, tuple(members))
            # What is written beside the field says more than what all services share.
            meaning, members = common if name in COMMON or not comment else comment, []
            if not meaning:
                raise Undescribed(
                    f"{variable(service, name)} of {settings.__module__} has no comment that says what it is"
                )
        members.append(fields[name])
        last = node.end_lineno or node.lineno
        if common:
            yield Group(meaning, tuple(members))
            meaning, members, last = "", [], 0
    if members:
        yield Group(meaning, tuple(members))


def _comment(lines: list[str], number: int) -> str:
    """Return the comment that ends right above line `number`, counted from 0."""
    start = number
    while start > 0 and lines[start - 1].strip().startswith("#"):
        start -= 1
    return " ".join(line.strip().lstrip("# ") for line in lines[start:number])


def _peer(name: str) -> str:
    peer = name.removesuffix("_target")
    return f"Address of the {peer} service: `host:port` or `unix:/path`." if peer != name and peer in SERVICES else ""


def table(settings: type[Any], service: str) -> str:
    """Return the Markdown table of one settings class."""
    hints = get_type_hints(settings)
    rows = ["| variable | value | default | meaning |", "|---|---|---|---|"]
    for group in groups(settings, service):
        names = "<br>".join(f"`{variable(service, field.name)}`" for field in group.fields)
        kinds = "<br>".join(_kind(hints[field.name]) for field in group.fields)
        defaults = "<br>".join(_default(field) for field in group.fields)
        rows.append(f"| {names} | {kinds} | {defaults} | {group.meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


def _kind(hint: Any) -> str:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(f"`{member.value}`" for member in hint)
    text = hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)
    text = text.replace("pathlib._local.", "").replace("pathlib.", "").removesuffix(" | None")
    return TYPES[text]


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return "required"
    value = field.default
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    match value:
        case None | "" | ():
            return "—"
        case Secret():
            return "set"
        case Enum():
            return f"`{value.value}`"
        case bool():
            return f"`{str(value).lower()}`"
        case timedelta():
            seconds = value.total_seconds()
            return f"`{int(seconds) if seconds.is_integer() else seconds}`"
        case tuple():
            return f"`{','.join(value)}`"
        case _:
            return f"`{value}`"


def render() -> str:
    """Return the whole page."""
    sections = [
        HEAD,
        f"## All services\n\n{table(PlatformSettings, '')}\n",
        f"## Telemetry\n\n{table(TelemetrySettings, 'telemetry')}\n",
    ]
    for service in SERVICES:
        settings = import_module(f"services.{service}.settings").Settings
        sections.append(f"## {service.capitalize()}\n\n{table(settings, service)}\n")
    return "\n".join(sections)


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=HERE / "configuration.md")
    parser.parse_args().out.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
