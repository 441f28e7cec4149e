"""Reading tables of proctor.toml so that every fault is told at once, each with its place and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from services.chassis.settings import Secret

T = TypeVar("T")


class Table:
    """One table; faults go to `problems`, and the default stands in meanwhile."""

    def __init__(self, place: str, table: object, environ: Mapping[str, str], problems: list[str]) -> None:
        self.place = place
        self._environ = environ
        self._problems = problems
        self._known: set[str] = set()
        self._table: Mapping[str, Any] = table if isinstance(table, Mapping) else {}
        if not isinstance(table, Mapping):
            problems.append(f"{place}: expected a table, got {table!r}")

    def fault(self, key: str, problem: str) -> None:
        """Tell what is wrong with a key."""
        self._problems.append(f"{self.place}{'.' if key else ''}{key}: {problem}")

    def get(self, key: str, kind: type[T], default: T) -> T:
        """Return a value of a kind."""
        self._known.add(key)
        value = self._table.get(key, default)
        if value is not default and (not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool)):
            self.fault(key, f"expected {kind.__name__}, got {value!r}")
            return default
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        values = self.get(key, list, [])
        if not all(isinstance(value, str) for value in values):
            self.fault(key, f"expected a list of texts, got {values!r}")
            return ()
        return tuple(values)

    def number(self, key: str, default: float, *, most: float) -> float:
        """Return a number above 0 and not above `most`."""
        self._known.add(key)
        value = self._table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
            self.fault(key, f"expected a number above 0, {most:g} at most, got {value!r}")
            return default
        return float(value)

    def inner(self, key: str) -> dict[str, Table]:
        """Return the tables in a table, by name."""
        entries = self.get(key, dict, {})
        return {
            name: Table(
                f"{self.place}.{key}.{name}" if self.place else f"{key}.{name}", entry, self._environ, self._problems
            )
            for name, entry in entries.items()
        }

    def secret(self, key: str, variable: object) -> Secret:
        """Return what the environment variable holds."""
        value = self._environ.get(str(variable), "")
        if not value:
            self.fault(key, f"the environment has no {variable or 'variable of that name'}")
        return Secret(value)

    def secrets(self, key: str) -> dict[str, Secret]:
        """Return what the environment variables of a table hold, by its keys."""
        return {name: self.secret(key, variable) for name, variable in self.get(key, dict, {}).items()}

    def check_unknown(self) -> None:
        """Tell of keys that nobody asked for."""
        for key in sorted(set(self._table) - self._known):
            self.fault(key, f"no such key; known are {', '.join(sorted(self._known))}")
