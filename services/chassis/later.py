"""Doing what nobody waits for a moment later, so that whoever waits for a first token or for an end comes first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Protocol, TypeVarTuple

# Seconds that telling waits. A commit with all that it shows takes less, and a log's lines are gathered for longer.
MOMENT = 0.005

Ts = TypeVarTuple("Ts")
_log = logging.getLogger(__name__)


class Telling(Protocol):
    """When something is told: a log line, a metric, a span's end."""

    def __call__(self, tell: Callable[[*Ts], None], *args: *Ts) -> None:
        """Call `tell` with `args`, in the context of this call."""
        ...


def at_once(tell: Callable[[*Ts], None], *args: *Ts) -> None:
    """Tell it now."""
    tell(*args)


class Soon:
    """Does one thing `seconds` after it was first asked for; where no loop runs, at once."""

    def __init__(self, seconds: float, do: Callable[[], None]) -> None:
        self._seconds = seconds
        self._do = do
        # The loop that will do it.
        self._asked: asyncio.AbstractEventLoop | None = None

    def ask(self) -> None:
        """Have it done, if it is not going to be."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._do()
            return
        if self._asked is not loop:
            self._asked = loop
            loop.call_later(self._seconds, self._do)

    def done(self) -> None:
        """Note that it is being done: whoever asks from now on asks anew."""
        self._asked = None


class Later:
    """Tells things in their order, `MOMENT` seconds after the first of them; without a running loop at once.

    What is told must hold its times itself.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Context, Callable[..., None], tuple[Any, ...]]] = []
        self._soon = Soon(MOMENT, self.flush)

    def __call__(self, tell: Callable[[*Ts], None], *args: *Ts) -> None:
        """Tell it with what else waits."""
        self._waiting.append((copy_context(), tell, args))
        self._soon.ask()

    def flush(self) -> None:
        """Tell what waits, now."""
        self._soon.done()
        waiting, self._waiting = self._waiting, []
        for context, tell, args in waiting:
            try:
                context.run(tell, *args)
            except Exception:  # noqa: BLE001 - one that cannot be told must not keep the others
                _log.exception("something could not be told")
