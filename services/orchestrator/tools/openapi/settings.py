"""What the operator says of an HTTP service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from services.chassis.settings import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCredentials:
    """Headers and query parameters that carry secrets. They are added when a request is sent, and nowhere else."""

    headers: Mapping[str, Secret] = field(default_factory=dict)
    query: Mapping[str, Secret] = field(default_factory=dict)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets' own texts, also without a scheme such as Bearer before them."""
        values = [str.__str__(value) for value in (*self.headers.values(), *self.query.values())]
        return tuple(dict.fromkeys((*values, *(value.rpartition(" ")[2] for value in values))))


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpService:
    """One service: its document (a path or a URL), its base URL (empty: the document's first server).

    `operations` are the allowed ones, by operation id or `METHOD /path`, `*` for all; those in `read` only read, and
    run unasked. With `idempotency_header` every call carries its key, so that a call cut off by a crash runs again.
    `credentials` serve every tenant, unless `tenants` is set: then only those have the service, each with its own.
    """

    name: str
    document: str
    operations: tuple[str, ...]
    base_url: str = ""
    read: tuple[str, ...] = ()
    credentials: HttpCredentials = field(default_factory=HttpCredentials)
    tenants: Mapping[str, HttpCredentials] | None = None
    networks: tuple[str, ...] = ()
    idempotency_header: str = ""
    timeout: timedelta = timedelta(seconds=30)
    max_bytes: int = 512 * 1024

    def credentials_of(self, tenant: str) -> HttpCredentials | None:
        """Return the tenant's credentials; None when the tenant does not have this service."""
        return self.credentials if self.tenants is None else self.tenants.get(tenant)
