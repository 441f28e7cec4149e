"""What the suite's own tools say of themselves: schemas that hold, effects and consent by what they do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from services.orchestrator.adapters.read_sqlite import SqliteDatabase
from services.orchestrator.checks import check_schema
from services.orchestrator.domain.events import PauseKind
from services.orchestrator.tools.compose import ToolNeeds, own_tools
from services.orchestrator.tools.ports import Consent, Effect, Tool
from services.orchestrator.tools.sql.ports import DatabaseTerms
from services.orchestrator.tools.sql.query_sql import QuerySqlTool

NOTHING = cast("Any", None)
READS = (Effect.READ, Consent.ALLOW)
SAYS = {
    "search": READS,
    "list_files": READS,
    "read_document": READS,
    "summarize_document": READS,
    "search_web": READS,
    "fetch_page": READS,
    "recall": READS,
    "current_time": READS,
    "query_sql": READS,
    "ask_user": READS,
    "wait_for_user": READS,
    "remember": (Effect.IDEMPOTENT, Consent.ASK),
    "run_code": (Effect.IDEMPOTENT, Consent.ASK),
    "http_request": (Effect.SIDE_EFFECT, Consent.ASK),
    "request_approval": (Effect.READ, Consent.ASK_EVERY_CALL),
}


def every_tool() -> tuple[Tool, ...]:
    needs = ToolNeeds(**dict.fromkeys(ToolNeeds.__dataclass_fields__, NOTHING))
    shop = SqliteDatabase(Path("/nowhere"), DatabaseTerms(name="shop"))
    return (*own_tools(needs), QuerySqlTool([shop]))


def test_what_acts_asks_and_what_reads_does_not() -> None:
    told = {tool.definition.name: (tool.definition.effect, tool.definition.consent) for tool in every_tool()}
    assert told == SAYS


@pytest.mark.parametrize("tool", every_tool(), ids=lambda tool: tool.definition.name)
def test_definitions_hold(tool: Tool) -> None:
    definition = tool.definition
    schema = json.loads(definition.spec.parameters_json)
    assert check_schema(definition.spec.parameters_json) == ""
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert "reason" not in schema["properties"]  # the gate adds and takes out its own
    assert definition.title
    assert len(definition.spec.description) > 20
    assert definition.pause_kind is PauseKind.APPROVAL or definition.answer_time is not None
