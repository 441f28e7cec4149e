"""The port ReadableDatabase on SQLite and PostgreSQL, and the query_sql tool over it: it reads, and nothing else."""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from services.orchestrator.adapters.read_postgres import PostgresDatabase
from services.orchestrator.adapters.read_sqlite import SqliteDatabase
from services.orchestrator.domain.events import ToolStatus
from services.orchestrator.tools.sql.ports import DatabaseTerms, QueryFailed, ReadableDatabase, TableShape
from services.orchestrator.tools.sql.query_sql import QuerySqlTool
from services.orchestrator.tools.sql.statement import check
from tests.support.orchestrator_kit import ANN, bench, tool_call
from tests.support.postgres import Cluster

TABLES = """
CREATE TABLE customers (id integer primary key, name text);
CREATE TABLE orders (id integer primary key, customer integer, total numeric);
CREATE TABLE salaries (who text, amount integer);
CREATE VIEW big_orders AS SELECT * FROM orders WHERE total > 100;
INSERT INTO customers VALUES (1, 'Müller'), (2, NULL);
INSERT INTO orders VALUES (1, 1, 250.5), (2, 1, 80), (3, 2, 120);
INSERT INTO salaries VALUES ('ann', 1);
"""
Make = Callable[..., ReadableDatabase]
ENDLESS = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"


def terms(**changes: object) -> DatabaseTerms:
    return DatabaseTerms(**{"name": "sales", "seconds": 5.0} | changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def sqlite_make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Return what opens the tables in a file."""
    path = tmp_path_factory.mktemp("shop") / "sales.sqlite3"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(TABLES)
    return lambda **changes: SqliteDatabase(path, terms(**changes))


@pytest.fixture(scope="module")
def postgres_make(postgres: Cluster) -> Iterator[Make]:
    """Return what opens the tables as a role that may only read."""
    name = postgres.create_database()
    address = f"127.0.0.1:{postgres.port}/{name}"
    role = asyncio.run(reading_role(f"postgresql://postgres@{address}"))
    yield lambda **changes: PostgresDatabase(f"postgresql://{role}@{address}", terms(**changes))
    postgres.drop_database(name)


@pytest.fixture(params=["sqlite", "postgres"])
def make(request: pytest.FixtureRequest) -> Make:
    """Return what opens the same tables with given terms, on each kind in turn."""
    made: Make = request.getfixturevalue(f"{request.param}_make")
    return made


async def reading_role(url: str) -> str:
    """Make the tables and return the name of a role that may only read them."""
    role = f"reader_{secrets.token_hex(4)}"
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(TABLES)
        await connection.execute(
            f"CREATE ROLE {role} LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}; "
            f"CREATE SCHEMA hidden; CREATE TABLE hidden.deep (x text)"
        )
    finally:
        await connection.close()
    return role


async def ask(database: ReadableDatabase, query: str) -> tuple[str, str]:
    """Return (status, what the model reads) of a call through the gate."""
    tool = QuerySqlTool([database])
    await tool.look()
    assert await tool.withheld(ANN) == ""
    b = bench(tool)
    b.propose(tool_call("c1", "query_sql", query=query))
    await b.gate.work_off(b.leg)
    return b.statuses()["c1"], b.results()["c1"]


async def test_rows_come_back_as_csv_without_a_number(make: Make) -> None:
    query = "SELECT c.name, sum(o.total) AS total FROM customers c JOIN orders o ON o.customer = c.id GROUP BY c.name"
    status, text = await ask(make(), f"{query} ORDER BY total DESC; -- the best first")
    assert status == "COMPLETED"
    assert text == (
        "From database sales (not evidence, no citation number), 2 rows:\nname,total\nMüller,330.5\nNULL,120\n"
    )


async def test_the_model_is_told_the_tables(make: Make) -> None:
    tool = QuerySqlTool([make(description="Orders of the shop", tables=("orders", "big_orders"))])
    await tool.look()
    assert await tool.withheld(ANN) == ""
    described = tool.spec_for(ANN).description
    assert "Orders of the shop" in described
    assert "orders(id integer, customer integer, total numeric)" in described
    assert "big_orders(" in described
    assert "salaries" not in described
    assert json.loads(tool.spec_for(ANN).parameters_json)["required"] == ["query"]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("DELETE FROM orders", "DELETE is not allowed"),
        ("SELECT 1; DROP TABLE orders", "2 statements"),
        ("WITH gone AS (DELETE FROM orders RETURNING id) SELECT * FROM gone", "DELETE is not allowed"),
        ("SELECT * INTO copied FROM orders", "INTO is not allowed"),
        ("SELECT * FROM orders FOR UPDATE", "LOCK is not allowed"),
        ("CREATE TABLE x (y integer)", "CREATE is not allowed"),
        ("PRAGMA query_only = OFF", "not allowed"),
        ("ATTACH DATABASE '/etc/x' AS x", ""),
        ("COPY orders TO '/tmp/orders'", "COPY is not allowed"),
        ("SET default_transaction_read_only = off", "SET is not allowed"),
        ("SELECT pg_sleep(60)", "'pg_sleep' may not be called"),
        ("SELECT pg_catalog.pg_read_file('/etc/passwd')", "'pg_read_file' may not be called"),
        ("SELECT load_extension('/tmp/x.so')", "'load_extension' may not be called"),
        ("SELECT set_config('transaction_read_only', 'off', false)", "'set_config' may not be called"),
        ("SELECT query_to_xml('DELETE FROM orders', true, true, '')", "'query_to_xml' may not be called"),
        ("SELECT * FROM pg_shadow", "system table"),
        ("SELECT * FROM sqlite_master", "system table"),
        ("VALUES (1)", "one SELECT"),
        ("SELECT id FRM orders WHERE", "line 1, column"),
    ],
)
async def test_whatever_does_not_only_read_is_refused(make: Make, query: str, told: str) -> None:
    database = make()
    status, text = await ask(database, query)
    assert status == "FAILED"
    assert told in text
    assert "3 rows" in (await ask(database, "SELECT id FROM orders"))[1]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 7 / 2, 7 / 2.0, 7 % 4, round(avg(total), 2), count(DISTINCT customer) FROM orders",
        "SELECT id, row_number() OVER (ORDER BY total DESC), lag(total) OVER (ORDER BY id) FROM orders ORDER BY id",
        "SELECT count(*) FILTER (WHERE total > 100), CASE WHEN max(total) > 1 THEN 'big' ELSE 'it''s' END FROM orders",
        "SELECT coalesce(name, '?') || '!', upper(substr(name, 1, 2)), length(name) FROM customers ORDER BY id",
        "SELECT id FROM orders EXCEPT SELECT 2 ORDER BY id LIMIT 1 OFFSET 1",
        'SELECT name AS "Na Me" FROM customers WHERE (id, 1) IN (SELECT customer, 1 FROM orders) ORDER BY 1 NULLS LAST',
    ],
)
async def test_what_runs_says_the_same_as_what_was_sent(make: Make, query: str) -> None:
    database = make()
    written = check(query, database.dialect)
    assert (await database.query(written)).rows == (await database.query(query)).rows


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM salaries",
        "SELECT (SELECT max(amount) FROM salaries) FROM orders",
        "WITH orders AS (SELECT * FROM salaries) SELECT * FROM orders",
        "WITH salaries AS (SELECT * FROM salaries) SELECT * FROM salaries",
        "WITH c AS (SELECT 1) SELECT * FROM salaries c, c",
        "SELECT * FROM orders salaries, salaries",
        "SELECT * FROM orders UNION ALL SELECT who, amount, 1 FROM salaries",
    ],
)
async def test_other_tables_than_the_listed_ones_are_not_read(make: Make, query: str) -> None:
    status, text = await ask(make(tables=("orders", "big_orders")), query)
    assert status == "FAILED"
    assert "may not be read" in text


async def test_a_view_reads_what_its_reader_may_not(make: Make) -> None:
    status, text = await ask(make(tables=("big_orders",)), "SELECT id FROM big_orders ORDER BY id")
    assert (status, text.splitlines()[1:]) == ("COMPLETED", ["id", "1", "3"])


async def test_the_database_refuses_writes_that_get_past_the_parser(make: Make) -> None:
    database = make()
    with pytest.raises(QueryFailed, match="refused"):
        await database.query("INSERT INTO orders VALUES (9, 9, 9)")
    assert (await database.query("SELECT count(*) FROM orders")).rows == ((3,),)


async def test_rows_are_capped(make: Make) -> None:
    query = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 1000) SELECT n FROM r"
    _, text = await ask(make(max_rows=3), query)
    assert "3 rows; there are more" in text
    assert text.splitlines()[1:] == ["n", "1", "2", "3"]


async def test_a_long_query_is_stopped(make: Make) -> None:
    status, text = await ask(make(seconds=0.2), ENDLESS)
    assert status == "FAILED"
    assert "took longer than 0.2 s" in text


async def test_a_cancelled_query_stops(make: Make) -> None:
    database = make(seconds=60.0)
    task = asyncio.create_task(database.query(ENDLESS))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)


async def test_a_wrong_name_is_answered_with_the_columns(make: Make) -> None:
    status, text = await ask(make(), "SELECT totl FROM orders")
    assert status == "FAILED"
    assert "totl" in text
    assert "orders(id integer, customer integer, total numeric)" in text


async def test_only_tenants_that_it_serves_have_the_database(make: Make) -> None:
    tool = QuerySqlTool([make(tenants=("t2",))])
    assert await tool.withheld(ANN) == "no database serves this tenant"
    assert "orders" not in tool.spec_for(ANN).description
    b = bench(tool)
    b.propose(tool_call("c1", "query_sql", query="SELECT 1"))
    await b.gate.work_off(b.leg)
    assert b.statuses() == {"c1": ToolStatus.FAILED.name}


async def test_a_missing_sqlite_file_withholds_the_tool_and_tells_no_path(tmp_path: Path) -> None:
    tool = QuerySqlTool([SqliteDatabase(tmp_path / "none.sqlite3", terms())])
    assert await tool.withheld(ANN) == "the database 'sales' was not looked at yet"
    await tool.look()
    assert await tool.withheld(ANN) == "the database 'sales' cannot be opened"


async def test_a_superuser_is_refused_and_no_password_is_told(postgres_url: str) -> None:
    url = postgres_url.replace("+asyncpg", "").replace("postgres@", "postgres:s3cret@")
    tool = QuerySqlTool([PostgresDatabase(url, terms())])
    await tool.look()
    why = await tool.withheld(ANN)
    assert "may do more than read" in why
    assert "s3cret" not in why


async def test_a_server_that_is_away_is_told_without_its_address() -> None:
    tool = QuerySqlTool([PostgresDatabase("postgresql://ann:s3cret@127.0.0.1:1/x", terms())])
    assert await tool.withheld(ANN) == "the database 'sales' was not looked at yet"
    await tool.look()
    assert await tool.withheld(ANN) == "the database 'sales' does not answer"


async def test_what_was_known_of_a_database_stays_while_it_is_away(make: Make) -> None:
    database = make()
    tool = QuerySqlTool([database])
    await tool.look()

    async def away() -> list[TableShape]:
        raise QueryFailed("the database 'sales' does not answer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "shapes", away)
        await tool.look()
    assert await tool.withheld(ANN) == ""
    assert "orders(" in tool.spec_for(ANN).description


async def test_two_databases_are_chosen_by_name(make: Make) -> None:
    tool = QuerySqlTool([make(), SqliteDatabase(Path("/nonexistent"), terms(name="other"))])
    await tool.look()
    assert await tool.withheld(ANN) == ""
    assert "database" not in json.loads(tool.spec_for(ANN).parameters_json)["properties"]
    assert json.loads(tool.definition.spec.parameters_json)["properties"]["database"]["enum"] == ["sales", "other"]
