"""The tables of proctor.toml about tools, and the examples of docs/tools.md."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from services.orchestrator.adapters.agents_toml import load_agents
from services.orchestrator.adapters.tools_toml import ToolsInvalid, open_databases, read_tools
from services.orchestrator.agents.prompt import Prompts
from services.orchestrator.domain.agent import ToolPolicy
from tests.unit.orchestrator.tools.test_http_tools import TICKETS

ROOT = Path(__file__).parents[4]
ENVIRON = {
    "SHOP_DATABASE_URL": "postgresql+asyncpg://reader:pw-s3cret@db.example.com/shop",
    "TICKETS_TOKEN": "tok-s3cret",
    "TICKETS_KEY": "key-s3cret",
    "TICKETS_QUERY_KEY": "q-s3cret",
    "ACME_WEATHER_KEY": "w-s3cret",
}


@pytest.fixture
def documented(tmp_path: Path) -> Path:
    """Return a file with every example of the page."""
    page = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")
    file = tmp_path / "proctor.toml"
    file.write_text("\n".join(re.findall(r"```toml\n(.*?)```", page, re.DOTALL)), encoding="utf-8")
    return file


def test_the_examples_of_databases_are_read(documented: Path) -> None:
    settings = read_tools(documented, ENVIRON)
    ((terms, _),) = settings.databases
    assert (terms.name, terms.max_rows, terms.seconds) == ("shop", 200, 10.0)
    assert terms.tables == ("orders", "customers", "reports.monthly")
    assert not terms.serves("other")
    (database,) = open_databases(settings, documented.parent)
    assert database.dialect == "postgres"
    assert "s3cret" not in repr(settings)


def test_the_examples_of_services_are_read(documented: Path) -> None:
    tickets, weather = read_tools(documented, ENVIRON).services
    assert tickets.credentials.headers == {"Authorization": "Bearer tok-s3cret", "X-Api-Key": "key-s3cret"}
    assert set(tickets.credentials.secrets) >= {"tok-s3cret", "key-s3cret", "q-s3cret"}
    assert (tickets.timeout, tickets.max_bytes) == (timedelta(seconds=30), 524_288)
    assert tickets.networks == ("10.20.0.0/16",)
    assert weather.credentials_of("acme") is not None
    assert weather.credentials_of("other") is None
    assert "s3cret" not in repr((tickets, weather))
    assert all(name in TICKETS for name in ("listTickets", "createTicket"))


def test_the_example_of_an_agent_is_read(documented: Path) -> None:
    (clerk,) = load_agents(documented, Prompts())
    policies = {binding.tool: binding.policy for binding in clerk.tools}
    assert policies["tickets__deleteTicket"] is ToolPolicy.DENY
    assert policies["query_sql"] is ToolPolicy.ASK


def test_a_missing_file_opens_nothing(tmp_path: Path) -> None:
    settings = read_tools(tmp_path / "none.toml", {})
    assert (settings.databases, settings.services) == ((), ())


def test_a_sqlite_file_is_found_beside_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "proctor.toml"
    file.write_text('[databases.shop]\nurl_env = "URL"\n')
    (database,) = open_databases(read_tools(file, {"URL": "sqlite:///shop.sqlite3"}), tmp_path)
    assert database._path == tmp_path / "shop.sqlite3"  # type: ignore[attr-defined]
    (database,) = open_databases(read_tools(file, {"URL": "sqlite:////data/shop.sqlite3"}), tmp_path)
    assert database._path == Path("/data/shop.sqlite3")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[databases.shop]\n", "databases.shop.url_env: the environment has no variable of that name"),
        ('[databases.shop]\nurl_env = "NONE"\n', "databases.shop.url_env: the environment has no NONE"),
        ('[databases.shop]\nurl_env = "MY"\n', "holds a URL of 'mysql'"),
        ('[databases.shop]\nurl_env = "PG"\nmax_row = 3\n', "databases.shop.max_row: no such key; known are"),
        ('[databases.shop]\nurl_env = "PG"\nmax_rows = 0\n', "databases.shop.max_rows: expected a number above 0"),
        ('[databases.shop]\nurl_env = "PG"\ntables = "orders"\n', "databases.shop.tables: expected list, got 'orders'"),
        ('[databases."My Shop"]\nurl_env = "PG"\n', "databases.My Shop: a name has lower-case letters"),
        ("[http_tools.a]\n", "http_tools.a.document: name the OpenAPI document"),
        ("[http_tools.a]\n", "http_tools.a.operations: name the allowed operations"),
        ('[http_tools.a]\nbase_url = "ftp://x"\n', "http_tools.a.base_url: expected an http or https URL"),
        ('[http_tools.a]\nnetworks = ["10.0.0.1/8"]\n', "http_tools.a.networks: 10.0.0.1/8 has host bits set"),
        ('[http_tools.a]\nbearer_env = "NONE"\n', "http_tools.a.bearer_env: the environment has no NONE"),
        ('[http_tools.a.tenants.t1]\nbearer = "x"\n', "http_tools.a.tenants.t1.bearer: no such key"),
        ('[http_tools.a]\nheaders_env = { "X:Y" = "PG" }\n', "'X:Y' is no name of a header"),
        ('[http_tools.a]\n[mcp.servers.a]\ncommand = "x"\n', "http_tools.a: an MCP server has this name too"),
        ("http_tools = 3\n", "http_tools: expected dict, got 3"),
        ("[databases\n", "proctor.toml:"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "proctor.toml"
    file.write_text(text)
    environ: dict[str, Any] = {"MY": "mysql://x/y", "PG": "postgresql://u:s3cret@h/d"}
    with pytest.raises(ToolsInvalid) as caught:
        read_tools(file, environ)
    assert any(told in problem for problem in caught.value.problems), caught.value.problems
    assert "s3cret" not in str(caught.value)
