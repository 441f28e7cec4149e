"""Refusing texts in which a pattern of the operator is found."""

from __future__ import annotations

import re
from collections.abc import Sequence

from services.orchestrator.guardrails.ports import Checked, Refused, Stage, Verdict

# The longest text that is looked through: a pattern's time grows with it.
MOST_CHARACTERS = 200_000


class Patterns:
    """Refuses a text with any of some regular expressions in it, with the operator's message."""

    def __init__(self, patterns: Sequence[re.Pattern[str]], message: str) -> None:
        self._patterns = tuple(patterns)
        self._message = message

    async def judge(self, text: str, stage: Stage, tenant: str) -> Verdict:
        """Refuse a text that matches. Raises ValueError for one that is too long to look through."""
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"a text of {len(text)} characters is too long to look through")
        if any(pattern.search(text) for pattern in self._patterns):
            return Refused(reason=self._message)
        return Checked(text=text)
