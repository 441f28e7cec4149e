"""Telling later: in order, in its own context, and before the end."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from services.chassis.later import MOMENT, Later, at_once
from services.chassis.telemetry import Exporter, TelemetrySettings, open_telemetry

where: ContextVar[str] = ContextVar("where", default="nowhere")


class Ear:
    """Hears what is told and where it was said."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def hear(self, what: str) -> None:
        self.heard.append((what, where.get()))


async def test_what_waits_is_told_in_order_each_in_its_own_context(monkeypatch: pytest.MonkeyPatch) -> None:
    ear, later, asked = Ear(), Later(), []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_later", lambda delay, call: asked.append((delay, call)))
    where.set("here")
    later(ear.hear, "one")
    where.set("there")
    later(ear.hear, "two")
    assert ear.heard == []
    ((delay, flush),) = asked
    assert delay == MOMENT
    where.set("elsewhere")
    flush()
    assert ear.heard == [("one", "here"), ("two", "there")]
    later(ear.hear, "three")
    assert len(asked) == 2
    later.flush()
    assert ear.heard[2:] == [("three", "elsewhere")]


async def test_what_fails_keeps_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    ear, later = Ear(), Later()

    def fail() -> None:
        raise RuntimeError("broken")

    later(fail)
    later(ear.hear, "after")
    later.flush()
    assert ear.heard == [("after", "nowhere")]
    assert "broken" in caplog.text


def test_without_a_loop_it_is_told_at_once() -> None:
    ear = Ear()
    Later()(ear.hear, "now")
    at_once(ear.hear, "too")
    assert [what for what, _ in ear.heard] == ["now", "too"]


@pytest.mark.parametrize("exporter", ["none", "console"])
async def test_the_end_of_telemetry_tells_what_waits(exporter: str) -> None:
    ear = Ear()
    telemetry = open_telemetry("test", "1", TelemetrySettings(exporter=Exporter(exporter)))
    telemetry.later(ear.hear, "last")
    assert ear.heard == []
    await telemetry.shutdown()
    assert [what for what, _ in ear.heard] == ["last"]
