"""The Responses API as a dialect of the adapter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from services.orchestrator.domain.messages import MediaPart, Message, Role, TextPart, ToolSpec
from services.orchestrator.models import reason
from services.orchestrator.models.chain import link, sealed
from services.orchestrator.models.chat_chunks import BadChunk, ChunkError, chunk_error, read_usage
from services.orchestrator.models.chat_wire import is_strict, media_url, written
from services.orchestrator.models.model_settings import ModelSettings
from services.orchestrator.models.pairing import paired
from services.orchestrator.models.ports import ModelRequest
from services.orchestrator.models.reply import ReplyBuilder


class ResponsesDialect:
    """`POST /responses`."""

    path = "/responses"

    def bodies(self, request: ModelRequest, settings: ModelSettings, names: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the body that goes on from a stored response, if there is one, and the one that carries everything."""
        full = _body(request, settings, names, request.messages)
        stored = link(request.messages, settings, request) if settings.store else None
        if stored is None:
            return [full]
        system = tuple(message for message in request.messages if message.role is Role.SYSTEM)
        continued = _body(request, settings, names, (*system, *stored.new))
        return [{**continued, "previous_response_id": stored.response_id}, full]

    def decoder(self, reply: ReplyBuilder) -> ResponsesEvents:
        """Return a reader of events."""
        return ResponsesEvents(reply)

    def response_id(self, reply: ReplyBuilder, request: ModelRequest, settings: ModelSettings) -> str:
        """Return the response's id with the key of its chain, empty when the provider keeps nothing."""
        return sealed(reply.response_id, settings, request) if settings.store else ""


class ResponsesEvents:
    """Reads one stream of events into `reply`."""

    def __init__(self, reply: ReplyBuilder) -> None:
        self._reply = reply
        self._spoken: set[int] = set()
        self.done = False

    @property
    def complete(self) -> bool:
        """Whether the response was said to be complete, or cut by a limit."""
        return self.done

    def take(self, payload: bytes) -> None:
        """Read the data of one event. Raises BadChunk or ChunkError."""
        try:
            event = orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            raise BadChunk(str(error)) from error
        if not isinstance(event, dict):
            raise BadChunk("an event is an object")
        if event.get("object") == "response":
            self._whole(event)
            return
        self._event(event)

    def _event(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                self._spoken.add(_index(event))
                self._reply.add_text(str(event.get("delta", "")))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._reply.add_thinking(str(event.get("delta", "")))
            case "response.output_item.added":
                self._begin(_index(event), event.get("item"))
            case "response.function_call_arguments.delta":
                self._spoken.add(_index(event))
                self._call(_index(event), "", str(event.get("delta", "")))
            case "response.output_item.done":
                self._item(_index(event), event.get("item"))
            case "response.completed" | "response.incomplete":
                self._end(event.get("response"))
            case "response.failed":
                response = event.get("response")
                raise chunk_error(response.get("error") if isinstance(response, dict) else "failed")
            case "error":
                raise ChunkError(str(event.get("message") or "failed"), str(event.get("code") or ""))

    def _begin(self, index: int, item: Any) -> None:
        if isinstance(item, dict) and item.get("type") == "function_call":
            self._call(index, str(item.get("name", "")), "")

    def _item(self, index: int, item: Any) -> None:
        """Take a finished item, unless its parts have come already."""
        if not isinstance(item, dict) or index in self._spoken:
            return
        self._spoken.add(index)
        if item.get("type") == "function_call":
            self._call(index, str(item.get("name", "")), str(item.get("arguments", "")))
        elif item.get("type") == "message":
            for part in _list(item.get("content")):
                if isinstance(part, dict):
                    self._reply.add_text(str(part.get("text") or part.get("refusal") or ""))

    def _call(self, index: int, name: str, fragment: str) -> None:
        self._reply.add_calls([{"index": index, "function": {"name": name, "arguments": fragment}}])

    def _whole(self, response: dict[str, Any]) -> None:
        """Take a response that came in one piece."""
        if response.get("error"):
            raise chunk_error(response["error"])
        for index, item in enumerate(_list(response.get("output"))):
            self._item(index, item)
        self._end(response)

    def _end(self, response: Any) -> None:
        if not isinstance(response, dict):
            raise BadChunk("a response is an object")
        self.done = True
        self._reply.response_id = str(response.get("id") or "")
        self._reply.model = str(response.get("model") or "")
        if isinstance(response.get("usage"), dict):
            self._reply.usage = read_usage(response["usage"])
        details = response.get("incomplete_details")
        self._reply.finished(str(details.get("reason")) if isinstance(details, dict) else "stop")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _index(event: Mapping[str, Any]) -> int:
    index = event.get("output_index")
    return index if isinstance(index, int) else 0


def _body(
    request: ModelRequest, settings: ModelSettings, names: Mapping[str, str], messages: Sequence[Message]
) -> dict[str, Any]:
    sampling = settings.sampled(request.sampling)
    body: dict[str, Any] = {
        "model": settings.upstream_name,
        "input": [item for message in paired(messages) for item in _items(message, names)],
        "stream": True,
        "store": settings.store,
    }
    instructions = "\n\n".join(message.text for message in messages if message.role is Role.SYSTEM)
    optional = {
        "instructions": instructions or None,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_output_tokens": sampling.max_output_tokens,
        "reasoning": {"effort": sampling.reasoning_effort} if sampling.reasoning_effort else None,
        "text": _format(request),
    }
    body.update({name: value for name, value in optional.items() if value is not None})
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _tool_choice(request.tool_choice)
    return body


def _items(message: Message, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the input items of a message; the system's go into the instructions."""
    match message.role:
        case Role.SYSTEM:
            return []
        case Role.TOOL:
            return [{"type": "function_call_output", "call_id": message.tool_call_id, "output": message.text}]
        case Role.ASSISTANT:
            spoken = [{"role": "assistant", "content": message.text}] if message.text else []
            return spoken + [
                {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": written(call, names)}
                for call in message.tool_calls
            ]
        case Role.USER:
            return [{"role": "user", "content": [_part(part) for part in message.parts]}]


def _part(part: TextPart | MediaPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    if part.is_image:
        return {"type": "input_image", "image_url": media_url(part)}
    return {"type": "input_text", "text": f"[file {part.name or part.media_type}: not readable]"}


# The same tools go with every call; nobody changes what is returned.
@lru_cache(maxsize=1024)
def _tool(tool: ToolSpec) -> Mapping[str, Any]:
    parameters = reason.inject(tool.parameters_json)
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": parameters,
        "strict": False,
    }


def _tool_choice(choice: str) -> Any:
    if choice in ("", "auto", "none", "required"):
        return choice or "auto"
    return {"type": "function", "name": choice}


def _format(request: ModelRequest) -> dict[str, Any] | None:
    output = request.output
    if output.json_schema:
        schema = json.loads(output.json_schema)
        named = {"type": "json_schema", "name": output.name or "answer", "schema": schema, "strict": is_strict(schema)}
        return {"format": named}
    return {"format": {"type": "json_object"}} if output.json_mode else None
