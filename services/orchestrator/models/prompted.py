"""Tools for a model without function calling: offered in the prompt, called in its text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

from services.orchestrator.domain.messages import Message, Role, ToolCall, ToolSpec, text_message
from services.orchestrator.models import reason
from services.orchestrator.models.layers import Events, TimedModel
from services.orchestrator.models.pairing import paired
from services.orchestrator.models.ports import CallPiece, ModelReply, ModelRequest, Retraction, TextPiece
from services.orchestrator.models.prompted_calls import CallFilter, read_calls
from services.orchestrator.models.reason import reason_names
from services.orchestrator.models.timing import CallClock

_OFFER = """\
You can use tools. To call one, answer with one JSON object in a fence and nothing else:
```json
{{"tool": "NAME", "arguments": {{…}}}}
```
The result comes back in the next message. Call a tool only when you need it; otherwise answer in plain text.
{choice}
The tools, each with the JSON Schema of its arguments:
{tools}"""


class PromptedTools:
    """Turns offered tools into instructions and JSON in the answer into calls.

    What may still become a call is held back; everything else streams. JSON that is no call is delivered as text, once.
    """

    def __init__(self, inner: TimedModel) -> None:
        self._inner = inner

    def stream(self, request: ModelRequest, call: CallClock) -> Events:
        """Return the inner stream as it is when neither tools nor earlier calls are in the request."""
        if not request.tools and not any(m.tool_calls or m.role is Role.TOOL for m in request.messages):
            return self._inner.stream(request, call)
        return self._prompted(request, call)

    async def _prompted(self, request: ModelRequest, call: CallClock) -> Events:
        tools = () if request.tool_choice == "none" else request.tools
        names = reason_names(tools)
        inner = replace(request, messages=_as_text(request, tools), tools=(), tool_choice="none")
        filter_ = CallFilter(active=bool(tools))
        async with aclosing(self._inner.stream(inner, call)) as events:
            async for event in events:
                match event:
                    case TextPiece(text=text):
                        if shown := filter_.feed(text):
                            yield TextPiece(text=shown)
                    case Retraction():
                        filter_ = CallFilter(active=bool(tools))
                        yield event
                    case ModelReply():
                        calls = read_calls(filter_.held, tools, request.call_id, call.number, names)
                        if filter_.held and not calls:
                            yield TextPiece(text=filter_.held)
                        for made in calls:
                            yield CallPiece(call_id=made.call_id, name=made.name, arguments_fragment=_shown(made))
                        yield _with_calls(event, calls, filter_)
                    case _:
                        yield event


def _shown(call: ToolCall) -> str:
    return call.arguments_json.decode() or call.malformed_arguments


def _with_calls(reply: ModelReply, calls: Sequence[ToolCall], filter_: CallFilter) -> ModelReply:
    if not calls:
        return reply
    finish = "tool_calls" if reply.finish_reason == "stop" else reply.finish_reason
    return replace(reply, text=filter_.shown.rstrip(), tool_calls=tuple(calls), finish_reason=finish)


def _as_text(request: ModelRequest, tools: Sequence[ToolSpec]) -> tuple[Message, ...]:
    """Return the messages with calls and results as text, and the offer of tools behind the system prompt."""
    names = reason_names(request.tools)
    messages = [_message_as_text(message, names) for message in paired(request.messages)]
    if tools:
        offer = _offer(tools, request.tool_choice)
        if messages and messages[0].role is Role.SYSTEM:
            messages[0] = text_message(Role.SYSTEM, f"{messages[0].text}\n\n{offer}")
        else:
            messages.insert(0, text_message(Role.SYSTEM, offer))
    return tuple(_joined(messages))


def _offer(tools: Sequence[ToolSpec], choice: str) -> str:
    described = [
        f"- {tool.name}: {tool.description}\n  {json.dumps(reason.inject(tool.parameters_json), ensure_ascii=False)}"
        for tool in tools
    ]
    demand = {"auto": "", "": "", "required": "You must call a tool now."}.get(choice, f"Call the tool {choice} now.")
    return _OFFER.format(choice=demand, tools="\n".join(described))


def _message_as_text(message: Message, names: dict[str, str]) -> Message:
    if message.role is Role.TOOL:
        told = text_message(Role.USER, f"Result of the tool {message.tool_name} (call {message.tool_call_id}):\n")
        return replace(told, parts=(*told.parts, *message.parts))
    if not message.tool_calls:
        return message
    blocks = [_call_as_text(call, names) for call in message.tool_calls]
    return text_message(Role.ASSISTANT, "\n\n".join(part for part in (message.text, *blocks) if part))


def _call_as_text(call: ToolCall, names: dict[str, str]) -> str:
    if not call.arguments_json:
        return call.malformed_arguments
    arguments = reason.put_back(json.loads(call.arguments_json), call.reason, names.get(call.name, reason.NAME))
    written = json.dumps({"tool": call.name, "arguments": arguments}, ensure_ascii=False)
    return f"```json\n{written}\n```"


def _joined(messages: Sequence[Message]) -> list[Message]:
    """Join neighbours of one role: some models insist that user and assistant take turns."""
    out: list[Message] = []
    for message in messages:
        if out and out[-1].role is message.role and message.role is not Role.SYSTEM:
            gap = text_message(message.role, "\n\n").parts
            out[-1] = replace(out[-1], parts=(*out[-1].parts, *gap, *message.parts))
        else:
            out.append(message)
    return out
