"""One short completion of a model behind any OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio

from openai import AsyncOpenAI


async def complete(
    client: AsyncOpenAI, model: str, instruction: str, asked: str, *, max_tokens: int, seconds: float
) -> str:
    """Return what the model wrote within `seconds`, stripped; empty for nothing. Raises OpenAIError, TimeoutError."""
    async with asyncio.timeout(seconds):
        reply = await client.chat.completions.create(
            model=model,
            max_tokens=max_tokens,
            temperature=0,
            messages=[{"role": "system", "content": instruction}, {"role": "user", "content": asked}],
        )
    return (reply.choices[0].message.content or "").strip() if reply.choices else ""
