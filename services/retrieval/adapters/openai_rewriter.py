"""Rewriting a question by a model: a follow-up made whole, and its translation for sources in the other language."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from openai import AsyncOpenAI, OpenAIError

from services.retrieval.adapters.openai_completion import complete
from services.retrieval.ports import Rewriter, Rewritten

log = logging.getLogger(__name__)

INSTRUCTION = (
    "Rewrite the last question of a user so that it can be searched for without the turns before it: put in what 'it', "
    "'that' or a missing subject stand for, and change nothing else. If it stands by itself, repeat it. Then, on a "
    "second line, translate it: into Chinese if it is in English, otherwise into English. Reply with these two lines."
)
MAX_TOKENS = 300
LONGEST = 2000


class OpenAIRewriter:
    """Implements the port Rewriter; after `seconds`, or when the model fails, the local one answers instead."""

    def __init__(self, client: AsyncOpenAI, model: str, seconds: float, local: Rewriter) -> None:
        self._client = client
        self._model = model
        self._seconds = seconds
        self._local = local

    async def rewrite(self, question: str, history: Sequence[str]) -> Rewritten:
        turns = "\n".join(f"- {turn[:LONGEST]}" for turn in history[-6:])
        asked = f"Earlier turns:\n{turns or '- none'}\n\nLast question:\n{question[:LONGEST]}"
        try:
            text = await complete(
                self._client, self._model, INSTRUCTION, asked, max_tokens=MAX_TOKENS, seconds=self._seconds
            )
        except (OpenAIError, TimeoutError) as failure:
            log.warning("rewriting locally: %s", failure, extra={"event": "retrieval.rewrite_failed"})
            return await self._local.rewrite(question, history)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if not lines or len(text) > LONGEST:
            return await self._local.rewrite(question, history)
        return Rewritten(text=lines[0], translation=lines[1] if len(lines) == 2 else "")
