"""What the router needs: something that gives scores, and something that embeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from services.chassis.identity import Principal
from services.orchestrator.leg import Leg
from services.orchestrator.routing.config import RouterConfig


class Classifier(Protocol):
    """Scores a question by label."""

    async def scores(
        self, leg: Leg, config: RouterConfig, question: str, earlier: Sequence[str]
    ) -> Mapping[str, float]:
        """Return a score from 0 to 1 for each label of `config`.

        `earlier` are the user's questions before this one, the newest last. Raises ServiceError when there are none.
        """
        ...


class TextEmbedder(Protocol):
    """Embeds questions."""

    async def embed(self, principal: Principal, texts: Sequence[str]) -> tuple[str, Sequence[Sequence[float]]]:
        """Return (name of the embedding space, a unit vector for each text); raise ServiceError."""
        ...
