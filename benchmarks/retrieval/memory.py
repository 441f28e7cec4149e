"""How much memory one big file takes, from its bytes to its passages, and how fast it goes in.

    python -m benchmarks.retrieval.memory 300      # megabytes of plain text

Words alone, with the limits that the service has by default. The service and the largest of its helpers, parsers
and the upkeep of the index, are measured apart.
"""

from __future__ import annotations

import asyncio
import random
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.retrieval.library import CALLER, bench
from services.chassis.clock import RandomIds
from services.retrieval.domain.library import Progress, Upload
from services.retrieval.settings import Settings

STEMS = ["ba", "ce", "di", "fo", "gu", "lam", "pre", "sto", "tri", "ver"]
ENDINGS = ["ning", "tion", "ment", "able", "ing", "ed", "er", "ous", "ly", "al"]


def paragraphs(megabytes: int) -> list[bytes]:
    """Return pieces of some 64 KiB, few enough that repeating them costs no memory."""
    rng = random.Random(1)
    words = [f"{a}{b}{c}" for a in STEMS for b in ENDINGS for c in map(str, range(60))]
    pieces = []
    for number in range(min(megabytes * 16, 64)):
        text = f"Section {number}\n\n"
        while len(text) < 64 * 1024:
            text += " ".join(rng.choices(words, k=rng.randint(40, 90))).capitalize() + ".\n\n"
        pieces.append(text.encode())
    return pieces


async def upload(megabytes: int) -> AsyncIterator[bytes]:
    """Yield the bytes of the file."""
    pieces = paragraphs(megabytes)
    for number in range(megabytes * 16):
        yield pieces[number % len(pieces)]


async def main(megabytes: int) -> None:
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as folder:
        limits = Settings()
        async with bench(
            Path(folder), None, max_characters=limits.max_characters, parse_seconds=limits.parse_seconds
        ) as made:
            source = await made.library.create(CALLER, name="big", description="", shared=True)
            started, cpu, before = time.perf_counter(), time.process_time(), _peak(resource.RUSAGE_SELF)
            staged, size, digest = await made.staging.receive(upload(megabytes), limits.max_file_bytes)
            file = Upload(
                tenant=source.tenant, source_id=source.id, path="big.txt", staged=staged, size=size, content_hash=digest
            )
            ended = asyncio.Event()
            told: list[Progress] = []

            def report(progress: Progress) -> None:
                told.append(progress)
                if progress.state.settled:
                    ended.set()

            working = asyncio.create_task(made.ingest.run())
            await made.ingest.submit(file, RandomIds().new(), report)
            await ended.wait()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            taken, cpu = time.perf_counter() - started, time.process_time() - cpu
            chunks, _ = await made.index.count(source.tenant, source.id)
        print(f"{megabytes} MB, {told[-1].state}, {chunks} chunks in {taken:.0f} s, {cpu:.0f} s of the processor")
        print(f"{chunks / taken:.0f} chunks/s by the clock, {chunks / cpu:.0f} by the processor's time")
    print(
        f"peak memory {_peak(resource.RUSAGE_SELF)} MiB (before {before}), helper {_peak(resource.RUSAGE_CHILDREN)} MiB"
    )


def _peak(who: int) -> int:
    return resource.getrusage(who).ru_maxrss // 1024


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
