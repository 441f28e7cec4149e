"""What summaries need from outside, by role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.retrieval.domain.library import Document


class Summarizer(Protocol):
    """Writes summaries."""

    async def summarize(self, title: str, text: str) -> str:
        """Return a summary of a document, in its own language, or raise SummarizerUnavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryJob:
    """A searched revision of a document without a summary, or whose summary has no vector in the embedding space."""

    document: Document
    attempts: int


class SummaryQueue(Protocol):
    """Which documents still want a summary: those that are searched and long enough. One worker holds a job."""

    async def recover(self) -> None:
        """Free what a process before us held, if only one process can use these tables at a time."""

    async def claim(self, space: str) -> SummaryJob | None:
        """Take the next job, or None. A job that nobody reports on is given out again after the lease."""

    async def finish(self, job: SummaryJob, space: str) -> bool:
        """Record that the revision has its summary; False when it was replaced or deleted meanwhile."""

    async def postpone(self, job: SummaryJob, seconds: float) -> None:
        """Give the job back after a failure, not to be taken for `seconds`."""

    async def pending(self, source_ids: Sequence[str]) -> Mapping[str, int]:
        """Return how many documents of each source want a summary, those that were given up left out."""
