"""Parsing processes: what one file may take of them, and what its uploader is told when it takes more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from services.retrieval.adapters.child_pool import ChildPool
from services.retrieval.adapters.child_process import (
    MAX_LINE,
    ChildDied,
    ChildProcess,
    Conversation,
    ReplyTooLong,
)
from services.retrieval.adapters.parsers.exchange import Job, Nonsense, pack_job
from services.retrieval.domain.errors import UnreadableFile

log = logging.getLogger(__name__)

WORKER = "services.retrieval.adapters.parsers.worker"
# Parsers' libraries leak a little; a fresh process now and then costs 0.3 s.
RETIRE_AFTER = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds that a file may take, bytes of memory of the process, characters of the file's text."""

    seconds: float
    memory_bytes: int
    max_characters: int


def parsing_pool(limits: Limits, workers: int, *, nice: int, longest: int = MAX_LINE) -> ChildPool:
    """Return at most `workers` parsing processes within these limits, with so much less priority than ours.

    A line of theirs has at most `longest` bytes.
    """
    arguments = [str(limits.memory_bytes), str(nice)]
    return ChildPool(
        [ChildProcess(WORKER, arguments, retire_after=RETIRE_AFTER, longest=longest) for _ in range(workers)]
    )


async def first_line(conversation: Conversation, job: Job, seconds: float) -> bytes:
    """Give the process a job and return the first line of its reply; TimeoutError after so many seconds."""
    async with asyncio.timeout(seconds):
        await conversation.send(pack_job(job))
        return await conversation.line()


@contextmanager
def ended_by_refusal(conversation: Conversation) -> Iterator[None]:
    """Keep a process that refused a file: it has said all and waits for the next."""
    try:
        yield
    except UnreadableFile:
        conversation.complete = True
        raise


@contextmanager
def told_of(doing: str, seconds: float) -> Iterator[None]:
    """Turn what befalls a parsing process into UnreadableFile; `doing` says what it did, at most `seconds` long."""
    try:
        yield
    except TimeoutError:
        raise UnreadableFile("TOO_SLOW", f"{doing} took longer than {seconds:g} seconds") from None
    except ChildDied:
        raise UnreadableFile("TOO_LARGE", f"{doing} needed more memory than one file may take") from None
    except (Nonsense, ReplyTooLong) as fault:
        # A fault of ours, or a file that has taken its parser over: operators should look at it.
        log.warning("a parsing process answers nonsense: %s", fault, extra={"event": "parser.nonsense"})
        told = f"{doing} led to nonsense, as damaged files and hostile ones do; nothing of it is kept"
        raise UnreadableFile("UNSUPPORTED_DOCUMENT", told) from None
