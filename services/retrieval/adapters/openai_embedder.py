"""Vectors from any OpenAI-compatible embeddings endpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from urllib.parse import urlsplit

from openai import AsyncOpenAI, OpenAIError, omit

from services.retrieval.domain.errors import IndexUnavailable
from services.retrieval.ports import EmbedPurpose

REQUEST = 64
SECONDS = 60.0


class OpenAIEmbedder:
    """Implements the port Embedder. `dimensions` 0 leaves them to the model.

    Models of the E5 family want a prefix that says what a text is; others get the text as it is.
    """

    def __init__(self, client: AsyncOpenAI, model: str, dimensions: int) -> None:
        self._client = client
        self._model = model
        self._dimensions = dimensions
        self._prefixed = "e5" in model.lower()

    @property
    def space(self) -> str:
        return f"openai/{urlsplit(str(self._client.base_url)).netloc}/{self._model}/{self._dimensions}"

    async def embed(self, texts: Sequence[str], purpose: EmbedPurpose) -> list[list[float]]:
        prefix = f"{purpose}: " if self._prefixed else ""
        vectors: list[list[float]] = []
        for at in range(0, len(texts), REQUEST):
            # Endpoints refuse an empty text.
            vectors.extend(await self._request([f"{prefix}{text}".strip() or "-" for text in texts[at : at + REQUEST]]))
        return vectors

    async def close(self) -> None:
        await self._client.close()

    async def _request(self, texts: list[str]) -> list[list[float]]:
        try:
            answer = await self._client.embeddings.create(
                model=self._model,
                input=texts,
                dimensions=self._dimensions or omit,
                encoding_format="float",
                timeout=SECONDS,
            )
        except OpenAIError as failure:
            raise IndexUnavailable(
                f"the embedder '{self._model}' does not answer; check its URL, key and model"
            ) from failure
        if len(answer.data) != len(texts):
            raise IndexUnavailable(
                f"the embedder '{self._model}' gave {len(answer.data)} vectors for {len(texts)} texts"
            )
        return [_unit(one.embedding) for one in sorted(answer.data, key=lambda one: one.index)]


def _unit(vector: Sequence[float]) -> list[float]:
    length = math.sqrt(sum(value * value for value in vector))
    return [value / length for value in vector] if length else list(vector)
