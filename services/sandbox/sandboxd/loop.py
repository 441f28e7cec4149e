"""A single-threaded event loop: descriptors with callbacks and a tick. The supervisor forks, so it has no threads."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable

Callback = Callable[[], object]
# How often limits are checked while code runs: a watchdog at 20 ms lets a 256 MB limit overshoot to 270 MB.
TICK = 0.02
_IDLE = 0.5


class Loop:
    """Waits for descriptors; calls what was registered for them, then every ticker."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._callbacks: dict[int, dict[int, Callback]] = {}
        self._tickers: list[Callback] = []
        self.busy: Callable[[], bool] = lambda: False

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def add_reader(self, fd: int, callback: Callback) -> None:
        """Call `callback` whenever `fd` has something to read."""
        self._set(fd, selectors.EVENT_READ, callback)

    def add_writer(self, fd: int, callback: Callback) -> None:
        """Call `callback` whenever `fd` takes more."""
        self._set(fd, selectors.EVENT_WRITE, callback)

    def remove_writer(self, fd: int) -> None:
        """Stop asking whether `fd` takes more."""
        self._callbacks.get(fd, {}).pop(selectors.EVENT_WRITE, None)
        self._apply(fd)

    def remove(self, fd: int) -> None:
        """Forget `fd`; call it before closing."""
        self._callbacks.pop(fd, None)
        self._apply(fd)

    def every_tick(self, callback: Callback) -> None:
        """Call `callback` after each wait."""
        self._tickers.append(callback)

    def run_once(self) -> None:
        """Wait once, at most a tick while busy, and call what is due."""
        for key, events in self._selector.select(TICK if self.busy() else _IDLE):
            for event in (selectors.EVENT_READ, selectors.EVENT_WRITE):
                callback = self._callbacks.get(key.fd, {}).get(event)
                if events & event and callback is not None:
                    callback()
        for ticker in self._tickers:
            ticker()

    def run_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Run until `done()`; False when it took longer than `seconds`."""
        end = self.now() + seconds
        while not done():
            if self.now() > end:
                return False
            self.run_once()
        return True

    def _set(self, fd: int, event: int, callback: Callback) -> None:
        self._callbacks.setdefault(fd, {})[event] = callback
        self._apply(fd)

    def _apply(self, fd: int) -> None:
        events = 0
        for event in self._callbacks.get(fd, {}):
            events |= event
        known = fd in self._selector.get_map()
        if events and known:
            self._selector.modify(fd, events)
        elif events:
            self._selector.register(fd, events)
        elif known:
            self._selector.unregister(fd)
