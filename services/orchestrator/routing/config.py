"""What an agent's author says of its router: labels with examples, hints, and the text for questions off the subject.

In `proctor.toml`, as in the API's `router_json`:

    [agents.handbook.router]
    classifier = "embeddings"                # or "model", the default
    off_topic_text = "I answer questions about the handbook."

    [agents.handbook.router.labels]
    topic = ["How much is the mileage allowance?", "May I take a taxi?"]
    small_talk = ["Hello!", "Thank you."]
    calculation = { examples = ["What are 17 % of 2,340?"], hint = "Use run_code." }
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from services.chassis.canonical import canonical_json

TOPIC = "topic"
SMALL_TALK = "small_talk"
CALCULATION = "calculation"
MAX_LABELS = 16
# The embedding service takes 256 texts at once; the question and what it is compared with go along.
MAX_EXAMPLES = 200
MAX_CHARACTERS = 2_000
CALCULATION_HINT = "This question needs a calculation: use run_code for it instead of computing in your head."

_KEYS = frozenset({"classifier", "off_topic_text", "labels"})
_LABEL_KEYS = frozenset({"description", "examples", "hint"})
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


class RouterInvalid(ValueError):
    """The router is wrong; the message names the key and the remedy."""


class ClassifierKind(Enum):
    """What gives the scores."""

    MODEL = "model"
    EMBEDDINGS = "embeddings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One kind of question; `hint` is told to the agent when the label's score is high."""

    name: str
    description: str = ""
    examples: tuple[str, ...] = ()
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """A router. Without a text for what is off the subject such questions go to the agent too."""

    labels: tuple[Label, ...]
    classifier: ClassifierKind = ClassifierKind.MODEL
    off_topic_text: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the labels, in order."""
        return tuple(label.name for label in self.labels)


def router_json(table: Mapping[str, Any]) -> bytes:
    """Return the table as canonical JSON, or raise RouterInvalid."""
    content = canonical_json(table)
    read_router(content)
    return content


def read_router(content: bytes) -> RouterConfig:
    """Return the router that `router_json` describes, or raise RouterInvalid."""
    try:
        table = json.loads(content)
    except ValueError as error:
        raise RouterInvalid(f"the router is no JSON: {error}") from error
    if not isinstance(table, dict):
        raise RouterInvalid(f"the router must be a table, not {table!r}")
    _known(table, _KEYS, "the router")
    try:
        kind = ClassifierKind(table.get("classifier", "model"))
    except ValueError:
        raise RouterInvalid(f"classifier must be model or embeddings, not {table['classifier']!r}") from None
    labels = table.get("labels")
    if not isinstance(labels, dict) or TOPIC not in labels:
        raise RouterInvalid(f"labels must have '{TOPIC}', with questions that the agent is there for as its examples")
    if len(labels) > MAX_LABELS:
        raise RouterInvalid(f"labels has {len(labels)} entries; {MAX_LABELS} at most")
    config = RouterConfig(
        labels=tuple(_label(name, entry, kind) for name, entry in labels.items()),
        classifier=kind,
        off_topic_text=_text(table.get("off_topic_text", ""), "off_topic_text"),
    )
    if (count := sum(len(label.examples) for label in config.labels)) > MAX_EXAMPLES:
        raise RouterInvalid(f"the labels have {count} examples together; {MAX_EXAMPLES} at most")
    return config


def _label(name: str, entry: Any, kind: ClassifierKind) -> Label:
    if not _NAME.fullmatch(name):
        raise RouterInvalid(f"label '{name}' must be lower-case letters, digits and _, 32 at most")
    table = {"examples": entry} if isinstance(entry, list) else entry
    if not isinstance(table, dict):
        raise RouterInvalid(f"label '{name}' must be a list of examples or a table, not {entry!r}")
    _known(table, _LABEL_KEYS, f"label '{name}'")
    examples = table.get("examples", [])
    if not isinstance(examples, list):
        raise RouterInvalid(f"label '{name}': examples must be a list of texts, not {examples!r}")
    label = Label(
        name=name,
        description=_text(table.get("description", ""), f"label '{name}': description"),
        examples=tuple(_text(example, f"label '{name}': an example", required=True) for example in examples),
        hint=_text(table.get("hint", ""), f"label '{name}': hint") or (CALCULATION_HINT if name == CALCULATION else ""),
    )
    if kind is ClassifierKind.EMBEDDINGS and not label.examples:
        raise RouterInvalid(f"label '{name}' needs examples: embeddings compare the question with them")
    if not label.examples and not label.description:
        raise RouterInvalid(f"label '{name}' needs a description or examples")
    if not label.hint and name not in (TOPIC, SMALL_TALK):
        raise RouterInvalid(f"label '{name}' needs a hint for the agent; without one it changes nothing")
    return label


def _known(table: Mapping[str, Any], keys: frozenset[str], where: str) -> None:
    if unknown := sorted(set(table) - keys):
        raise RouterInvalid(f"{where} has unknown keys {unknown}; known are {sorted(keys)}")


def _text(value: Any, where: str, *, required: bool = False) -> str:
    if not isinstance(value, str) or (required and not value.strip()):
        raise RouterInvalid(f"{where} must be a text, not {value!r}")
    if len(value) > MAX_CHARACTERS:
        raise RouterInvalid(f"{where} has {len(value)} characters; {MAX_CHARACTERS} at most")
    return value.strip()
