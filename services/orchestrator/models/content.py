"""Prompts and answers as OpenTelemetry's GenAI conventions write them on a span, for operators who ask for content.

The form is their JSON: a list of messages, each with a role and typed parts. Files are named, never included.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from services.chassis import names
from services.orchestrator.domain.messages import MediaPart, Message, Role, ToolCall
from services.orchestrator.models.ports import ModelReply, ModelRequest


def request_content(request: ModelRequest) -> dict[str, str]:
    """Return the attributes that hold a request's instructions and messages."""
    instructions = [part for m in request.messages if m.role is Role.SYSTEM for part in _parts(m)]
    messages = [_message(m) for m in request.messages if m.role is not Role.SYSTEM]
    content = {names.GEN_AI_INPUT_MESSAGES: _json(messages)}
    if instructions:
        content[names.GEN_AI_SYSTEM_INSTRUCTIONS] = _json(instructions)
    return content


def reply_content(reply: ModelReply) -> dict[str, str]:
    """Return the attribute that holds a reply."""
    parts = [{"type": "reasoning", "content": reply.reasoning}] if reply.reasoning else []
    parts += [{"type": "text", "content": reply.text}] if reply.text else []
    parts += [_call(call) for call in reply.tool_calls]
    message = {"role": "assistant", "parts": parts, "finish_reason": reply.finish_reason}
    return {names.GEN_AI_OUTPUT_MESSAGES: _json([message])}


def _message(message: Message) -> dict[str, Any]:
    return {"role": message.role.name.lower(), "parts": _parts(message)}


def _parts(message: Message) -> list[dict[str, Any]]:
    if message.tool_call_id:
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": message.text}]
    parts: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, MediaPart):
            parts.append({"type": "file", "mime_type": part.media_type, "file_id": part.artifact_id or part.name})
        else:
            parts.append({"type": "text", "content": part.text})
    return parts + [_call(call) for call in message.tool_calls]


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = json.loads(call.arguments_json) if call.arguments_json else call.malformed_arguments
    return {"type": "tool_call", "id": call.call_id, "name": call.name, "arguments": arguments}


def _json(value: Sequence[Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
