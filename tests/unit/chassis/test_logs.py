from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider

from services.chassis.logs import GATHER, bound, configure_logs


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    sink = io.StringIO()
    configure_logs("probe", "INFO", sink)
    yield sink
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_is_json_with_event_and_fields(lines: io.StringIO) -> None:
    logging.getLogger("x").info("run %s started", "r1", extra={"event": "run.started", "run_id": "r1"})
    line = json.loads(lines.getvalue())
    assert line["event"] == "run.started"
    assert (line["message"], line["run_id"], line["service"], line["level"]) == (
        "run r1 started",
        "r1",
        "probe",
        "info",
    )
    assert "trace_id" not in line


def test_a_line_inside_a_span_names_its_trace(lines: io.StringIO) -> None:
    with TracerProvider(shutdown_on_exit=False).get_tracer("t").start_as_current_span("s") as span:
        logging.getLogger("x").warning("here")
    line = json.loads(lines.getvalue())
    assert int(line["trace_id"], 16) == span.get_span_context().trace_id
    assert int(line["span_id"], 16) == span.get_span_context().span_id


def test_a_failure_stays_on_one_line(lines: io.StringIO) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("x").exception("failed")
    assert lines.getvalue().count("\n") == 1
    assert "two\nlines" in json.loads(lines.getvalue())["exception"]


def test_bound_fields_are_on_every_line_of_the_block_and_on_none_after_it(lines: io.StringIO) -> None:
    with bound(run_id="r1"), bound(attempt=2):
        logging.getLogger("x").info("inside")
    logging.getLogger("x").info("outside")
    inside, outside = (json.loads(line) for line in lines.getvalue().splitlines())
    assert (inside["run_id"], inside["attempt"]) == ("r1", 2)
    assert "run_id" not in outside


async def test_lines_of_a_moment_leave_together_and_say_where_they_were_told(lines: io.StringIO) -> None:
    log = logging.getLogger("x")
    with bound(run_id="r1"):
        log.info("first")
    log.info("second")
    assert lines.getvalue() == ""
    await asyncio.sleep(2 * GATHER)
    first, second = (json.loads(line) for line in lines.getvalue().splitlines())
    assert (first["message"], first["run_id"], second["message"]) == ("first", "r1", "second")
    assert "run_id" not in second


async def test_a_warning_waits_for_nothing_and_takes_along_what_was_told_before(lines: io.StringIO) -> None:
    log = logging.getLogger("x")
    log.info("first")
    log.warning("second")
    assert [json.loads(line)["message"] for line in lines.getvalue().splitlines()] == ["first", "second"]


async def test_a_line_that_cannot_be_told_keeps_no_other_back(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log = logging.getLogger("x")
    log.info("%d", "no number")
    log.warning("second")
    assert [json.loads(line)["message"] for line in lines.getvalue().splitlines()] == ["second"]
