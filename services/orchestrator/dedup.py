"""Refusing to do the same thing twice: exact, cooldown, unique."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import timedelta

from services.chassis.canonical import canonical_json
from services.chassis.clock import Clock
from services.orchestrator.tools.ports import ToolDefinition


def call_key(name: str, arguments_json: bytes) -> bytes:
    """Return SHA-256 over the name and the canonical arguments, so the order of keys does not matter."""
    return hashlib.sha256(name.encode() + b"\x00" + arguments_json).digest()


@dataclass(slots=True, kw_only=True)
class ConversationMemory:
    """What dedup keeps for a conversation: tools used up, and seconds of cooldown remaining by tool."""

    used_up: set[str] = field(default_factory=set)
    cooldowns: dict[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.used_up or self.cooldowns)

    def encode(self) -> bytes:
        """Return it as canonical JSON."""
        return canonical_json({"cooldowns": self.cooldowns, "used_up": sorted(self.used_up)})

    @classmethod
    def decode(cls, text: bytes) -> ConversationMemory:
        """Return what `encode` wrote; an empty text is an empty memory."""
        saved = json.loads(text or b"{}")
        return cls(used_up=set(saved.get("used_up", ())), cooldowns=dict(saved.get("cooldowns", {})))


class Deduplicator:
    """The three checks for one run. Only completed executions count; time is the monotonic clock's."""

    def __init__(self, seen: set[bytes], memory: ConversationMemory, clock: Clock) -> None:
        self._seen = seen
        self._memory = memory
        self._clock = clock
        start = clock.monotonic()
        self._until = {name: start + seconds for name, seconds in memory.cooldowns.items()}

    def branch(self, seen: set[bytes]) -> Deduplicator:
        """Return one for a step with calls of its own; what a conversation remembers is shared."""
        other = Deduplicator(seen, self._memory, self._clock)
        other._until = self._until
        return other

    def refusal(self, tool: ToolDefinition, arguments_json: bytes) -> str:
        """Return why the call is refused, in words the model can act on; empty when it is not."""
        if not tool.repeatable and call_key(tool.name, arguments_json) in self._seen:
            return (
                f"'{tool.name}' was already called with exactly these arguments and its result is above; "
                "use it, or call with other arguments"
            )
        if tool.unique and tool.name in self._memory.used_up:
            return f"'{tool.name}' may run once a conversation and has run; go on with its result"
        left = self._until.get(tool.name, 0.0) - self._clock.monotonic()
        if left > 0:
            return f"'{tool.name}' ran a moment ago; it may run again in {left:.0f} s, go on without it"
        return ""

    def completed(self, tool: ToolDefinition, arguments_json: bytes) -> None:
        """Count a completed execution."""
        self._seen.add(call_key(tool.name, arguments_json))
        if tool.unique:
            self._memory.used_up.add(tool.name)
        if tool.cooldown is not None:
            self._until[tool.name] = self._clock.monotonic() + tool.cooldown / timedelta(seconds=1)

    def remember(self) -> ConversationMemory:
        """Return what the conversation keeps, cooldowns as seconds remaining."""
        now = self._clock.monotonic()
        self._memory.cooldowns = {name: until - now for name, until in self._until.items() if until > now}
        return self._memory
