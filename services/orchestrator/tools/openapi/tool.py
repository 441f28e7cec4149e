"""One operation of an HTTP service as a tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from services.orchestrator.domain.messages import MediaPart, ToolSpec
from services.orchestrator.mcp.naming import tool_name
from services.orchestrator.models.errors import UrlForbidden
from services.orchestrator.tools.http_client import CheckedHttpClient, HttpFailed, HttpLimits, HttpReply, HttpRequest
from services.orchestrator.tools.openapi.document import Operation
from services.orchestrator.tools.openapi.requests import ArgumentUnusable, make_request
from services.orchestrator.tools.openapi.settings import HttpCredentials, HttpService
from services.orchestrator.tools.ports import Consent, Effect, ToolContext, ToolDefinition, ToolResult

_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_TEXTUAL = ("application/json", "application/xml", "application/yaml", "application/javascript")
# A secret shorter than this is not looked for in answers: it would be found in every word.
_SHORTEST_SECRET = 6


class HttpTool:
    """Calls one operation. Credentials are read when the request is sent; no argument, event or span holds them."""

    def __init__(self, service: HttpService, base_url: str, operation: Operation, client: CheckedHttpClient) -> None:
        self._service = service
        self._base_url = base_url
        self._operation = operation
        self._client = client
        self.definition = _definition(service, operation)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return the answer: text cut to the service's bound, a picture as a picture, other bytes by their size."""
        credentials = self._service.credentials_of(context.principal.tenant)
        if credentials is None:
            return ToolResult(text=f"this tenant does not have the service '{self._service.name}'", failed=True)
        try:
            request = make_request(self._operation, self._base_url, arguments)
        except ArgumentUnusable as error:
            return ToolResult(text=f"The call was not sent: {error}", failed=True)
        limits = HttpLimits(seconds=self._service.timeout / timedelta(seconds=1), max_bytes=self._service.max_bytes)
        try:
            reply = await self._client.send(self._credited(request, credentials, context), limits)
        except UrlForbidden as error:
            return ToolResult(text=f"The call was not sent: {error.message}.", failed=True)
        except HttpFailed as error:
            # Whether the service has acted on it nobody knows: only a read is sure to have changed nothing.
            unknown = error.sent and self.definition.effect is Effect.SIDE_EFFECT
            told = " Whether it took effect is unknown; do not repeat it, tell the user." if unknown else ""
            return ToolResult(text=f"{error}.{told}", failed=True, unknown=unknown)
        return _result(reply, credentials)

    def _credited(self, request: HttpRequest, credentials: HttpCredentials, context: ToolContext) -> HttpRequest:
        query = urlencode({k: str.__str__(v) for k, v in credentials.query.items()}, quote_via=quote)
        joint = "&" if "?" in request.url else "?"
        url = f"{request.url}{joint}{query}" if query else request.url
        headers = dict(request.headers)
        if self._service.idempotency_header:
            headers[self._service.idempotency_header] = context.key
        # An argument cannot take the place of a credential.
        taken = {name.lower() for name in credentials.headers}
        headers = {name: value for name, value in headers.items() if name.lower() not in taken}
        secrets = {name: str.__str__(value) for name, value in credentials.headers.items()}
        return replace(request, url=url, headers=headers, secrets=secrets)


def _definition(service: HttpService, operation: Operation) -> ToolDefinition:
    reads = operation.operation_id in service.read or f"{operation.method} {operation.path}" in service.read
    effect = Effect.READ if reads else Effect.IDEMPOTENT if service.idempotency_header else Effect.SIDE_EFFECT
    return ToolDefinition(
        spec=ToolSpec(
            name=tool_name(service.name, operation.operation_id),
            description=operation.description,
            parameters_json=operation.parameters_json,
        ),
        title=f"{service.name}: {operation.description.splitlines()[0][:80]}",
        effect=effect,
        consent=Consent.ALLOW if reads else Consent.ASK,
        deadline=service.timeout + timedelta(seconds=5),
        narrowable=True,
        foreign=True,
    )


def _result(reply: HttpReply, credentials: HttpCredentials) -> ToolResult:
    failed = reply.status >= 300
    head = f"HTTP {reply.status} {_phrase(reply.status)}".rstrip()
    if reply.media_type in _IMAGES and not reply.truncated and not failed:
        picture = MediaPart(media_type=reply.media_type, is_image=True, inline=reply.body)
        return ToolResult(text=f"{head}: a picture, {len(reply.body):,} bytes", images=(picture,))
    if reply.body and not _is_text(reply.media_type):
        body = f"[{len(reply.body):,} bytes of {reply.media_type}, not shown]"
    else:
        body = reply.text
    for secret in credentials.secrets:
        if len(secret) >= _SHORTEST_SECRET:
            body = body.replace(secret, "[secret]")
    cut = "\n[the answer was longer and is cut here]" if reply.truncated else ""
    return ToolResult(text=f"{head}\n{body}{cut}" if body else head, failed=failed)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _is_text(media_type: str) -> bool:
    return media_type.startswith(("text/", *_TEXTUAL)) or media_type.endswith(("+json", "+xml"))
