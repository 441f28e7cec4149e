"""Domain dataclass ⇄ protobuf message, by field name. Each pair of classes is compiled once to a list of converters.

A dataclass field maps to the message field of the same name: scalars as they are, enums by number, `datetime` to
Timestamp, `timedelta` to Duration, tuples to repeated, `dict[str, str]` to a map, dataclasses to messages; `X | None`
is a field with presence. Unions and oneofs have their converter below. A dataclass field without a message field is a
TypeError when the pair is first used.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import cache
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message as ProtoMessage
from google.protobuf.timestamp_pb2 import Timestamp

from proctor.agent.v1 import agent_pb2
from services.orchestrator.domain.messages import MediaPart, OutputFormat, Part, TextPart

P = TypeVar("P", bound=ProtoMessage)
D = TypeVar("D")
R = TypeVar("R")

Convert = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_ZERO = timedelta()


def to_pb(value: Any, message: type[P]) -> P:
    """Return `value`, a domain dataclass, as a message of type `message`."""
    if special := _SPECIAL.get(type(value)):
        return typing.cast("P", special.write(value))
    fields: dict[str, Any] = {}
    for name, convert in _writers(type(value), message):
        field = getattr(value, name)
        if field is not None:
            fields[name] = convert(field) if convert else field
    return message(**fields)


def from_pb(message: ProtoMessage, cls: type[D]) -> D:
    """Return `message` as a `cls`. A missing enum takes the field's default; raise ValueError where it has none."""
    if special := _SPECIAL.get(cls):
        return typing.cast("D", special.read(message))
    fields: dict[str, Any] = {}
    for field in _readers(cls, type(message)):
        if field.has_presence and not message.HasField(field.name):
            if field.optional:
                fields[field.name] = None
            continue
        value = getattr(message, field.name)
        if field.convert:
            value = field.convert(value)
        if value is not _ABSENT:
            fields[field.name] = value
    return cls(**fields)


def timestamp(at: datetime) -> Timestamp:
    """Return an aware datetime as a Timestamp."""
    seconds, nanos = since_epoch(at)
    return Timestamp(seconds=seconds, nanos=nanos)


def since_epoch(at: datetime) -> tuple[int, int]:
    """Return the seconds and nanoseconds of an aware time. Every event has one; `FromDatetime` asks the calendar."""
    since = at - _EPOCH
    return since // _SECOND, since.microseconds * 1000


def duration(delta: timedelta) -> Duration:
    """Return a timedelta as a Duration; both parts have its sign. Every event of a call has some, as with times."""
    past = delta if delta >= _ZERO else -delta
    seconds, nanos = past.days * 86_400 + past.seconds, past.microseconds * 1000
    return Duration(seconds=seconds, nanos=nanos) if past is delta else Duration(seconds=-seconds, nanos=-nanos)


@dataclasses.dataclass(frozen=True, slots=True)
class _Shape:
    """A dataclass field's type, taken apart."""

    kind: Any
    repeated: bool
    optional: bool


class _Absent:
    """Stands for an enum number 0 that the domain has no member for."""


_ABSENT = _Absent()


def _compiled(plan: Callable[[Any, Any], R]) -> Callable[[Any, Any], R]:
    """Cache `plan` by its two classes; typed apart because message classes hide `type.__hash__` from the checker."""
    return cache(plan)


@cache
def _shapes(cls: type) -> dict[str, _Shape]:
    hints = typing.get_type_hints(cls)
    return {field.name: _shape(hints[field.name]) for field in dataclasses.fields(cls)}


def _shape(hint: Any) -> _Shape:
    optional = repeated = False
    if isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint):
        optional = True
        (hint,) = (arm for arm in typing.get_args(hint) if arm is not type(None))
    if typing.get_origin(hint) is tuple:
        repeated = True
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) is dict:
        hint = dict
    return _Shape(hint, repeated, optional)


@_compiled
def _writers(cls: Any, message: Any) -> tuple[tuple[str, Convert | None], ...]:
    plan = []
    for name, shape in _shapes(cls).items():
        convert = _writer(shape.kind, _field_class(message, name))
        if convert and shape.repeated:
            convert = _each(convert)
        plan.append((name, convert))
    return tuple(plan)


def _writer(kind: Any, nested: type[ProtoMessage] | None) -> Convert | None:
    if kind is datetime:
        return timestamp
    if kind is timedelta:
        return duration
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return int
    if nested is not None and kind is not dict:
        return lambda value: to_pb(value, nested)
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class _Reader:
    """How one field is read. An absent field is None when optional, else it keeps the dataclass's default."""

    name: str
    convert: Convert | None
    has_presence: bool
    optional: bool


@_compiled
def _readers(cls: Any, message: Any) -> tuple[_Reader, ...]:
    required = {
        field.name
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    plan = []
    for name, shape in _shapes(cls).items():
        _field_class(message, name)
        convert = _reader(shape.kind, required=name in required)
        if shape.repeated:
            convert = _each(convert) if convert else tuple
        nested = _is_message(shape.kind) and not shape.repeated and name not in required
        plan.append(_Reader(name, convert, shape.optional or nested, shape.optional))
    return tuple(plan)


def _reader(kind: Any, *, required: bool) -> Convert | None:
    if kind is datetime:
        return lambda value: value.ToDatetime(tzinfo=UTC)
    if kind is timedelta:
        return lambda value: value.ToTimedelta()
    if kind is dict:
        return dict
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return kind if required or 0 in kind._value2member_map_ else lambda number: kind(number) if number else _ABSENT
    if _is_message(kind):
        return lambda value: from_pb(value, kind)
    return None


def _each(convert: Convert) -> Convert:
    return lambda values: tuple(map(convert, values))


def _is_message(kind: Any) -> bool:
    return kind in (datetime, timedelta) or kind in _SPECIAL or dataclasses.is_dataclass(kind)


def _field_class(message: Any, name: str) -> type[ProtoMessage] | None:
    """Return the class of the message field `name`, None for a scalar; raise TypeError when there is no such field."""
    field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        raise TypeError(f"{message.DESCRIPTOR.full_name} has no field '{name}'")
    if field.message_type is None:
        return None
    # The class behind a descriptor has no other name.
    nested: type[ProtoMessage] = field.message_type._concrete_class  # noqa: SLF001
    return nested


@dataclasses.dataclass(frozen=True, slots=True)
class _Special:
    """A hand-written pair, where the domain has a union and the proto a oneof."""

    write: Callable[[Any], ProtoMessage]
    read: Callable[[Any], Any]


def _write_part(part: Part) -> agent_pb2.Part:
    if isinstance(part, TextPart):
        return agent_pb2.Part(text=part.text)
    media = agent_pb2.Media(media_type=part.media_type, name=part.name)
    if part.artifact_id:
        media.artifact_id = part.artifact_id
    elif part.url:
        media.url = part.url
    else:
        media.inline = part.inline
    return agent_pb2.Part(image=media) if part.is_image else agent_pb2.Part(file=media)


def _read_part(message: agent_pb2.Part) -> Part:
    match message.WhichOneof("content"):
        case "text":
            return TextPart(text=message.text)
        case "image" | "file" as arm:
            media: agent_pb2.Media = getattr(message, arm)
            return MediaPart(
                media_type=media.media_type,
                is_image=arm == "image",
                name=media.name,
                inline=media.inline,
                artifact_id=media.artifact_id,
                url=media.url,
            )
        case _:
            raise ValueError("a message part has no content")


def _write_output(output: OutputFormat) -> agent_pb2.OutputFormat:
    if output.json_schema:
        return agent_pb2.OutputFormat(json_schema=output.json_schema, name=output.name)
    if output.json_mode:
        return agent_pb2.OutputFormat(json_mode=True, name=output.name)
    return agent_pb2.OutputFormat(name=output.name)


def _read_output(message: agent_pb2.OutputFormat) -> OutputFormat:
    return OutputFormat(json_mode=message.json_mode, json_schema=message.json_schema, name=message.name)


_PART = _Special(_write_part, _read_part)
_SPECIAL: dict[Any, _Special] = {
    TextPart: _PART,
    MediaPart: _PART,
    Part: _PART,
    OutputFormat: _Special(_write_output, _read_output),
}
