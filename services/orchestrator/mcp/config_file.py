"""The `[mcp]` table of proctor.toml. Secrets stand there as names of environment variables only."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from services.chassis.settings import Secret
from services.orchestrator.mcp.settings import Cooldown, Credentials, McpSettings, OAuth, Protocol, ServerSettings
from services.orchestrator.tools.ports import Consent

# No double underscore: it parts the server's name from the tool's.
_NAME = re.compile(r"[a-z0-9]+(?:[_-][a-z0-9]+)*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
NAME_LIMIT = 24
E_ = TypeVar("E_", bound=Enum)
T_ = TypeVar("T_")


class McpInvalid(ValueError):
    """The file's servers are wrong; `problems` has one sentence for each fault."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def read_servers(path: Path, environ: Mapping[str, str]) -> McpSettings:
    """Return the servers of `path`, none when the file does not exist. Raises McpInvalid."""
    if not path.is_file():
        return McpSettings()
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("mcp", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise McpInvalid([f"{path.name}: {error}"]) from error
    return parse_servers(table, environ)


def parse_servers(table: Mapping[str, Any], environ: Mapping[str, str]) -> McpSettings:
    """Return the servers that `[mcp]` describes. Raises McpInvalid."""
    problems: list[str] = []
    top = _Table("mcp", table, environ, problems)
    servers = []
    for name, entry in top.get("servers", dict, {}).items():
        if not _NAME.fullmatch(name) or len(name) > NAME_LIMIT:
            problems.append(
                f"mcp.servers.{name}: a name has lower-case letters, digits, single '-' or '_' between them, and "
                f"{NAME_LIMIT} characters at most"
            )
        elif not isinstance(entry, Mapping):
            problems.append(f"mcp.servers.{name}: expected a table")
        else:
            servers.append(_server(name, _Table(f"mcp.servers.{name}", entry, environ, problems)))
    cooldown = top.choice("cooldown", Cooldown, Cooldown.AUTO)
    top.check_unknown()
    if problems:
        raise McpInvalid(problems)
    return McpSettings(servers=tuple(servers), cooldown=cooldown)


def _server(name: str, table: _Table) -> ServerSettings:
    command, url = table.text("command"), table.text("url")
    if bool(command) == bool(url):
        table.fault("", "needs either a command (stdio) or a url (streamable HTTP)")
    if url and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
        table.fault("url", f"expected an http or https URL, got {url!r}")
    if url and urlsplit(url).username is not None:
        table.fault("url", "must not hold a user or password; name a variable in headers_env")
    tenants = table.get("tenants", dict, None)
    settings = ServerSettings(
        name=name,
        command=command,
        args=table.texts("args"),
        cwd=table.text("cwd"),
        url=url,
        protocol=table.choice("protocol", Protocol, Protocol.AUTO),
        credentials=_credentials(table),
        tenants=None if tenants is None else {tenant: _tenant(table, tenant, each) for tenant, each in tenants.items()},
        suppressed=table.texts("suppress"),
        consent=table.choice("consent", Consent, Consent.ASK),
        trusts_hints=table.get("trust_read_only", bool, False),
        takes_instructions=table.get("instructions", bool, True),
        asks_questions=table.get("questions", bool, True),
        cooldown=table.choice("cooldown", Cooldown, None),
        timeout=table.seconds("timeout_seconds", 60),
        connect_timeout=table.seconds("connect_timeout_seconds", 30),
        answer_time=table.seconds("answer_seconds", 600),
        idle=table.seconds("idle_seconds", 600),
    )
    table.check_unknown()
    return settings


def _tenant(server: _Table, tenant: str, entry: object) -> Credentials:
    table = server.inner(f"tenants.{tenant}", entry)
    credentials = _credentials(table)
    table.check_unknown()
    return credentials


def _credentials(table: _Table) -> Credentials:
    headers = {name: table.secret("headers_env", str(of)) for name, of in table.get("headers_env", dict, {}).items()}
    for name in headers:
        if not _HEADER.fullmatch(name):
            table.fault("headers_env", f"{name!r} is no name of a header")
    literal = {name: Secret(str(value)) for name, value in table.get("env", dict, {}).items()}
    referred = {name: table.secret("env_from", str(of)) for name, of in table.get("env_from", dict, {}).items()}
    return Credentials(headers=headers, oauth=_oauth(table), variables=literal | referred)


def _oauth(table: _Table) -> OAuth | None:
    entry = table.get("oauth", dict, None)
    if entry is None:
        return None
    inner = table.inner("oauth", entry)
    issuer, client_id = inner.text("issuer"), inner.text("client_id")
    if urlsplit(issuer).scheme not in ("http", "https"):
        inner.fault("issuer", f"expected the authorization server's issuer URL, got {issuer!r}")
    if not client_id:
        inner.fault("client_id", "is required")
    secret = inner.secret("client_secret_env", inner.text("client_secret_env"))
    oauth = OAuth(issuer=issuer, client_id=client_id, client_secret=secret, scope=inner.text("scope"))
    inner.check_unknown()
    return oauth


class _Table:
    """Reads one table; faults go to `problems`, and the default stands in meanwhile."""

    def __init__(self, place: str, table: Mapping[str, Any], environ: Mapping[str, str], problems: list[str]) -> None:
        self._place = place
        self._table = table
        self._environ = environ
        self._problems = problems
        self._known: set[str] = set()

    def fault(self, key: str, problem: str) -> None:
        self._problems.append(f"{self._place}{'.' if key else ''}{key}: {problem}")

    def inner(self, place: str, entry: object) -> _Table:
        table = entry if isinstance(entry, Mapping) else {}
        if not isinstance(entry, Mapping):
            self.fault(place, "expected a table")
        return _Table(f"{self._place}.{place}", table, self._environ, self._problems)

    def get(self, key: str, kind: type[T_], default: Any) -> Any:
        self._known.add(key)
        value = self._table.get(key, default)
        if value is not default and not isinstance(value, kind):
            self.fault(key, f"expected {kind.__name__}, got {value!r}")
            return default
        return value

    def text(self, key: str) -> str:
        return str(self.get(key, str, ""))

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(map(str, self.get(key, list, [])))

    def seconds(self, key: str, default: float) -> timedelta:
        self._known.add(key)
        value = self._table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86_400:
            self.fault(key, f"expected seconds between 0 and 86400, got {value!r}")
            value = default
        return timedelta(seconds=value)

    def choice(self, key: str, kind: type[E_], default: Any) -> Any:
        text = self.get(key, str, None)
        if text is None:
            return default
        try:
            return kind(text)
        except ValueError:
            self.fault(key, f"expected one of {', '.join(str(each.value) for each in kind)}, got {text!r}")
            return default

    def secret(self, key: str, variable: str) -> Secret:
        """Return what the environment variable holds."""
        if variable not in self._environ:
            self.fault(key, f"the environment has no {variable or 'variable of that name'}")
        return Secret(self._environ.get(variable, ""))

    def check_unknown(self) -> None:
        for key in sorted(set(self._table) - self._known):
            self.fault(key, "no such key")
