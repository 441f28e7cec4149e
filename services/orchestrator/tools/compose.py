"""The toolbox put together: the one place that knows every tool of the suite."""

from __future__ import annotations

from dataclasses import dataclass

from services.chassis.clock import Clock
from services.orchestrator.models.ports import Catalogue
from services.orchestrator.ports import Retrieval, Sandbox
from services.orchestrator.tools.ask_user import AskUserTool, WaitForUserTool
from services.orchestrator.tools.current_time import CurrentTimeTool
from services.orchestrator.tools.fetch_page import FetchPageTool
from services.orchestrator.tools.library import Library, Web
from services.orchestrator.tools.list_files import ListFilesTool
from services.orchestrator.tools.ports import Tool
from services.orchestrator.tools.read_document import ReadDocumentTool
from services.orchestrator.tools.run_code import RunCodeTool
from services.orchestrator.tools.search import SearchTool
from services.orchestrator.tools.search_web import SearchWebTool
from services.orchestrator.tools.summarize_document import SummarizeDocumentTool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNeeds:
    """What the suite's own tools stand on."""

    retrieval: Retrieval
    library: Library
    web: Web
    sandbox: Sandbox
    catalogue: Catalogue
    clock: Clock


def own_tools(needs: ToolNeeds) -> tuple[Tool, ...]:
    """Return the suite's own tools."""
    return (
        SearchTool(needs.retrieval),
        ListFilesTool(needs.library),
        ReadDocumentTool(needs.library),
        SummarizeDocumentTool(needs.library, needs.catalogue),
        SearchWebTool(needs.web),
        FetchPageTool(needs.web),
        RunCodeTool(needs.sandbox),
        CurrentTimeTool(needs.clock),
        AskUserTool(),
        WaitForUserTool(),
    )
