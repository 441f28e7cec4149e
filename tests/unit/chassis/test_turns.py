"""Turns to write: in order, the urgent first, and none lost to those who leave."""

from __future__ import annotations

import asyncio

import pytest

from services.chassis.turns import Turns


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Line:
    """Tasks that take turns, and the order in which they had them."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.order: list[str] = []
        self.go_on = {"first": asyncio.Event()}

    def join(self, name: str, *, urgent: bool = False) -> asyncio.Task[None]:
        async def work() -> None:
            async with self.turns.turn(urgent=urgent):
                self.order.append(name)
                if name in self.go_on:
                    await self.go_on[name].wait()

        return asyncio.create_task(work())


async def test_the_urgent_go_first_and_each_line_keeps_its_order() -> None:
    line = Line()
    tasks = [line.join("first")]
    await settle()
    tasks += [line.join("a"), line.join("b"), line.join("u", urgent=True), line.join("v", urgent=True)]
    await settle()
    assert line.order == ["first"]
    line.go_on["first"].set()
    await asyncio.gather(*tasks)
    assert line.order == ["first", "u", "v", "a", "b"]


async def test_who_leaves_the_line_or_fails_takes_nobodys_turn() -> None:
    line = Line()
    first = line.join("first")
    await settle()
    leaving, staying = line.join("leaving"), line.join("staying")
    await settle()
    leaving.cancel()
    # Cancelled in the very moment in which it is given the turn.
    line.go_on["first"].set()
    await first
    await asyncio.gather(leaving, return_exceptions=True)
    await staying
    assert line.order == ["first", "staying"]
    with pytest.raises(ZeroDivisionError):
        async with line.turns.turn():
            raise ZeroDivisionError
    async with asyncio.timeout(5), line.turns.turn():
        pass


async def test_a_turn_given_to_one_who_is_cancelled_at_once_goes_on() -> None:
    line = Line()
    first = line.join("first")
    await settle()
    given, next_one = line.join("given"), line.join("next")
    await settle()
    line.go_on["first"].set()
    while not first.done():
        await asyncio.sleep(0)
    given.cancel()
    await asyncio.gather(given, return_exceptions=True)
    async with asyncio.timeout(5):
        await next_one
    assert line.order[-1] == "next"
