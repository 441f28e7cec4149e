"""The query_sql tool: one SELECT on a database that the operator opened to it."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from services.chassis.canonical import canonical_json
from services.chassis.identity import Principal
from services.orchestrator.domain.messages import ToolSpec
from services.orchestrator.tools.ports import Consent, Effect, ToolContext, ToolDefinition, ToolResult
from services.orchestrator.tools.sql.ports import QueryFailed, ReadableDatabase, Rows, TableShape
from services.orchestrator.tools.sql.statement import MAX_CHARACTERS, StatementRefused, check, tables_of

_log = logging.getLogger(__name__)
FRESH_SECONDS = 300.0
RETRY_SECONDS = 15.0
# The most of all databases' descriptions together that the model reads with every call.
DESCRIPTION = 8_000
CELL = 500
_ABOUT = (
    "Read a database with one SELECT. Nothing can be written. Rows are computation, not evidence: they have no "
    "citation number; name the database instead."
)
_DIALECTS = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


class QuerySqlTool:
    """Reads databases. What each principal's model sees of them are those that serve its tenant."""

    def __init__(self, databases: Sequence[ReadableDatabase]) -> None:
        self._databases = {database.terms.name: database for database in databases}
        self._shapes: dict[str, tuple[TableShape, ...]] = {}
        self._problems: dict[str, str] = {}
        longest = max((database.terms.seconds for database in databases), default=10.0)
        self.definition = ToolDefinition(
            spec=self._spec(tuple(self._databases)),
            title="Query a database",
            effect=Effect.READ,
            consent=Consent.ALLOW,
            deadline=timedelta(seconds=longest + 10),
        )

    async def withheld(self, principal: Principal) -> str:
        """Withhold it from tenants that no database serves, and while none of theirs answers."""
        names = self._serving(principal)
        if not names:
            return "no database serves this tenant"
        if any(name in self._shapes for name in names):
            return ""
        return "; ".join(self._problems.get(name, f"the database '{name}' was not looked at yet") for name in names)

    def spec_for(self, principal: Principal) -> ToolSpec:
        """Return the tool as this principal's model sees it."""
        return self._spec(tuple(name for name in self._serving(principal) if name in self._shapes))

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return the rows as CSV, or why there are none."""
        names = self._serving(context.principal)
        name = arguments.get("database") or (names[0] if len(names) == 1 else "")
        if name not in names:
            return ToolResult(text=f"there is no database '{name}'; there are: {', '.join(names)}", failed=True)
        database = self._databases[name]
        try:
            statement = check(
                arguments["query"],
                database.dialect,
                tables=database.terms.tables,
                functions={function.lower() for function in database.terms.functions},
            )
            rows = await database.query(statement)
        except StatementRefused as error:
            return ToolResult(text=f"The query did not run: {error}.", failed=True)
        except QueryFailed as error:
            return ToolResult(text=f"{error}.{self._help(name, arguments['query'])}", failed=True)
        return ToolResult(text=_told(name, rows, database.terms.max_rows))

    async def watch(self) -> None:
        """Keep what the model is told of the databases fresh, for ever, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(RETRY_SECONDS if self._problems else FRESH_SECONDS)

    async def look(self) -> None:
        """Read the shapes of every database; of one that does not answer those read before stay."""
        async with asyncio.TaskGroup() as group:
            for database in self._databases.values():
                group.create_task(self._look(database))

    def _serving(self, principal: Principal) -> list[str]:
        return [name for name, each in self._databases.items() if each.terms.serves(principal.tenant)]

    async def _look(self, database: ReadableDatabase) -> None:
        name = database.terms.name
        try:
            self._shapes[name] = tuple(await database.shapes())
            self._problems.pop(name, None)
        except QueryFailed as error:
            _log.warning("database '%s' could not be described: %s", name, error)
            self._problems[name] = str(error)

    def _help(self, name: str, query: str) -> str:
        """Return the shapes of the tables that a failed query names, since a wrong name is what most often fails."""
        named = tables_of(query, self._databases[name].dialect)
        lines = [_line(shape) for shape in self._shapes.get(name, ()) if shape.name.lower().rpartition(".")[2] in named]
        return "\n" + "\n".join(lines)[:DESCRIPTION] if lines else ""

    def _spec(self, names: Sequence[str]) -> ToolSpec:
        properties: dict[str, Any] = {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_CHARACTERS,
                "description": "One SELECT, without parameters. Aggregate and filter in it: few rows come back.",
            }
        }
        required = ["query"]
        if len(names) > 1:
            properties["database"] = {"enum": list(names), "description": "Which database."}
            required.append("database")
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return ToolSpec(name="query_sql", description=self._description(names), parameters_json=canonical_json(schema))

    def _description(self, names: Sequence[str]) -> str:
        parts = [_ABOUT]
        for name in names:
            database = self._databases[name]
            head = f"Database {name} ({_DIALECTS[database.dialect]}, at most {database.terms.max_rows} rows)"
            about = f"{head}: {database.terms.description}" if database.terms.description else head
            parts.append("\n".join((about, *_listing(self._shapes.get(name, ()), DESCRIPTION // len(names)))))
        return "\n\n".join(parts)


def _listing(shapes: Sequence[TableShape], room: int) -> list[str]:
    """Return tables with their columns while they fit, then by name alone."""
    lines = [_line(shape) for shape in shapes]
    if sum(map(len, lines)) <= room:
        return lines
    names = ", ".join(shape.name for shape in shapes)[:room]
    return [f"tables (a query that fails tells the columns of the tables it names): {names}"]


def _line(shape: TableShape) -> str:
    return f"{shape.name}({', '.join(f'{column} {kind}'.strip() for column, kind in shape.columns)})"


def _told(name: str, rows: Rows, limit: int) -> str:
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow(rows.columns)
    table.writerows([_cell(value) for value in row] for row in rows.rows)
    count = f"{len(rows.rows)} row{'' if len(rows.rows) == 1 else 's'}"
    more = f"; there are more, of which at most {limit} are shown: aggregate or filter" if rows.more else ""
    return f"From database {name} (not evidence, no citation number), {count}{more}:\n{written.getvalue()}"


def _cell(value: object) -> str:
    """Return a value as text: NULL for none, JSON for structures, bytes by their length."""
    match value:
        case None:
            return "NULL"
        case bytes():
            return f"[{len(value)} bytes]"
        case list() | dict():
            text = json.dumps(value, ensure_ascii=False, default=str)
        case _:
            text = str(value)
    return text if len(text) <= CELL else text[:CELL] + "…"
