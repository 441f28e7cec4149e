"""Protobuf messages as JSON values, in the one form every route and stream of the gateway speaks.

It is proto3 JSON with three choices: proto field names (snake_case), 64-bit integers as numbers, and bytes fields
that hold JSON (`…_json`, `json_…`) embedded as the value they hold. Scalars, lists and maps are always present; message
fields, `optional` fields and members of a oneof only when they are set.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, TypeVar

import orjson
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from services.chassis.canonical import canonical_json
from services.chassis.errors import InvalidRequest

Render = Callable[[Any], Any]
M = TypeVar("M", bound=Message)


def to_json(message: Message) -> Any:
    """Return `message` as a JSON value."""
    return _renderer(message.DESCRIPTOR, _value)(message)


def to_json_bytes(message: Message) -> bytes:
    """Return `message` as JSON text."""
    return orjson.dumps(_renderer(message.DESCRIPTOR, _fragment)(message))


def dumps(value: Any) -> bytes:
    """Return a JSON value as text, fast, and also when it holds integers beyond 64 bits."""
    try:
        return orjson.dumps(value)
    except TypeError:  # orjson's only complaint about a JSON value
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def from_json(value: Mapping[str, Any], message: M) -> M:
    """Fill `message` from a JSON object in the form `to_json` gives; raise InvalidRequest that names what is wrong."""
    try:
        return json_format.ParseDict(_with_base64(value, message.DESCRIPTOR), message)
    except (json_format.ParseError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body does not fit: {error}") from error


def holds_json(field: FieldDescriptor) -> bool:
    """Whether a bytes field carries a JSON value."""
    return field.name.endswith("_json") or field.name.startswith("json_")


def timestamp_text(stamp: Timestamp) -> str:
    """Return RFC 3339 text in UTC with 0, 3, 6 or 9 fractional digits, as proto3 JSON has it."""
    return f"{_second(stamp.seconds)}{_fraction(stamp.nanos)}Z"


def duration_text(duration: Duration) -> str:
    """Return seconds with an `s`, as proto3 JSON has it."""
    negative = duration.seconds < 0 or duration.nanos < 0
    return f"{'-' if negative else ''}{abs(duration.seconds)}{_fraction(abs(duration.nanos))}s"


def embedded(value: bytes) -> Any:
    """Return the JSON value that `value` holds; None when empty, the text itself when it is not JSON."""
    if not value:
        return None
    try:
        return json.loads(value)  # orjson would turn integers beyond 64 bits into floats
    except ValueError:
        return value.decode("utf-8", "replace")


_value = embedded


def _fragment(value: bytes) -> Any:
    """Return what makes `orjson` write `value` as it stands, once it is known to be JSON."""
    try:
        orjson.loads(value or b"null")
    except orjson.JSONDecodeError:
        return value.decode("utf-8", "replace")
    return orjson.Fragment(value or b"null")


@lru_cache(maxsize=64)  # events of one stream share their second
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _with_base64(value: Any, descriptor: Any) -> Any:
    """Return `value` with embedded JSON turned into the base64 text that proto3 JSON wants for bytes."""
    if not isinstance(value, Mapping):
        return value
    result: dict[str, Any] = {}
    for name, item in value.items():
        field = descriptor.fields_by_name.get(name)
        if field is None:
            result[name] = item
        elif field.type == FieldDescriptor.TYPE_BYTES and holds_json(field):
            result[name] = base64.b64encode(canonical_json(item)).decode("ascii")
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            inner = field.message_type
            repeated = field.is_repeated and isinstance(item, list)
            result[name] = [_with_base64(one, inner) for one in item] if repeated else _with_base64(item, inner)
        else:
            result[name] = item
    return result


def _fraction(nanos: int) -> str:
    if nanos == 0:
        return ""
    if nanos % 1_000_000 == 0:
        return f".{nanos // 1_000_000:03d}"
    if nanos % 1_000 == 0:
        return f".{nanos // 1_000:06d}"
    return f".{nanos:09d}"


@cache
def _renderer(descriptor: Descriptor, embed: Render) -> Render:
    """Return the function that renders messages of this type; fields are looked up once per type."""
    if descriptor.full_name == Timestamp.DESCRIPTOR.full_name:
        return timestamp_text
    if descriptor.full_name == Duration.DESCRIPTOR.full_name:
        return duration_text
    always: list[tuple[str, Render]] = []
    when_set: list[tuple[str, Render]] = []
    for field in descriptor.fields:
        (when_set if field.has_presence else always).append((field.name, _field_renderer(field, embed)))

    def render(message: Any) -> dict[str, Any]:
        value = {name: field(getattr(message, name)) for name, field in always}
        for name, field in when_set:
            if message.HasField(name):
                value[name] = field(getattr(message, name))
        return value

    return render


def _field_renderer(field: FieldDescriptor, embed: Render) -> Render:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        of_value = _single_renderer(message.fields_by_name["value"], embed)
        return lambda entries: {str(key): of_value(entries[key]) for key in sorted(entries)}
    single = _single_renderer(field, embed)
    if field.is_repeated:
        return lambda items: [single(item) for item in items]
    return single


def _single_renderer(field: FieldDescriptor, embed: Render) -> Render:
    if field.message_type is not None:
        return lambda value: _renderer(value.DESCRIPTOR, embed)(value)
    if field.enum_type is not None:
        return _enum_renderer(field.enum_type)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return embed if holds_json(field) else lambda value: base64.b64encode(value).decode("ascii")
    return lambda value: value


def _enum_renderer(enum: EnumDescriptor) -> Render:
    names = {number: value.name for number, value in enum.values_by_number.items()}
    return lambda number: names.get(number, number)
