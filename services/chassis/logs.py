"""Logs: one JSON object a line on standard error, each with the trace it belongs to."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

from opentelemetry import trace

from services.chassis.later import Soon

# What every LogRecord has anyway; the rest came in `extra` and belongs to the event.
STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "event", "place"}
# Seconds that a line may wait for others, so that none is made and written while someone waits for a first token.
GATHER = 0.02

_bound: ContextVar[dict[str, object]] = ContextVar("log fields", default={})  # noqa: B039 - never changed in place


@contextmanager
def bound(**fields: object) -> Iterator[None]:
    """Put `fields` on every line that is logged inside the block, by this task and those it starts there.

    Never hold it open across a `yield` of a generator.
    """
    token = _bound.set(_bound.get() | fields)
    try:
        yield
    finally:
        _bound.reset(token)


_encoded = json.JSONEncoder(default=str, ensure_ascii=False).encode


class JsonFormatter(logging.Formatter):
    """Renders a record as one line: time, level, service, logger, event, message, trace, span, bound fields, extra."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
        }
        event = getattr(record, "event", None)
        if event is not None:
            line["event"] = event
        line["message"] = record.getMessage()
        context, fields = getattr(record, "place", None) or _place()
        if context.is_valid:
            line["trace_id"] = trace.format_trace_id(context.trace_id)
            line["span_id"] = trace.format_span_id(context.span_id)
        line.update(fields)
        line.update({key: value for key, value in vars(record).items() if key not in STANDARD})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encoded(line)


def _place() -> tuple[trace.SpanContext, dict[str, object]]:
    """Return where the running code stands: its span and the bound fields."""
    return trace.get_current_span().get_span_context(), _bound.get()


class GatheringHandler(logging.StreamHandler[TextIO]):
    """Writes the lines of an event loop's moment together, `GATHER` seconds after the first; those of threads at once.

    Order is kept: a warning, or whatever is worse, is written at once with all that wait.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._waiting: list[logging.LogRecord] = []
        self._soon = Soon(GATHER, self.flush)

    def emit(self, record: logging.LogRecord) -> None:
        record.place = _place()
        self._waiting.append(record)
        if record.levelno >= logging.WARNING:
            self.flush()
        else:
            self._soon.ask()

    def flush(self) -> None:
        """Write what waits. Also called by the standard library when the process ends."""
        self.acquire()
        try:
            self._soon.done()
            waiting, self._waiting = self._waiting, []
            for record in waiting:
                try:
                    self.stream.write(self.format(record) + self.terminator)
                except Exception:  # noqa: BLE001 - one line that cannot be told must not keep the others
                    self.handleError(record)
            super().flush()
        finally:
            self.release()


def configure_logs(service: str, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send every log of this process to `stream` (standard error by default) as JSON lines."""
    # No line tells of files, threads and processes, and finding them is half of what a record costs.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = ""  # noqa: SLF001 - the documented way to leave out who called
    handler = GatheringHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Libraries that tell each request at INFO would drown the events of the suite.
    for noisy in ("httpx", "httpx2", "httpcore", "uvicorn.access", "alembic", "sqlalchemy", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
