"""Background work and the watchers' queues."""

from __future__ import annotations

import asyncio
import logging

import pytest

from services.approval.adapters.notify_local import LocalBell
from services.approval.background import Background, Chore, on_bell
from services.approval.domain import State
from services.approval.feed import MAX_BYTES, Subscription
from services.chassis.errors import Overloaded, Unavailable
from tests.support.approvals import approval


async def test_a_chore_that_fails_is_told_and_done_again(caplog: pytest.LogCaptureFixture) -> None:
    bell = LocalBell()
    turns: asyncio.Queue[int] = asyncio.Queue()
    count = 0

    async def step() -> None:
        nonlocal count
        count += 1
        turns.put_nowait(count)
        if count == 1:
            raise RuntimeError("the database is away")

    background = Background([Chore(name="sweep", wait=on_bell(bell, 0.01), step=step)])
    with caplog.at_level(logging.WARNING):
        background.start()
        async with asyncio.timeout(10):
            await turns.get()
            assert not background.works("sweep")
            await turns.get()
            await turns.get()
    assert background.works("sweep")
    assert "the database is away" in caplog.text
    await background.stop()
    await background.stop()


async def test_a_ring_between_two_waits_is_not_lost() -> None:
    bell = LocalBell()
    listener = bell.listen()
    bell.ring()
    async with asyncio.timeout(5):
        await listener.wait(60)


async def test_a_watcher_gets_the_newest_of_each_in_order() -> None:
    subscription = Subscription(lambda record: record.requested_by == "ann", capacity=10)
    subscription.offer(approval(approval_id="a1"))
    subscription.offer(approval(approval_id="a2", requested_by="bob"))
    subscription.offer(approval(approval_id="a3"))
    subscription.offer(approval(approval_id="a1", state=State.DENIED))
    taken = [await subscription.take(1) for _ in range(2)]
    assert [(record.approval_id, record.state) for record in taken if record] == [
        ("a3", State.PENDING),
        ("a1", State.DENIED),
    ]
    assert await subscription.take(0.01) is None


async def test_a_watcher_who_is_too_slow_is_sent_away() -> None:
    many = Subscription(lambda _: True, capacity=3)
    for number in range(4):
        many.offer(approval(approval_id=f"a{number}"))
    with pytest.raises(Overloaded):
        await many.take(1)
    large = Subscription(lambda _: True, capacity=1000)
    for number in range(3):
        large.offer(approval(approval_id="same", arguments=b"x" * (MAX_BYTES // 2), version=number))
    assert await large.take(1)
    for number in range(3):
        large.offer(approval(approval_id=f"a{number}", arguments=b"x" * (MAX_BYTES // 2)))
    with pytest.raises(Overloaded):
        await large.take(1)


async def test_a_watcher_gets_what_waits_before_the_end() -> None:
    subscription = Subscription(lambda _: True, capacity=3)
    subscription.offer(approval())
    subscription.close()
    assert await subscription.take(1) == approval()
    with pytest.raises(Unavailable):
        await subscription.take(1)
