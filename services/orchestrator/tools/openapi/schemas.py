"""Schemas of OpenAPI documents as JSON Schema 2020-12 that stands alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Nodes of one operation's schema: more is no tool for a model, and aliases of YAML can multiply without end.
MOST_NODES = 5_000
_COMPONENTS = "#/components/schemas/"
_DROPPED = frozenset({"example", "examples", "xml", "discriminator", "externalDocs", "deprecated", "nullable"})
_NAMED = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_ONE = frozenset({"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"})


class NotTranslatable(ValueError):
    """Something of the operation has no form as a tool's argument."""


def at(document: Mapping[str, Any], entry: Any) -> Mapping[str, Any]:
    """Return `entry`, or what it refers to within the document. Raises NotTranslatable."""
    for _ in range(20):
        if not isinstance(entry, dict):
            raise NotTranslatable("it has an entry that is no object")
        if "$ref" not in entry:
            return entry
        entry = _pointed(document, str(entry["$ref"]))
    raise NotTranslatable("its references go in a circle")


def _pointed(document: Any, reference: str) -> Any:
    if not reference.startswith("#/"):
        raise NotTranslatable(f"it refers to '{reference}', which is outside the document")
    for step in reference[2:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(document, dict) or key not in document:
            raise NotTranslatable(f"it refers to '{reference}', which is not in the document")
        document = document[key]
    return document


class Schemas:
    """Translates the schemas of one operation; `defined` gathers what they refer to."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._nodes = 0
        self.defined: dict[str, Any] = {}

    def translate(self, schema: Any) -> Any:
        """Return `schema` with references to `$defs`. Raises NotTranslatable."""
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise NotTranslatable(f"its schema has more than {MOST_NODES:,} parts")
        if not isinstance(schema, dict):
            return schema  # true, false, or what check_schema will refuse
        if "$ref" in schema:
            return self._reference(str(schema["$ref"]), schema)
        written = {key: self._entry(key, value) for key, value in schema.items() if self._kept(key)}
        _bounds(written)
        _without_read_only(written)
        if schema.get("nullable"):
            return _or_null(written)
        return written

    def _kept(self, key: str) -> bool:
        return key not in _DROPPED and not key.startswith("x-")

    def _entry(self, key: str, value: Any) -> Any:
        if key in _NAMED and isinstance(value, dict):
            return {name: self.translate(inner) for name, inner in value.items()}
        if key in _LISTS and isinstance(value, list):
            return [self.translate(inner) for inner in value]
        return self.translate(value) if key in _ONE else value

    def _reference(self, reference: str, schema: Mapping[str, Any]) -> Any:
        if not reference.startswith(_COMPONENTS):
            return self.translate(at(self._document, {"$ref": reference}))
        name = reference.removeprefix(_COMPONENTS)
        if name not in self.defined:
            self.defined[name] = {}  # a schema may refer to itself
            self.defined[name] = self.translate(_pointed(self._document, reference))
        written: dict[str, Any] = {"$ref": f"#/$defs/{name}"}
        if "description" in schema:
            written["description"] = schema["description"]
        return written


def _bounds(schema: dict[str, Any]) -> None:
    """Give exclusive bounds of 3.0, which are truth values there, the form of a number."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and bound in schema:
            schema[exclusive] = schema.pop(bound)


def _without_read_only(schema: dict[str, Any]) -> None:
    """Leave out what only answers hold."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    answered = {name for name, inner in properties.items() if isinstance(inner, dict) and inner.get("readOnly")}
    if answered:
        schema["properties"] = {name: inner for name, inner in properties.items() if name not in answered}
        if isinstance(schema.get("required"), list):
            schema["required"] = [name for name in schema["required"] if name not in answered]


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if isinstance(kind, str):
        schema["type"] = [kind, "null"]
        if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
            schema["enum"] = [*schema["enum"], None]
        return schema
    return {"anyOf": [schema, {"type": "null"}]}
