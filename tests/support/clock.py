"""Time and ids that a test owns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2030, 1, 1, 12, tzinfo=UTC)


class FakeClock:
    """Stands still until `advance`."""

    def __init__(self, now: datetime = START, monotonic: float = 1000.0) -> None:
        self._now = now
        self._monotonic = monotonic

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both clocks."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def set_wall(self, now: datetime) -> None:
        """Let the wall clock jump, as a correction does, while the monotonic one goes on."""
        self._now = now


class SequentialIds:
    """`id-1`, `id-2`, …"""

    def __init__(self, prefix: str = "id") -> None:
        self._prefix = prefix
        self._last = 0

    def new(self) -> str:
        self._last += 1
        return f"{self._prefix}-{self._last}"
