"""MCP servers in proctor.toml: what is read, what is refused, and that secrets stay secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.orchestrator.mcp.config_file import McpInvalid, read_servers
from services.orchestrator.mcp.definitions import define
from services.orchestrator.mcp.ports import ListedTool
from services.orchestrator.mcp.settings import Cooldown, McpSettings, ServerSettings
from services.orchestrator.tools.ports import Consent, Effect

GOOD = """
[mcp]
cooldown = "off"

[mcp.servers.tickets]
url = "https://tickets.example/mcp"
headers_env = { Authorization = "TICKETS" }
suppress = ["delete_*"]
consent = "ask_every_call"
timeout_seconds = 5

[mcp.servers.tickets.tenants.acme]
headers_env = { Authorization = "ACME" }

[mcp.servers.files]
command = "files"
args = ["--root", "/srv"]
env = { LANG = "C" }
env_from = { KEY = "FILES" }
trust_read_only = true
cooldown = "on"
"""


def read(tmp_path: Path, text: str, **environ: str) -> McpSettings:
    (tmp_path / "proctor.toml").write_text(text)
    return read_servers(tmp_path / "proctor.toml", environ)


def test_servers_are_read_with_their_secrets_from_the_environment(tmp_path: Path) -> None:
    settings = read(tmp_path, GOOD, TICKETS="t0p", ACME="acm3", FILES="f1les")

    tickets, files = settings.servers
    assert settings.cooldown is Cooldown.OFF
    assert (tickets.is_local, files.is_local) == (False, True)
    acme = tickets.credentials_of("acme")
    assert acme is not None
    assert acme.headers == {"Authorization": "acm3"}
    assert tickets.credentials_of("other") is None
    assert files.credentials_of("other") == files.credentials
    assert files.credentials.variables == {"LANG": "C", "KEY": "f1les"}
    shown = repr(settings)
    assert not any(secret in shown for secret in ("t0p", "acm3", "f1les"))
    assert read_servers(tmp_path / "none.toml", {}) == McpSettings()


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("", "needs either a command (stdio) or a url"),
        ('url = "https://a/mcp"\ncommand = "x"', "needs either a command (stdio) or a url"),
        ('url = "ws://a"', "mcp.servers.x.url: expected an http or https URL, got 'ws://a'"),
        ('url = "https://u:p@a/"', "must not hold a user or password"),
        ('command = "x"\nheader = 1', "mcp.servers.x.header: no such key"),
        ('url = "https://a/"\nheaders_env = { A = "NOPE" }', "mcp.servers.x.headers_env: the environment has no NOPE"),
        ('url = "https://a/"\nheaders_env = { "A B" = "SET" }', "'A B' is no name of a header"),
        ('command = "x"\nconsent = "never"', "expected one of allow, ask, ask_every_call, got 'never'"),
        ('command = "x"\ntimeout_seconds = -1', "expected seconds between 0 and 86400, got -1"),
        ('url = "https://a/"\noauth = { client_id = "c", issuer = "a", client_secret_env = "SET" }', "issuer URL"),
        ('url = "https://a/"\noauth = { issuer = "https://i", client_secret_env = "SET" }', "client_id: is required"),
        ('command = "x"\ntenants = { a = 1 }', "mcp.servers.x.tenants.a: expected a table"),
    ],
)
def test_a_wrong_server_is_told_with_its_key(tmp_path: Path, table: str, problem: str) -> None:
    with pytest.raises(McpInvalid) as caught:
        read(tmp_path, f"[mcp.servers.x]\n{table}\n", SET="v")
    assert problem in str(caught.value)


@pytest.mark.parametrize("name", ["a__b", "A", "a-", "x" * 25, "a.b"])
def test_a_name_that_cannot_stand_before_a_tools_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(McpInvalid, match="a name has lower-case letters"):
        read(tmp_path, f'[mcp.servers."{name}"]\ncommand = "x"\n')


def tool(**changes: bool) -> ListedTool:
    return ListedTool(name="t", title="T", description="d", parameters_json=b'{"type":"object"}', **changes)


@pytest.mark.parametrize(
    ("hints", "server", "consent", "effect"),
    [
        ({}, {}, Consent.ASK, Effect.SIDE_EFFECT),
        ({"reads_only": True}, {}, Consent.ASK, Effect.SIDE_EFFECT),
        ({"reads_only": True}, {"trusts_hints": True}, Consent.ALLOW, Effect.READ),
        ({"idempotent": True}, {"trusts_hints": True}, Consent.ASK, Effect.IDEMPOTENT),
        (
            {"reads_only": True},
            {"trusts_hints": True, "consent": Consent.ASK_EVERY_CALL},
            Consent.ASK_EVERY_CALL,
            Effect.READ,
        ),
        ({}, {"consent": Consent.ALLOW}, Consent.ALLOW, Effect.SIDE_EFFECT),
    ],
)  # fmt: skip
def test_a_servers_hints_count_only_where_the_operator_trusts_them(
    hints: dict[str, bool], server: dict[str, object], consent: Consent, effect: Effect
) -> None:
    settings = ServerSettings(name="s", command="x", **server)  # type: ignore[arg-type]

    definition = define(tool(**hints), settings, McpSettings())

    assert (definition.name, definition.consent, definition.effect) == ("s__t", consent, effect)
    assert definition.foreign


@pytest.mark.parametrize(
    ("everywhere", "server", "has_schema", "rests"),
    [
        (Cooldown.AUTO, None, False, True),
        (Cooldown.AUTO, None, True, False),
        (Cooldown.ON, None, True, True),
        (Cooldown.OFF, None, False, False),
        (Cooldown.OFF, Cooldown.ON, True, True),
        (Cooldown.ON, Cooldown.OFF, False, False),
        (Cooldown.OFF, Cooldown.AUTO, False, True),
    ],
)
def test_tools_without_an_output_schema_rest_unless_told_otherwise(
    everywhere: Cooldown, server: Cooldown | None, has_schema: bool, rests: bool
) -> None:
    settings = ServerSettings(name="s", command="x", cooldown=server)

    definition = define(tool(output_schema=has_schema), settings, McpSettings(cooldown=everywhere))

    assert (definition.cooldown is not None) == rests
