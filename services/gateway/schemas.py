"""JSON Schemas of protobuf messages in the form `protojson` gives them, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from services.gateway.protojson import holds_json

Schema = dict[str, Any]
REFERENCE = "#/components/schemas/"
_WELL_KNOWN: dict[str, Schema] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?\d+(\.\d+)?s$"},
}
_NUMBERS = frozenset({FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT})
_TEXTS = frozenset({FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES})


def reference(message: type[Message]) -> Schema:
    """Return a reference to the message's schema."""
    return {"$ref": f"{REFERENCE}{message.DESCRIPTOR.full_name}"}


def components(names: list[str]) -> dict[str, Schema]:
    """Return the schemas of the messages with these full names and of all they contain, by name."""
    found: dict[str, Schema] = {}
    for name in names:
        _collect(descriptor_pool.Default().FindMessageTypeByName(name), found)
    return found


def _collect(descriptor: Any, found: dict[str, Schema]) -> None:
    if descriptor.full_name in found or descriptor.full_name in _WELL_KNOWN:
        return
    schema: Schema = {"type": "object", "title": descriptor.name, "properties": {}, "required": []}
    found[descriptor.full_name] = schema
    for field in descriptor.fields:
        schema["properties"][field.name] = _field(field, found)
        if not field.has_presence:
            schema["required"].append(field.name)


def _field(field: FieldDescriptor, found: dict[str, Schema]) -> Schema:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": _single(message.fields_by_name["value"], found)}
    single = _single(field, found)
    return {"type": "array", "items": single} if field.is_repeated else single


def _single(field: FieldDescriptor, found: dict[str, Schema]) -> Schema:
    if field.message_type is not None:
        if field.message_type.full_name in _WELL_KNOWN:
            return _WELL_KNOWN[field.message_type.full_name]
        _collect(field.message_type, found)
        return {"$ref": f"{REFERENCE}{field.message_type.full_name}"}
    if field.enum_type is not None:
        return _enum(field.enum_type)
    if field.type == FieldDescriptor.TYPE_BYTES and holds_json(field):
        return {"description": "Any JSON value; null when there is none."}
    if field.type in _TEXTS:
        return {"type": "string"}
    if field.type == FieldDescriptor.TYPE_BOOL:
        return {"type": "boolean"}
    return {"type": "number" if field.cpp_type in _NUMBERS else "integer"}


def _enum(enum: EnumDescriptor) -> Schema:
    return {"type": "string", "enum": [value.name for value in enum.values]}
