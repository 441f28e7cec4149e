"""What the board shows of requests that wait: how many, and how long the oldest has."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from services.approval.ports import Approvals, Waiting
from services.approval.telemetry import MeasuredApprovals
from services.chassis import names
from tests.support.clock import FakeClock
from tests.support.platform import Recorded, recorded_telemetry


class Desk:
    """Tells what waits as it is told to."""

    def __init__(self) -> None:
        self.told = Waiting(count=0, since=None)

    async def waiting(self) -> Waiting:
        return self.told


def shown(recorded: Recorded) -> tuple[int, int]:
    gauges: list[Any] = [recorded.points(each.name) for each in (names.APPROVALS_PENDING, names.APPROVALS_OLDEST_AGE)]
    (count,), (age,) = gauges
    return count.value, age.value


async def test_count_and_age_follow_what_the_store_says() -> None:
    recorded, clock, desk = recorded_telemetry(), FakeClock(), Desk()
    measured = MeasuredApprovals(cast("Approvals", desk), recorded.telemetry, clock)
    desk.told = Waiting(count=3, since=clock.now() - timedelta(seconds=90))
    await measured.observe_waiting()
    assert shown(recorded) == (3, 90)
    clock.advance(30)
    await measured.observe_waiting()
    assert shown(recorded) == (3, 120)
    # A clock that was set back makes nobody wait a negative time.
    desk.told = Waiting(count=1, since=clock.now() + timedelta(seconds=5))
    await measured.observe_waiting()
    assert shown(recorded) == (1, 0)
    desk.told = Waiting(count=0, since=None)
    await measured.observe_waiting()
    assert shown(recorded) == (0, 0)
