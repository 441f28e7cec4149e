"""Answers in a form: asked for in the way a model supports, validated, and mended once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jsonschema
from jsonschema.protocols import Validator
from referencing import Registry
from referencing.exceptions import Unresolvable

from services.chassis.canonical import canonical_json
from services.chassis.errors import FieldViolation, InvalidRequest
from services.orchestrator.domain.messages import Message, OutputFormat, Role, text_message
from services.orchestrator.domain.run import OnRetraction
from services.orchestrator.models.errors import OutputInvalid
from services.orchestrator.models.layers import Events, TimedModel
from services.orchestrator.models.mending import mend
from services.orchestrator.models.model_settings import JSON_MODE, JSON_SCHEMA
from services.orchestrator.models.ports import (
    CallPiece,
    ModelInfo,
    ModelReply,
    ModelRequest,
    Retraction,
    TextPiece,
)
from services.orchestrator.models.timing import CallClock

_MAX_PROBLEMS = 5


class Structured:
    """Checks that an answer has the form its request asks for.

    An answer that has not is withdrawn and asked for once more with what is wrong. Where nothing may be withdrawn
    (FAIL), text is held back until it has been checked. Rounds that call tools are let through.
    """

    def __init__(self, inner: TimedModel, info: ModelInfo) -> None:
        self._inner = inner
        self._info = info

    def stream(self, request: ModelRequest, call: CallClock) -> Events:
        """Return the inner stream as it is for plain text."""
        if request.output.is_text:
            return self._inner.stream(request, call)
        return self._checked(request, call)

    async def _checked(self, request: ModelRequest, call: CallClock) -> Events:
        hold = request.on_retraction is OnRetraction.FAIL
        asked = _asked(request, self._info.capabilities)
        first: ModelReply | None = None
        problem = ""
        while True:
            reply: ModelReply | None = None
            held: list[TextPiece | CallPiece] = []
            async with aclosing(self._inner.stream(asked, call)) as events:
                async for event in events:
                    if isinstance(event, ModelReply):
                        reply = event
                    elif hold and isinstance(event, TextPiece | CallPiece):
                        held.append(event)
                    else:
                        yield event
            assert reply is not None
            checked = _Checked.of(reply, request.output)
            if not checked.problem:
                for piece in held:
                    yield piece
                yield _summed(replace(reply, value_json=checked.value_json), first)
                return
            if first is not None:
                raise OutputInvalid(
                    self._info.model_id,
                    f"gave an answer of the wrong form twice: {checked.problem}",
                    after_first_token=not hold,
                    partial_text=reply.text,
                )
            problem, first = checked.problem, reply
            if not hold:
                yield Retraction(reason="OUTPUT_INVALID")
            asked = _mending(asked, reply, problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """What an answer is worth: its canonical value, or what is wrong with it."""

    value_json: bytes = b""
    problem: str = ""

    @classmethod
    def of(cls, reply: ModelReply, output: OutputFormat) -> _Checked:
        if reply.tool_calls:
            return cls()
        try:
            value = read_value(reply.text)
        except ValueError as error:
            return cls(problem=str(error))
        if output.json_schema and (problems := schema_problems(output.json_schema, value)):
            return cls(problem="; ".join(problems))
        return cls(value_json=canonical_json(value))


def read_value(text: str) -> Any:
    """Return the JSON object or value that an answer is, in a fence or prose if need be. Raises ValueError for none."""
    stripped = text.strip()
    try:
        return json.loads(stripped, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        pass
    start = min((at for at in (stripped.find("{"), stripped.find("[")) if at >= 0), default=-1)
    value = mend(stripped[start:]) if start >= 0 else None
    if not isinstance(value, dict | list) or not value:
        raise ValueError("the answer is no JSON")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def check_schema(json_schema: bytes) -> None:
    """Raise InvalidRequest when `json_schema` is no valid JSON Schema."""
    try:
        schema = json.loads(json_schema)
        jsonschema.validators.validator_for(schema).check_schema(schema)
        _validator(json_schema).is_valid({})  # also finds references that lead nowhere
    except (ValueError, TypeError, jsonschema.SchemaError, Unresolvable) as error:
        message = error.message if isinstance(error, jsonschema.SchemaError) else str(error)
        raise InvalidRequest(
            f"the schema of the answer is no JSON Schema: {message}",
            violations=(FieldViolation(field="output.json_schema", description=message),),
        ) from error


def schema_problems(json_schema: bytes, value: Any) -> list[str]:
    """Return what of `value` breaks the schema, each with its place; at most five."""
    try:
        errors = sorted(_validator(json_schema).iter_errors(value), key=lambda error: list(map(str, error.path)))
    except Unresolvable as error:
        return [f"the schema refers to what is not in it: {error}"]
    return [f"at {error.json_path}: {error.message[:300]}" for error in errors[:_MAX_PROBLEMS]]


@lru_cache(maxsize=64)
def _validator(json_schema: bytes) -> Validator:
    schema = json.loads(json_schema)
    # An empty registry: a `$ref` to the network is an error, never a request.
    return jsonschema.validators.validator_for(schema)(schema, registry=Registry())


def _asked(request: ModelRequest, capabilities: frozenset[str]) -> ModelRequest:
    """Return the request in the form the model supports; what it does not is said in the prompt."""
    output = request.output
    if output.json_schema and JSON_SCHEMA in capabilities:
        return request
    native = OutputFormat(json_mode=JSON_MODE in capabilities)
    wanted = "Answer with one JSON object and nothing else: no fence, no words around it."
    if output.json_schema:
        wanted += f" It must match this JSON Schema:\n{output.json_schema.decode()}"
    return replace(request, output=native, messages=_instructed(request.messages, wanted))


def _instructed(messages: Sequence[Message], wanted: str) -> tuple[Message, ...]:
    if messages and messages[0].role is Role.SYSTEM:
        return (text_message(Role.SYSTEM, f"{messages[0].text}\n\n{wanted}"), *messages[1:])
    return (text_message(Role.SYSTEM, wanted), *messages)


def _mending(asked: ModelRequest, reply: ModelReply, problem: str) -> ModelRequest:
    """Return the request that shows the model its answer and what is wrong with it; it may call no tools now."""
    complaint = f"Your answer does not have the form asked for: {problem}. Answer again, with the corrected JSON only."
    answered = text_message(Role.ASSISTANT, reply.text or "(nothing)")
    return replace(asked, messages=(*asked.messages, answered, text_message(Role.USER, complaint)), tool_choice="none")


def _summed(reply: ModelReply, first: ModelReply | None) -> ModelReply:
    return reply if first is None else replace(reply, usage=first.usage + reply.usage)
