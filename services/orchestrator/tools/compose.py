"""The toolbox put together: the one place that knows every tool of the suite."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from services.chassis.clock import Clock
from services.orchestrator.adapters.tools_toml import open_databases, read_tools
from services.orchestrator.memory.memories import Memories
from services.orchestrator.ports import Retrieval, Sandbox
from services.orchestrator.tools.ask_user import AskUserTool, WaitForUserTool
from services.orchestrator.tools.current_time import CurrentTimeTool
from services.orchestrator.tools.fetch_page import FetchPageTool
from services.orchestrator.tools.http_client import CheckedHttpClient, guard_of
from services.orchestrator.tools.http_request import HttpRequestTool
from services.orchestrator.tools.library import Library, Web
from services.orchestrator.tools.list_files import ListFilesTool
from services.orchestrator.tools.openapi.services import HttpServices
from services.orchestrator.tools.ports import Tool
from services.orchestrator.tools.read_document import ReadDocumentTool
from services.orchestrator.tools.remember import RecallTool, RememberTool
from services.orchestrator.tools.request_approval import RequestApprovalTool
from services.orchestrator.tools.run_code import RunCodeTool
from services.orchestrator.tools.search import SearchTool
from services.orchestrator.tools.search_web import SearchWebTool
from services.orchestrator.tools.summarize_document import SummarizeDocumentTool

if TYPE_CHECKING:
    from services.orchestrator.tools.sql.query_sql import QuerySqlTool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNeeds:
    """What the suite's own tools stand on."""

    retrieval: Retrieval
    library: Library
    web: Web
    memories: Memories
    sandbox: Sandbox
    clock: Clock
    http: CheckedHttpClient


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTools:
    """What the operator opened in proctor.toml."""

    tools: tuple[Tool, ...]
    services: HttpServices
    watchers: tuple[Callable[[], Coroutine[None, None, None]], ...]

    async def watch(self) -> None:
        """Keep what is known of databases and services fresh, for ever, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watch in self.watchers:
                group.create_task(watch())


def opened_tools(config: Path, environ: Mapping[str, str]) -> OpenedTools:
    """Return the tools of databases and HTTP services. Raises ToolsInvalid and DocumentInvalid."""
    settings = read_tools(config, environ)
    tools: tuple[QuerySqlTool, ...] = ()
    if databases := open_databases(settings, config.parent):
        # The parser of SQL is loaded only where a database is opened.
        from services.orchestrator.tools.sql.query_sql import QuerySqlTool

        tools = (QuerySqlTool(databases),)
    pairs = [(service, CheckedHttpClient(guard_of(service.networks))) for service in settings.services]
    services = HttpServices(pairs, config.parent)
    watchers = (*(tool.watch for tool in tools), services.watch)
    return OpenedTools(tools=tools, services=services, watchers=watchers)


def own_tools(needs: ToolNeeds) -> tuple[Tool, ...]:
    """Return the suite's own tools."""
    return (
        SearchTool(needs.retrieval),
        ListFilesTool(needs.library),
        ReadDocumentTool(needs.library),
        SummarizeDocumentTool(needs.library),
        SearchWebTool(needs.web),
        FetchPageTool(needs.web),
        RememberTool(needs.memories),
        RecallTool(needs.memories),
        RunCodeTool(needs.sandbox),
        CurrentTimeTool(needs.clock),
        AskUserTool(),
        WaitForUserTool(),
        HttpRequestTool(needs.http),
        RequestApprovalTool(),
    )
