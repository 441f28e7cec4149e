"""A model request as the body of a Chat Completions request."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from services.orchestrator.domain.messages import MediaPart, Message, OutputFormat, Role, TextPart, ToolCall, ToolSpec
from services.orchestrator.models import reason
from services.orchestrator.models.model_settings import ModelSettings, StructuredParameter
from services.orchestrator.models.pairing import paired
from services.orchestrator.models.ports import ModelRequest

_ROLES = {Role.SYSTEM: "system", Role.USER: "user", Role.ASSISTANT: "assistant", Role.TOOL: "tool"}


def chat_body(request: ModelRequest, settings: ModelSettings, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON body of a streaming request."""
    body: dict[str, Any] = {
        "model": settings.upstream_name,
        "messages": [_message(message, settings, names) for message in paired(request.messages)],
        "stream": True,
    }
    if settings.stream_usage:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = tool_choice(request.tool_choice)
    body.update(_sampling(request, settings))
    body.update(_output(request.output, settings))
    return body


def tool_choice(choice: str) -> Any:
    """Return auto, none and required as they are, any other word as the name of a tool."""
    if choice in ("", "auto", "none", "required"):
        return choice or "auto"
    return {"type": "function", "function": {"name": choice}}


# The same tools go with every call; nobody changes what is returned.
@lru_cache(maxsize=1024)
def _tool(tool: ToolSpec) -> Mapping[str, Any]:
    parameters = reason.inject(tool.parameters_json)
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


def _message(message: Message, settings: ModelSettings, names: Mapping[str, str]) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": _ROLES[message.role], "content": _content(message)}
    if message.role is Role.TOOL:
        wire["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        wire["content"] = wire["content"] or None
        wire["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": written(call, names)}}
            for call in message.tool_calls
        ]
    if message.reasoning and settings.replay_reasoning:
        wire[settings.replay_reasoning] = message.reasoning
    return wire


def written(call: ToolCall, names: Mapping[str, str]) -> str:
    """Return the arguments of a call as the model wrote them, its reason included."""
    if not call.arguments_json:
        # What was no JSON is replayed as a JSON string: servers that parse the history must be able to.
        return json.dumps({"malformed": call.malformed_arguments}, ensure_ascii=False)
    if not call.reason:
        return call.arguments_json.decode()
    arguments = reason.put_back(json.loads(call.arguments_json), call.reason, names.get(call.name, reason.NAME))
    return json.dumps(arguments, ensure_ascii=False)


def _content(message: Message) -> str | list[dict[str, Any]]:
    """Return a string where the content is text only, since not every server reads a list of parts."""
    if all(isinstance(part, TextPart) for part in message.parts):
        return message.text
    parts: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case TextPart(text=text):
                parts.append({"type": "text", "text": text})
            case MediaPart(is_image=True):
                parts.append({"type": "image_url", "image_url": {"url": media_url(part)}})
            case MediaPart():
                parts.append({"type": "text", "text": f"[file {part.name or part.media_type}: not readable]"})
    if message.role is Role.TOOL:
        # Tool messages hold text only; the picture follows as a user's part in `vision`.
        return "".join(part.get("text", "") for part in parts)
    return parts


def media_url(part: MediaPart) -> str:
    """Return where the provider finds the picture: its URL, or the bytes as a data URL."""
    return part.url or f"data:{part.media_type};base64,{base64.b64encode(part.inline).decode('ascii')}"


def _sampling(request: ModelRequest, settings: ModelSettings) -> dict[str, Any]:
    sampling = settings.sampled(request.sampling)
    wanted = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        settings.max_tokens_parameter: sampling.max_output_tokens,
        "stop": list(sampling.stop) or None,
        "seed": sampling.seed,
        "reasoning_effort": sampling.reasoning_effort or None,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _output(output: OutputFormat, settings: ModelSettings) -> dict[str, Any]:
    if output.json_schema:
        schema = json.loads(output.json_schema)
        if settings.structured is StructuredParameter.GUIDED_JSON:
            return {"guided_json": schema}
        named = {"name": output.name or "answer", "schema": schema, "strict": is_strict(schema)}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    return {"response_format": {"type": "json_object"}} if output.json_mode else {}


def is_strict(schema: Any) -> bool:
    """Tell whether strict mode accepts the schema: every object closed and all its properties required."""
    if isinstance(schema, list):
        return all(is_strict(item) for item in schema)
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(properties):
            return False
    return all(is_strict(value) for value in schema.values())
