"""The objects of the Responses wire: output items, the response around them, usage and annotations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from proctor.agent.v1 import agent_pb2
from services.gateway.projections import sources

Frame = dict[str, Any]
# Whose tools the suite's own tools are, on a wire that knows only MCP servers and the caller's functions.
SERVER_LABEL = "proctor"

# What a response says of its request when the request is no longer at hand.
DEFAULTS: Frame = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "service_tier": "default",
    "store": True,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
}


def message(item_id: str, text: str, annotations: list[Frame], status: str) -> Frame:
    """Return an assistant's message; without content while it has only just begun."""
    content = [text_part(text, annotations)] if status == "completed" else []
    return {"id": item_id, "type": "message", "role": "assistant", "status": status, "content": content}


def text_part(text: str, annotations: list[Frame]) -> Frame:
    """Return a message's text as a content part."""
    return {"type": "output_text", "text": text, "annotations": annotations, "logprobs": []}


def reasoning(item_id: str, text: str, status: str) -> Frame:
    """Return a reasoning item."""
    content = [{"type": "reasoning_text", "text": text}] if status == "completed" else []
    return {"id": item_id, "type": "reasoning", "summary": [], "content": content, "status": status}


def function_call(item_id: str, call_id: str, name: str, arguments: str, status: str) -> Frame:
    """Return a call of one of the caller's functions."""
    return {
        "id": item_id,
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def tool_call(item_id: str, name: str, arguments: str, status: str, output: str | None, error: str | None) -> Frame:
    """Return a call of one of the suite's own tools."""
    return {
        "id": item_id,
        "type": "mcp_call",
        "server_label": SERVER_LABEL,
        "name": name,
        "arguments": arguments,
        "status": status,
        "output": output,
        "error": None if error is None else {"type": "mcp_tool_execution_error", "content": error},
    }


def approval_request(item_id: str, name: str, arguments: str, facts: Mapping[str, Any]) -> Frame:
    """Return the question whether a tool may run."""
    return {
        "id": item_id,
        "type": "mcp_approval_request",
        "server_label": SERVER_LABEL,
        "name": name,
        "arguments": arguments,
        "proctor": dict(facts),
    }


def citations_of(text: str, citations: Iterable[agent_pb2.Citation]) -> list[Frame]:
    """Return the text's annotations: web pages by URL, documents by file."""
    found: list[Frame] = []
    for start, end, evidence in sources.marks(text, citations):
        if evidence.url:
            place = {"start_index": start, "end_index": end}
            found.append({"type": "url_citation", "url": evidence.url, "title": evidence.title, **place})
        else:
            name = evidence.title or evidence.document_id
            found.append({"type": "file_citation", "file_id": evidence.document_id, "filename": name, "index": start})
    return found


def usage(spent: agent_pb2.Usage | None) -> Frame | None:
    """Return the tokens, None while they are not known."""
    if spent is None:
        return None
    return {
        "input_tokens": spent.input_tokens,
        "input_tokens_details": {"cached_tokens": spent.cached_input_tokens, "cache_write_tokens": 0},
        "output_tokens": spent.output_tokens,
        "output_tokens_details": {"reasoning_tokens": spent.reasoning_tokens},
        "total_tokens": spent.input_tokens + spent.output_tokens,
    }
