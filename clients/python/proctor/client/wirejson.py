"""Messages as the gateway's JSON has them: proto field names, integers as numbers, `…_json` bytes embedded."""

from __future__ import annotations

import base64
import json
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from proctor.orchestrator.v1.run_service_pb2 import CallDecision, OnDisconnect, OnRetraction, StartRunRequest

M = TypeVar("M", bound=Message)


def read(value: dict[str, Any], message: M) -> M:
    """Fill `message`; fields of a newer server are ignored."""
    return json_format.ParseDict(_encoded(value, message.DESCRIPTOR), message, ignore_unknown_fields=True)


def start_body(request: StartRunRequest) -> dict[str, Any]:
    """Return the body of `POST /v1/runs`."""
    body = _decoded(request)
    for name, enum in (("on_disconnect", OnDisconnect), ("on_retraction", OnRetraction)):
        if name in body:
            number = getattr(request, name)
            body[name] = enum.Name(number).removeprefix(f"{name.upper()}_").lower()
    if request.HasField("hold"):
        body["hold"] = request.hold.ToNanoseconds() / 1e9
    if request.budget.HasField("wall_time"):
        body["budget"]["wall_time"] = request.budget.wall_time.ToNanoseconds() / 1e9
    body.pop("stateless", None)
    if "history" in body:
        body["history"] = [_history(message) for message in body["history"]]
    return body


def decision_body(decision: CallDecision) -> dict[str, Any]:
    """Return one decision as the resume route takes it."""
    body: dict[str, Any] = {"call_id": decision.call_id}
    match decision.WhichOneof("decision"):
        case "approval":
            body["approval"] = _verdict(decision)
        case "answers":
            given = json.loads(decision.answers.answers_json or b"{}")
            body["answers"] = {"answers": given, "skipped": decision.answers.skipped}
        case "client_tool":
            result = _decoded(decision.client_tool).get("result", [])
            body["client_tool"] = {"result": result, "failed": decision.client_tool.failed}
        case _:
            body["continue_with"] = {"input": _decoded(decision.continue_with).get("input", [])}
    return body


def _verdict(decision: CallDecision) -> dict[str, Any]:
    approval = decision.approval
    verdict = approval.WhichOneof("verdict") or ""
    value: dict[str, Any] = {"verdict": verdict, "comment": approval.comment}
    if verdict == "edit":
        value["arguments"] = json.loads(approval.edit.arguments_json)
    if verdict == "approve" and approval.approve.remember:
        value["remember"] = {1: "once", 2: "conversation", 3: "always"}[approval.approve.remember]
    return value


def _history(message: dict[str, Any]) -> dict[str, Any]:
    known: dict[str, Any] = {
        name: message[name] for name in ("tool_call_id", "tool_name", "reasoning") if name in message
    }
    calls = [
        {name: call[name] for name in ("call_id", "name", "arguments_json") if name in call}
        for call in message.get("tool_calls", [])
    ]
    role = message["role"].removeprefix("ROLE_").lower()
    return {"role": role, "content": message.get("parts", []), "tool_calls": calls, **known}


def _decoded(message: Message) -> dict[str, Any]:
    value = json_format.MessageToDict(message, preserving_proto_field_name=True)
    result: dict[str, Any] = _walk(
        value, message.DESCRIPTOR, lambda text: json.loads(base64.b64decode(text) or b"null")
    )
    return result


def _encoded(value: Any, descriptor: Any) -> Any:
    return _walk(value, descriptor, _to_base64)


def _from_base64(text: str) -> Any:
    return json.loads(base64.b64decode(text) or b"null")


def _to_base64(value: Any) -> str:
    return base64.b64encode(json.dumps(value, ensure_ascii=False).encode()).decode()


def _walk(value: Any, descriptor: Any, convert: Any) -> Any:
    """Return `value` with `convert` applied to every bytes field that holds JSON, and 64-bit integers as they are."""
    if not isinstance(value, dict):
        return value
    result: dict[str, Any] = {}
    for name, item in value.items():
        field = descriptor.fields_by_name.get(name)
        if field is None:
            result[name] = item
        elif field.type == FieldDescriptor.TYPE_BYTES and (name.endswith("_json") or name.startswith("json_")):
            if item is not None:
                result[name] = convert(item)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            inner = field.message_type
            many = isinstance(item, list)
            result[name] = [_walk(one, inner, convert) for one in item] if many else _walk(item, inner, convert)
        else:
            result[name] = item
    return result
