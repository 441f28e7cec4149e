"""Cutting in the processes that parse, which hold the text anyway: the service only stores what comes out of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from services.retrieval.adapters.child_process import Conversation
from services.retrieval.adapters.parsers.exchange import LONGEST, CutJob, Intake, unpack_head
from services.retrieval.adapters.parsers.parsing_children import (
    Limits,
    ended_by_refusal,
    first_line,
    parsing_pool,
    told_of,
)
from services.retrieval.chunk import Cutting
from services.retrieval.portions import CutDocument, Parcel

# Characters cut in a second, at the very least; idle it is 20 times as many. So a large file may take its time, and one
# that is made to be cut slowly may not.
SLOWEST = 100_000
# As the passages' embedder: nobody waits for a large file as for a search beside it.
NICE = 10


class ProcessCutter:
    """Implements the port Cutter with `workers` processes, so as many documents at once.

    A file may take `limits.seconds` to be parsed. Then it is waited for as long again, and a second longer for every
    SLOWEST characters that came, but never longer than `limits.seconds` for the next of them; time in which nobody
    waits, because the service stores what came, does not count.
    """

    def __init__(self, limits: Limits, sizes: Cutting, *, workers: int) -> None:
        self._limits = limits
        self._sizes = sizes
        self._pool = parsing_pool(limits, workers, nice=NICE, longest=LONGEST)

    @asynccontextmanager
    async def open(self, path: Path, name: str) -> AsyncIterator[CutDocument]:
        seconds, most = self._limits.seconds, self._limits.max_characters
        job = CutJob(path=str(path), name=name, max_characters=most, sizes=self._sizes)
        # Whatever ends the block before the last parcel, ends the process too.
        async with self._pool.one() as child, child.converse() as conversation:
            with told_of("reading the file", seconds):
                line = await first_line(conversation, job, seconds)
                with ended_by_refusal(conversation):
                    head = unpack_head(line)
            yield CutDocument(head=head, parcels=_Parcels(conversation, Intake(most), seconds))

    async def close(self) -> None:
        """End the processes."""
        await self._pool.close()


class _Parcels(AsyncIterator[Parcel]):
    """The parcels of one document as they are asked for."""

    def __init__(self, conversation: Conversation, intake: Intake, seconds: float) -> None:
        self._conversation = conversation
        self._intake = intake
        self._seconds = self._left = seconds

    async def __anext__(self) -> Parcel:
        if self._conversation.complete:
            raise StopAsyncIteration
        clock = asyncio.get_running_loop().time
        with told_of("cutting the file's text", self._seconds):
            began = clock()
            async with asyncio.timeout(self._left):
                line = await self._conversation.line()
            self._left -= clock() - began
            with ended_by_refusal(self._conversation):
                parcel = self._intake.take(line)
        if parcel is None:
            self._conversation.complete = True
            raise StopAsyncIteration
        brought = sum(len(portion.text) for portion in parcel.portions)
        self._left = min(self._seconds, self._left + brought / SLOWEST)
        return parcel
