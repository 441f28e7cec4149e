"""From scores to a route: small talk first, then what is off the subject, then hints for the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from services.orchestrator.routing.config import SMALL_TALK, TOPIC, RouterConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When a score decides. Settings of the service; the defaults are the design's."""

    off_topic_below: float = 0.10
    small_talk_from: float = 0.80
    small_talk_topic_below: float = 0.20
    hint_from: float = 0.60


class Choice(Enum):
    """Who answers. The value is what RouteDecided tells; UNDECIDED lets the agent answer."""

    SMALL_TALK = "small_talk"
    OFF_TOPIC = "off_topic"
    TOPIC = "topic"
    UNDECIDED = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A decision, why, and what to tell the agent."""

    choice: Choice
    explanation: str
    hints: tuple[str, ...] = ()


def decide(scores: Mapping[str, float], config: RouterConfig, thresholds: Thresholds) -> Route:
    """Return the route for `scores`, which has one for each label."""
    topic, small_talk = scores[TOPIC], scores.get(SMALL_TALK, 0.0)
    if small_talk >= thresholds.small_talk_from and topic < thresholds.small_talk_topic_below:
        why = (
            f"small_talk {small_talk:.2f} is {thresholds.small_talk_from:.2f} or more and topic {topic:.2f} is below "
            f"{thresholds.small_talk_topic_below:.2f}"
        )
        return Route(choice=Choice.SMALL_TALK, explanation=why)
    if topic < thresholds.off_topic_below and config.off_topic_text:
        why = f"topic {topic:.2f} is below {thresholds.off_topic_below:.2f}"
        return Route(choice=Choice.OFF_TOPIC, explanation=why)
    hinted = [label for label in config.labels if label.hint and scores[label.name] >= thresholds.hint_from]
    why = ", ".join(f"hint for {label.name} {scores[label.name]:.2f}" for label in hinted) or f"topic {topic:.2f}"
    return Route(choice=Choice.TOPIC, explanation=why, hints=tuple(label.hint for label in hinted))
