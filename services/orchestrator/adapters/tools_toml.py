"""The `[databases]` and `[http_tools]` tables of proctor.toml. Secrets stand there as names of variables only."""

from __future__ import annotations

import ipaddress
import logging
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from services.chassis.settings import Secret
from services.orchestrator.tools.config_table import Table
from services.orchestrator.tools.openapi.settings import HttpCredentials, HttpService
from services.orchestrator.tools.sql.ports import DatabaseTerms, ReadableDatabase

_NAME = re.compile(r"[a-z0-9]+(?:[_-][a-z0-9]+)*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
NAME_LIMIT = 24


class ToolsInvalid(ValueError):
    """The file's tools are wrong; `problems` has one sentence for each fault."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """What the operator opened: databases with their URLs, and HTTP services."""

    databases: tuple[tuple[DatabaseTerms, Secret], ...] = ()
    services: tuple[HttpService, ...] = ()


def read_tools(path: Path, environ: Mapping[str, str]) -> ToolSettings:
    """Return what `path` says of tools, nothing when the file does not exist. Raises ToolsInvalid."""
    if not path.is_file():
        return ToolSettings()
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ToolsInvalid([f"{path.name}: {error}"]) from error
    problems: list[str] = []
    top = Table("", tables, environ, problems)
    databases = tuple(_database(name, table) for name, table in top.inner("databases").items() if _named(name, table))
    services = tuple(_service(name, table) for name, table in top.inner("http_tools").items() if _named(name, table))
    servers = top.get("mcp", dict, {}).get("servers", {})
    taken = [service.name for service in services if service.name in servers]
    problems += [f"http_tools.{name}: an MCP server has this name too; choose another" for name in taken]
    if problems:
        raise ToolsInvalid(problems)
    return ToolSettings(databases=databases, services=services)


def open_databases(settings: ToolSettings, folder: Path) -> tuple[ReadableDatabase, ...]:
    """Return the databases; a SQLite file is found relative to `folder`. Nothing is connected to yet."""
    # The parser says in the log what it falls back to; here that is a refusal, which the model reads.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    return tuple(_open(terms, str.__str__(url), folder) for terms, url in settings.databases)


def _named(name: str, table: Table) -> bool:
    if _NAME.fullmatch(name) and len(name) <= NAME_LIMIT:
        return True
    table.fault(
        "",
        f"a name has lower-case letters, digits, single '-' or '_' between them, and {NAME_LIMIT} characters at most",
    )
    return False


def _database(name: str, table: Table) -> tuple[DatabaseTerms, Secret]:
    url = table.secret("url_env", table.get("url_env", str, ""))
    scheme = urlsplit(url).scheme.partition("+")[0]
    if url and scheme not in ("sqlite", "postgresql", "postgres"):
        table.fault("url_env", f"its variable holds a URL of '{scheme}'; sqlite:///FILE and postgresql://… are read")
    terms = DatabaseTerms(
        name=name,
        description=table.get("description", str, ""),
        tables=table.texts("tables"),
        functions=table.texts("functions"),
        tenants=table.texts("tenants"),
        max_rows=int(table.number("max_rows", 200, most=5_000)),
        seconds=table.number("timeout_seconds", 10, most=300),
    )
    table.check_unknown()
    return terms, url


def _open(terms: DatabaseTerms, url: str, folder: Path) -> ReadableDatabase:
    # The parser of SQL and the driver are loaded only where a database is opened.
    if url.startswith("sqlite"):
        from services.orchestrator.adapters.read_sqlite import SqliteDatabase

        return SqliteDatabase(folder / urlsplit(url).path.removeprefix("/"), terms)
    from services.orchestrator.adapters.read_postgres import PostgresDatabase

    scheme, _, rest = url.partition("://")
    return PostgresDatabase(f"{scheme.partition('+')[0]}://{rest}", terms)


def _service(name: str, table: Table) -> HttpService:
    document, base_url = table.get("document", str, ""), table.get("base_url", str, "")
    if not document:
        table.fault("document", "name the OpenAPI document: a file beside this one, or a URL")
    if base_url and (urlsplit(base_url).scheme not in ("http", "https") or not urlsplit(base_url).hostname):
        table.fault("base_url", f"expected an http or https URL, got {base_url!r}")
    operations = table.texts("operations")
    if not operations:
        table.fault("operations", "name the allowed operations by their ids or as 'METHOD /path', or ['*'] for all")
    tenants = table.inner("tenants")
    service = HttpService(
        name=name,
        document=document,
        base_url=base_url,
        operations=operations,
        read=table.texts("read"),
        credentials=_credentials(table),
        tenants={tenant: _tenant(each) for tenant, each in tenants.items()} if tenants else None,
        networks=_networks(table),
        idempotency_header=table.get("idempotency_header", str, ""),
        timeout=timedelta(seconds=table.number("timeout_seconds", 30, most=600)),
        max_bytes=int(table.number("max_bytes", 512 * 1024, most=16 * 1024 * 1024)),
    )
    if service.idempotency_header and not _HEADER.fullmatch(service.idempotency_header):
        table.fault("idempotency_header", f"{service.idempotency_header!r} is no name of a header")
    table.check_unknown()
    return service


def _tenant(table: Table) -> HttpCredentials:
    credentials = _credentials(table)
    table.check_unknown()
    return credentials


def _credentials(table: Table) -> HttpCredentials:
    headers = table.secrets("headers_env")
    for name in headers:
        if not _HEADER.fullmatch(name):
            table.fault("headers_env", f"{name!r} is no name of a header")
    if bearer := table.get("bearer_env", str, ""):
        headers["Authorization"] = Secret(f"Bearer {str.__str__(table.secret('bearer_env', bearer))}")
    return HttpCredentials(headers=headers, query=table.secrets("query_env"))


def _networks(table: Table) -> tuple[str, ...]:
    networks = table.texts("networks")
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            table.fault("networks", str(error))
    return networks
