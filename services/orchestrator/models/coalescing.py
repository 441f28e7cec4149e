"""Read coalescing: with many streams in the process, what arrives gathers in the kernel and is read in one go.

A token that is read alone wakes everything between the socket and the run's readers. How often that happens is bounded
here for all streams together, as network cards moderate their interrupts: the more streams, the longer each one pauses.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.chassis.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Coalescing:
    """How long streams leave what comes in the kernel.

    Up to `free` streams are read as they come. Each one beyond lets all pause for another 1 / `rate` seconds, which
    makes about `rate` reads a second in all; no pause is longer than `longest` seconds. A stream counts while it was
    read in this window of `window` seconds or the one before: one that is silent slows no other down. `window` must be
    longer than `longest`, or streams that pause would not be counted.
    """

    free: int = 32
    # Measured: a read and what follows from it take 0.1 to 0.2 ms of the loop.
    rate: float = 1000.0
    longest: float = 0.15
    window: float = 0.5


class Coalescer:
    """Counts the streams that are being read in this process and says how long each may pause."""

    def __init__(self, clock: Clock, limits: Coalescing | None = None) -> None:
        self._clock = clock
        self._limits = limits or Coalescing()
        # When the window under way ends, and the streams that were read in it and in the one before.
        self._ends = 0.0
        self._seen: set[StreamReads] = set()
        self._seen_before: set[StreamReads] = set()

    def stream(self) -> StreamReads:
        """Return the place of a stream that is going to be read."""
        return StreamReads(self)

    def pause(self, stream: StreamReads) -> float:
        """Return for how many seconds a stream that has just been read should not be read again."""
        limits, now = self._limits, self._clock.monotonic()
        if now >= self._ends:
            # Nothing was read in the last window when more than one has passed.
            self._seen_before = self._seen if now < self._ends + limits.window else set()
            self._seen = set()
            self._ends = now + limits.window
        self._seen.add(stream)
        crowd = max(len(self._seen), len(self._seen_before)) - limits.free
        return min(crowd / limits.rate, limits.longest) if crowd > 0 else 0.0

    def end(self, stream: StreamReads) -> None:
        """Forget a stream that is read no more, so that those who are left do not pause for it."""
        self._seen.discard(stream)
        self._seen_before.discard(stream)


class StreamReads:
    """One stream among those that a Coalescer counts."""

    __slots__ = ("_coalescer",)

    def __init__(self, coalescer: Coalescer) -> None:
        self._coalescer = coalescer

    def pause(self) -> float:
        """Report a read; return for how many seconds the next one should be left, 0 for none."""
        return self._coalescer.pause(self)

    def end(self) -> None:
        """Report that nothing more is read."""
        self._coalescer.end(self)
