"""Routing one question: scores within a few seconds or none, and then the agent answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from services.chassis import names
from services.chassis.errors import ServiceError
from services.orchestrator.domain.events import LabelScore, RouteDecided, Stage, StageChanged
from services.orchestrator.domain.messages import Role
from services.orchestrator.leg import Leg
from services.orchestrator.routing.config import ClassifierKind, RouterConfig, RouterInvalid, read_router
from services.orchestrator.routing.decide import Choice, Route, Thresholds, decide
from services.orchestrator.routing.ports import Classifier

_log = logging.getLogger(__name__)
# The user's questions before this one that tell what a follow-up is about.
EARLIER = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings:
    """When a score decides, and how long the scores may take."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    timeout: timedelta = timedelta(seconds=3)


class Router:
    """Decides who answers, and tells of it. It never fails: without a decision the agent answers."""

    def __init__(self, classifiers: Mapping[ClassifierKind, Classifier], settings: RouterSettings) -> None:
        self._classifiers = classifiers
        self._settings = settings

    async def route(self, leg: Leg) -> tuple[RouterConfig, Route]:
        """Return the agent's router and where this question goes; RouteDecided is recorded."""
        leg.post(StageChanged(stage=Stage.ROUTING, text="Looking at the question"))
        begun = leg.clock.monotonic()
        scores: Mapping[str, float] = {}
        config = RouterConfig(labels=())
        try:
            config = read_router(leg.spec.agent.router_json)
            async with asyncio.timeout(self._settings.timeout / timedelta(seconds=1)):
                scores = await self._scores(leg, config)
            route = decide(scores, config, self._settings.thresholds)
        except TimeoutError:
            seconds = self._settings.timeout / timedelta(seconds=1)
            route = Route(choice=Choice.UNDECIDED, explanation=f"no scores within {seconds:g} s")
        except (ServiceError, RouterInvalid) as error:
            route = Route(choice=Choice.UNDECIDED, explanation=f"no scores: {error}")
        told = RouteDecided(
            scores=tuple(LabelScore(label=label, score=score) for label, score in scores.items()),
            choice=route.choice.value,
            explanation=route.explanation,
            duration=timedelta(seconds=leg.clock.monotonic() - begun),
        )
        leg.post(told)
        _log.info(
            "route decided",
            extra={
                "event": names.EVENT_ROUTE_DECIDED,
                "run_id": leg.spec.run_id,
                "choice": told.choice,
                "why": told.explanation,
                "scores": dict(scores),
            },
        )
        return config, route

    async def _scores(self, leg: Leg, config: RouterConfig) -> Mapping[str, float]:
        messages, start = leg.progress.messages, leg.progress.turn_start
        earlier = [message.text for message in messages[:start] if message.role is Role.USER and message.text.strip()]
        question = messages[start].text.strip()
        return await self._classifiers[config.classifier].scores(leg, config, question, earlier[-EARLIER:])
