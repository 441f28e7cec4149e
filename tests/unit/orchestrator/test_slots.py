"""Admission of runs: a bound, a queue with a bound, tenants in turn, nothing lost to cancellation."""

from __future__ import annotations

import asyncio

import pytest

from services.chassis.errors import Overloaded
from services.orchestrator.slots import FairSlots, SlotLimits


async def waiting(slots: FairSlots, tenant: str, order: list[str], name: str) -> asyncio.Task[None]:
    """Start a run that waits for a slot and says when it got one."""

    async def run() -> None:
        await slots.acquire(tenant)
        order.append(name)

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    return task


async def test_beyond_bound_and_queue_callers_are_told_when_to_come_back() -> None:
    slots = FairSlots(SlotLimits(running=1, waiting=1, retry_after=2.5))
    await slots.acquire("a")
    slots.check()
    task = await waiting(slots, "a", [], "second")
    with pytest.raises(Overloaded) as caught:
        slots.check()
    assert caught.value.retry_after == 2.5
    slots.release("a")
    await task


async def test_waiting_tenants_are_served_in_turn_not_by_arrival() -> None:
    slots = FairSlots(SlotLimits(running=1))
    order: list[str] = []
    await slots.acquire("busy")
    tasks = [await waiting(slots, t, order, n) for t, n in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"))]
    slots.release("busy")
    for tenant in ("a", "b", "a", "a"):
        await asyncio.sleep(0)
        slots.release(tenant)
    await asyncio.gather(*tasks)
    assert order == ["a1", "b1", "a2", "a3"]


async def test_one_tenant_cannot_take_every_slot() -> None:
    slots = FairSlots(SlotLimits(running=3, per_tenant=2))
    await slots.acquire("a")
    await slots.acquire("a")
    order: list[str] = []
    third = await waiting(slots, "a", order, "a3")
    await asyncio.wait_for(slots.acquire("b"), 1)
    assert order == []
    slots.release("a")
    await third
    assert order == ["a3"]


async def test_a_cancelled_wait_leaves_the_queue_and_loses_no_slot() -> None:
    slots = FairSlots(SlotLimits(running=1))
    order: list[str] = []
    await slots.acquire("a")
    first, second = await waiting(slots, "a", order, "first"), await waiting(slots, "a", order, "second")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert slots.waiting == 1
    slots.release("a")
    await second
    assert (order, slots.running, slots.waiting) == (["second"], 1, 0)


async def test_a_slot_that_comes_together_with_the_cancellation_goes_to_the_next() -> None:
    slots = FairSlots(SlotLimits(running=1))
    order: list[str] = []
    await slots.acquire("a")
    first, second = await waiting(slots, "a", order, "first"), await waiting(slots, "b", order, "second")
    slots.release("a")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await asyncio.wait_for(second, 1)
    assert slots.running == 1
