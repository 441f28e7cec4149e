"""An HTTP request to a public address, or to one that the operator allows. Nothing is sent unasked by default."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from services.chassis.canonical import canonical_json
from services.orchestrator.domain.messages import ToolSpec
from services.orchestrator.models.errors import UrlForbidden
from services.orchestrator.tools.http_client import CheckedHttpClient, HttpFailed, HttpReply, HttpRequest
from services.orchestrator.tools.ports import Consent, Effect, ToolContext, ToolDefinition, ToolResult

# The first line of a result.
STATUS_LINE = re.compile(r"^HTTP (\d{3})", re.MULTILINE)
_TEXTUAL = re.compile(r"text/|application/(?:[\w.-]+\+)?(?:json|xml|yaml|x-www-form-urlencoded|javascript)")
_TEXTS = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
_PARAMETERS = canonical_json(
    {
        "type": "object",
        "properties": {
            "url": {"type": "string", "pattern": "^https?://", "maxLength": 8192},
            "method": {"enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]},
            "headers": {**_TEXTS, "description": "Without credentials: whatever stands here is stored."},
            "query": {**_TEXTS, "description": "Added to the URL."},
            "body": {"description": "A text is sent as it is, anything else as JSON."},
        },
        "required": ["url"],
        "additionalProperties": False,
    }
)


class HttpRequestTool:
    """Sends one request. A reply of 400 and above is a failure that tells what came back."""

    definition = ToolDefinition(
        spec=ToolSpec(
            name="http_request",
            description="Send an HTTP request to a public address. A person is asked first.",
            parameters_json=_PARAMETERS,
        ),
        title="Send an HTTP request",
        effect=Effect.SIDE_EFFECT,
        consent=Consent.ASK,
        repeatable=True,
        bound_only=True,
        foreign=True,
    )

    def __init__(self, client: CheckedHttpClient) -> None:
        self._client = client

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return status, media type and body."""
        try:
            reply = await self._client.send(_request(arguments))
        except (UrlForbidden, HttpFailed) as error:
            return ToolResult(text=getattr(error, "message", str(error)), failed=True)
        return ToolResult(text=_told(reply), failed=reply.status >= 400)


def _request(arguments: Mapping[str, Any]) -> HttpRequest:
    url, body = arguments["url"], arguments.get("body")
    if query := {name: _text(value) for name, value in arguments.get("query", {}).items()}:
        url += ("&" if "?" in url else "?") + urlencode(query)
    headers = {name: _text(value) for name, value in arguments.get("headers", {}).items()}
    if body is not None and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = "text/plain; charset=utf-8" if isinstance(body, str) else "application/json"
    content = b"" if body is None else body.encode() if isinstance(body, str) else canonical_json(body)
    return HttpRequest(method=arguments.get("method", "GET"), url=url, headers=headers, body=content)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _told(reply: HttpReply) -> str:
    head = f"HTTP {reply.status} {reply.media_type}"
    if not reply.body:
        return head
    if not _TEXTUAL.match(reply.media_type):
        return f"{head}\n\n{len(reply.body)} bytes that are no text"
    return f"{head}{' (cut)' if reply.truncated else ''}\n\n{reply.text}"
