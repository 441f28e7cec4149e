"""What is wrong in proctor.toml, told as wrong settings are: every problem, no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.chassis.settings import SettingsError
from services.orchestrator.adapters.agents_toml import AgentsInvalid
from services.orchestrator.adapters.tools_toml import ToolsInvalid
from services.orchestrator.guardrails.config_file import GuardrailsInvalid
from services.orchestrator.mcp.config_file import McpInvalid
from services.orchestrator.models.catalogue_file import ModelsInvalid
from services.orchestrator.tools.openapi.document import DocumentInvalid

_FAULTS = (AgentsInvalid, DocumentInvalid, GuardrailsInvalid, McpInvalid, ModelsInvalid, ToolsInvalid)


@contextmanager
def told_as_settings(file: Path) -> Iterator[None]:
    """Raise SettingsError for what the file has wrong, each problem with the file's name before it."""
    try:
        yield
    except _FAULTS as error:
        problems: list[str] = getattr(error, "problems", [str(error)])
        raise SettingsError(
            [f"{file.name}: {problem.removeprefix(f'{file.name}: ')}" for problem in problems]
        ) from error
