"""What the operator says of MCP servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

from services.chassis.settings import Secret
from services.orchestrator.tools.ports import Consent


class Cooldown(Enum):
    """Whether a tool rests after a call: AUTO means tools that declare no schema of their output."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Protocol(Enum):
    """Which protocol is spoken: AUTO asks the server, LEGACY is for those that stumble over the question."""

    AUTO = "auto"
    LEGACY = "legacy"


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """Client credentials for the authorization server `issuer`, and for no other."""

    issuer: str
    client_id: str
    client_secret: Secret
    scope: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a session proves itself with: headers and OAuth over HTTP, variables of the process over stdio."""

    headers: Mapping[str, Secret] = field(default_factory=dict)
    oauth: OAuth | None = None
    variables: Mapping[str, Secret] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """One server: a `command` to run, or a `url` to call.

    `credentials` serve every tenant, unless `tenants` is set: then only the tenants in it have the server, each with
    its own credentials. `suppressed` are patterns of tool names that are not offered. `trusts_hints` lets the server's
    own word that a tool only reads stand: such tools run unasked. `timeout` bounds one call, `connect_timeout` the way
    to a session, `answer_time` how long people have for a question of the server, `idle` closes an unused session.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    cwd: str = ""
    url: str = ""
    protocol: Protocol = Protocol.AUTO
    credentials: Credentials = field(default_factory=Credentials)
    tenants: Mapping[str, Credentials] | None = None
    suppressed: tuple[str, ...] = ()
    consent: Consent = Consent.ASK
    trusts_hints: bool = False
    takes_instructions: bool = True
    asks_questions: bool = True
    cooldown: Cooldown | None = None
    timeout: timedelta = timedelta(seconds=60)
    connect_timeout: timedelta = timedelta(seconds=30)
    answer_time: timedelta = timedelta(minutes=10)
    idle: timedelta = timedelta(minutes=10)

    @property
    def is_local(self) -> bool:
        """Whether it is a process of ours."""
        return bool(self.command)

    def credentials_of(self, tenant: str) -> Credentials | None:
        """Return the tenant's credentials; None when the tenant does not have this server."""
        return self.credentials if self.tenants is None else self.tenants.get(tenant)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSettings:
    """All servers, and the default of their tools' rest."""

    servers: tuple[ServerSettings, ...] = ()
    cooldown: Cooldown = Cooldown.AUTO
