"""Time and identifiers as arguments, so that tests own both."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time. `now` is aware UTC wall time; `monotonic` is seconds from an arbitrary start."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class Ids(Protocol):
    """Makes identifiers that are unique across replicas."""

    def new(self) -> str: ...


class RandomIds:
    """128 random bits as 32 hexadecimal digits."""

    def new(self) -> str:
        return secrets.token_hex(16)
