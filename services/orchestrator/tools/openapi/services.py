"""HTTP services by name: their documents are read at the start, and again where they come from a URL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from services.chassis.errors import ServiceError
from services.chassis.identity import Principal
from services.orchestrator.tools.http_client import CheckedHttpClient, HttpFailed, HttpLimits, HttpRequest
from services.orchestrator.tools.openapi.document import Document, DocumentInvalid, Operation, parse
from services.orchestrator.tools.openapi.settings import HttpService
from services.orchestrator.tools.openapi.tool import HttpTool
from services.orchestrator.tools.ports import Provided, Tool

_log = logging.getLogger(__name__)
DOCUMENT_LIMITS = HttpLimits(seconds=20.0, max_bytes=8 * 1024 * 1024)
RETRY_SECONDS = 30.0
AGAIN_SECONDS = 3600.0


class HttpServices:
    """Implements ToolProvider. A service whose document cannot be had is missing, and the reason is told."""

    def __init__(self, services: Sequence[tuple[HttpService, CheckedHttpClient]], folder: Path) -> None:
        """Read the documents that are files, relative to `folder`. Raises DocumentInvalid."""
        self._services = {service.name: (service, client) for service, client in services}
        self._tools: dict[str, dict[str, HttpTool]] = {}
        self._missing: dict[str, str] = {}
        self._remote = [pair for pair in services if _is_url(pair[0].document)]
        for service, client in services:
            if _is_url(service.document):
                self._missing[service.name] = "its OpenAPI document was not read yet"
            else:
                self._take(service, client, _read(service, folder))

    async def tools(self, principal: Principal, patterns: tuple[str, ...]) -> Provided:
        """Return the tools of the services that this tenant has."""
        del patterns  # the offer leaves out what the agent does not name
        mine = [name for name, (service, _) in self._services.items() if service.credentials_of(principal.tenant)]
        return Provided(
            tools=tuple(tool for name in mine for tool in self._tools.get(name, {}).values()),
            withheld={f"{name}__*": self._missing[name] for name in mine if name in self._missing},
        )

    async def find(self, principal: Principal, name: str) -> Tool | None:
        """Return one tool of a service that this tenant has."""
        for service_name, tools in self._tools.items():
            if name in tools and self._services[service_name][0].credentials_of(principal.tenant):
                return tools[name]
        return None

    async def watch(self) -> None:
        """Read the documents that come from a URL, for ever, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for service, client in self._remote:
                group.create_task(self._watch(service, client))

    async def _watch(self, service: HttpService, client: CheckedHttpClient) -> None:
        while True:
            known = await self.load(service, client)
            await asyncio.sleep(AGAIN_SECONDS if known else RETRY_SECONDS)

    async def load(self, service: HttpService, client: CheckedHttpClient) -> bool:
        """Read one document from its URL; what was read before stays when that fails. Tell whether it went well."""
        try:
            body = await _fetch(service, client)
            self._take(service, client, await asyncio.to_thread(parse, body))
        except (HttpFailed, DocumentInvalid, ServiceError) as error:
            _log.warning("the OpenAPI document of '%s' cannot be used: %s", service.name, error)
            if service.name not in self._tools:
                self._missing[service.name] = f"its OpenAPI document cannot be used: {error}"
            return False
        return True

    def _take(self, service: HttpService, client: CheckedHttpClient, document: Document) -> None:
        base_url = _base_url(service, document)
        chosen = _chosen(service, document)
        tools = [HttpTool(service, base_url, operation, client) for operation in chosen]
        self._tools[service.name] = {tool.definition.name: tool for tool in tools}
        self._missing.pop(service.name, None)


async def _fetch(service: HttpService, client: CheckedHttpClient) -> bytes:
    reply = await client.send(HttpRequest(method="GET", url=service.document), DOCUMENT_LIMITS)
    if reply.status != 200:
        raise DocumentInvalid(f"its URL answered {reply.status}")
    if reply.truncated:
        raise DocumentInvalid(f"it is longer than {DOCUMENT_LIMITS.max_bytes:,} bytes")
    return reply.body


def _is_url(document: str) -> bool:
    return urlsplit(document).scheme in ("http", "https")


def _read(service: HttpService, folder: Path) -> Document:
    path = folder / service.document
    try:
        return parse(path.read_bytes())
    except (OSError, DocumentInvalid) as error:
        raise DocumentInvalid(f"http_tools.{service.name}.document: '{path.name}' cannot be used: {error}") from error


def _base_url(service: HttpService, document: Document) -> str:
    found = service.base_url or document.server
    if not service.base_url and _is_url(service.document):
        found = urljoin(service.document, found or "/")
    if not _is_url(found) or "{" in found:
        raise DocumentInvalid(
            f"http_tools.{service.name}: the document names no server that can be called ('{found}'); set base_url"
        )
    return found


def _chosen(service: HttpService, document: Document) -> list[Operation]:
    """Return the allowed operations. Raises DocumentInvalid for a name that the document does not have."""
    names = {name: op for op in document.operations for name in (op.operation_id, f"{op.method} {op.path}")}
    unknown = [one for one in (*service.operations, *service.read) if one != "*" and one not in names]
    reasons = [f"'{one}': {document.unusable.get(one, 'the document has no such operation')}" for one in unknown]
    if reasons:
        raise DocumentInvalid(f"http_tools.{service.name}: {'; '.join(reasons)}")
    if wrong := [one for one in service.read if names[one].method not in ("GET", "HEAD")]:
        raise DocumentInvalid(f"http_tools.{service.name}.read: {', '.join(wrong)}: only GET can be set to read")
    if "*" not in service.operations:
        wanted = [names[one] for one in service.operations]
        return list({(op.method, op.path): op for op in wanted}.values())
    for name, reason in document.unusable.items():
        _log.warning("operation '%s' of '%s' is no tool: %s", name, service.name, reason)
    return list(document.operations)
