"""A database that may be read, and what comes of reading it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """A table or view: its name (with its schema where that is not the default one), its columns with their types."""

    name: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What a query returned; `more` tells that there were further rows or that they were too large."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseTerms:
    """What the operator says of a database. Empty `tables` are all that its role may read, empty `tenants` everybody.

    `functions` may be called beside the known harmless ones.
    """

    name: str
    description: str = ""
    tables: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    max_rows: int = 200
    seconds: float = 10.0

    def serves(self, tenant: str) -> bool:
        """Whether runs of `tenant` may read it."""
        return not self.tenants or tenant in self.tenants


class QueryFailed(Exception):
    """The database refused or did not answer; the message is for the model and holds no address and no password."""


class ReadableDatabase(Protocol):
    """Runs one checked statement without any way to write."""

    @property
    def terms(self) -> DatabaseTerms: ...

    @property
    def dialect(self) -> str:
        """sqlglot's name of its SQL: sqlite or postgres."""
        ...

    async def shapes(self) -> Sequence[TableShape]:
        """Return the tables that may be read, by name. Raises QueryFailed."""
        ...

    async def query(self, statement: str) -> Rows:
        """Return at most `max_rows` rows within `seconds`. Raises QueryFailed."""
        ...
