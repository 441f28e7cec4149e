"""Write docs/events.md: every event of a run as it stands in JSON on the native wires, from the comments of the protos.

Usage: `python protos/catalogue.py [--out FILE]`. `make check` runs it into a scratch file and compares.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from grpc_tools import protoc

HERE = Path(__file__).resolve().parent
EVENTS = "proctor/orchestrator/v1/events.proto"
EVENT = ".proctor.orchestrator.v1.RunEvent"
TERMINAL = ("run_completed", "run_failed", "run_cancelled")
# Field numbers of descriptor.proto that make up the path of an element in a file's source information.
MESSAGES, ENUMS, FIELDS, VALUES = 4, 5, 2, 2
# Types of proto3 JSON as the gateway writes them: 64-bit integers are numbers.
SCALARS = {
    FieldDescriptorProto.TYPE_STRING: "text",
    FieldDescriptorProto.TYPE_BOOL: "true or false",
    FieldDescriptorProto.TYPE_DOUBLE: "number",
    FieldDescriptorProto.TYPE_FLOAT: "number",
    FieldDescriptorProto.TYPE_BYTES: "base64 text",
}
WELL_KNOWN = {
    ".google.protobuf.Timestamp": "time",
    ".google.protobuf.Duration": "duration",
}
HEAD = """# Events of a run

Written by `protos/catalogue.py` from `protos/proctor/orchestrator/v1/events.proto`; `make protos` writes it anew.

A run is an ordered list of events. `GET /v1/runs/{id}/events` and `POST /v1/runs` send each as a server-sent event:
`id:` is its sequence, `event:` its kind, `data:` the JSON described here. Come back with the last sequence you saw in
`Last-Event-ID` (or `?after=`) and you miss nothing. Lines that begin with `:` keep the connection warm. Over the
WebSocket `/v1/ws` the same JSON comes as `{"type": "event", "id": <your reference>, "event": {…}}`.

```
id: 7
event: answer_delta
data: {"run_id":"r1","sequence":7,"attempt":1,"step_id":"","answer_delta":{"text":"25 days","model_call_id":"m1"}}
```

- Sequences grow and may have holes. Nothing follows a terminal event.
- Ignore kinds and fields you do not know: new ones come without a new version.
- Names are those of the protos. *time* is RFC 3339 text in UTC, *duration* seconds as text (`"1.5s"`), an enum its
  name as text, *JSON* the value itself. Text, numbers, lists and maps are always there; what is marked *optional* and
  objects, times and durations are left out when they are not set.
"""


class Catalogue:
    """Messages and enums of a descriptor set by full name, with the comments that lead them."""

    def __init__(self, descriptors: FileDescriptorSet) -> None:
        self.messages: dict[str, DescriptorProto] = {}
        self.enums: dict[str, EnumDescriptorProto] = {}
        self._comments: dict[tuple[str, str], str] = {}
        for file in descriptors.file:
            self._read(file)

    def comment(self, owner: str, name: str = "") -> str:
        """Return the comment of a message or enum, or of one of its fields or values, on one line."""
        return self._comments.get((owner, name), "")

    def _read(self, file: FileDescriptorProto) -> None:
        by_path = {
            tuple(location.path): " ".join(location.leading_comments.split()).replace("|", "\\|")
            for location in file.source_code_info.location
        }
        for index, message in enumerate(file.message_type):
            owner = f".{file.package}.{message.name}"
            self.messages[owner] = message
            self._note(owner, message.field, by_path, (MESSAGES, index), FIELDS)
        for index, enum in enumerate(file.enum_type):
            owner = f".{file.package}.{enum.name}"
            self.enums[owner] = enum
            self._note(owner, enum.value, by_path, (ENUMS, index), VALUES)

    def _note(
        self, owner: str, parts: object, by_path: dict[tuple[int, ...], str], path: tuple[int, ...], at: int
    ) -> None:
        self._comments[owner, ""] = by_path.get(path, "")
        for index, part in enumerate(parts):  # type: ignore[arg-type, var-annotated]
            self._comments[owner, part.name] = by_path.get((*path, at, index), "")


def describe() -> FileDescriptorSet:
    """Return the descriptors of the events and all they import, with comments; raise RuntimeError when protoc fails."""
    include = [f"-I{HERE / 'third_party'}", f"-I{HERE}", f"-I{files('grpc_tools') / '_proto'}"]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "events.binpb")
        options = ["--include_imports", "--include_source_info", f"--descriptor_set_out={out}"]
        code = protoc.main(["protoc", *include, *options, str(HERE / EVENTS)])
        if code != 0:
            raise RuntimeError(f"protoc ended with code {code}")
        return FileDescriptorSet.FromString(out.read_bytes())


def write(catalogue: Catalogue) -> Iterator[str]:
    """Yield the lines of the document."""
    event = catalogue.messages[EVENT]
    yield from HEAD.splitlines()
    yield from ["", "## What every event carries", ""]
    yield from _table(catalogue, EVENT, [field for field in event.field if not field.HasField("oneof_index")])
    kinds = [field for field in event.field if field.HasField("oneof_index")]
    yield from ["", "and, under the name of its kind, one of:", "", "| kind | says |", "|---|---|"]
    for kind in kinds:
        yield f"| [`{kind.name}`](#{kind.name}) | {catalogue.comment(EVENT, kind.name)} |"
    yield from ["", "## Kinds"]
    for kind in kinds:
        yield from ["", f"### {kind.name}", "", catalogue.comment(kind.type_name)]
        if kind.name in TERMINAL:
            yield from ["", "Nothing follows it."]
        yield from _fields(catalogue, kind.type_name)
    messages, enums = _mentioned(catalogue, [kind.type_name for kind in kinds])
    yield from ["", "## Objects"]
    for name in messages:
        yield from ["", f"### {_short(name)}", "", catalogue.comment(name), *_fields(catalogue, name)]
    yield from ["", "## Enums"]
    for name in enums:
        yield from ["", f"### {_short(name)}", "", catalogue.comment(name), "", "| value | says |", "|---|---|"]
        for value in catalogue.enums[name].value:
            yield f"| `{value.name}` | {catalogue.comment(name, value.name)} |"


def _fields(catalogue: Catalogue, owner: str) -> Iterator[str]:
    fields = list(catalogue.messages[owner].field)
    if fields:
        yield ""
        yield from _table(catalogue, owner, fields)


def _table(catalogue: Catalogue, owner: str, fields: list[FieldDescriptorProto]) -> Iterator[str]:
    yield from ["| field | type | says |", "|---|---|---|"]
    for field in fields:
        yield f"| `{field.name}` | {_type(catalogue, field)} | {catalogue.comment(owner, field.name)} |"


def _type(catalogue: Catalogue, field: FieldDescriptorProto) -> str:
    if field.type == FieldDescriptorProto.TYPE_BYTES and (
        field.name.endswith("_json") or field.name.startswith("json_")
    ):
        name = "JSON"
    elif field.type_name in WELL_KNOWN:
        name = WELL_KNOWN[field.type_name]
    elif field.type_name in catalogue.messages or field.type_name in catalogue.enums:
        short = _short(field.type_name)
        name = f"[{short}](#{short.lower()})"
    elif field.type_name:
        name = "map"
    else:
        name = SCALARS.get(field.type, "integer")
    if field.label == FieldDescriptorProto.LABEL_REPEATED and name != "map":
        return f"list of {name}"
    # A member of a oneof and an `optional` field are both members of a oneof to the descriptor.
    return f"{name}, optional" if field.HasField("oneof_index") else name


def _mentioned(catalogue: Catalogue, kinds: list[str]) -> tuple[list[str], list[str]]:
    """Return messages and enums that the kinds mention, at any depth, in the order they are met."""
    messages: list[str] = []
    enums: list[str] = []
    queue = list(kinds)
    while queue:
        for field in catalogue.messages[queue.pop(0)].field:
            name = field.type_name
            if name in catalogue.enums and name not in enums:
                enums.append(name)
            elif name in catalogue.messages and name not in WELL_KNOWN and name not in {*messages, *kinds}:
                messages.append(name)
                queue.append(name)
    return messages, enums


def _short(name: str) -> str:
    return name.rpartition(".")[2]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "events.md")
    parser.parse_args().out.write_text("\n".join(write(Catalogue(describe()))) + "\n", encoding="utf-8")
