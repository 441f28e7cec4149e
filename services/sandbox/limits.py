"""Default and greatest limits, and the check of what a caller asks for."""

from __future__ import annotations

from dataclasses import dataclass

from services.chassis.errors import FieldViolation, InvalidRequest
from services.sandbox.domain import Limits

DEFAULTS = Limits(wall=30.0, cpu=20.0, memory_bytes=1 << 30, pids=64)
MAXIMA = Limits(wall=300.0, cpu=200.0, memory_bytes=4 << 30, pids=256)
# Below this Python itself does not start.
_LEAST_MEMORY = 16 << 20

MAX_CODE_BYTES = 256 << 10
MAX_FILES = 32
MAX_FILES_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """What a caller asks for; 0 is the default."""

    wall: float = 0.0
    cpu: float = 0.0
    memory_bytes: int = 0
    pids: int = 0


def resolve(requested: Requested, *, defaults: Limits = DEFAULTS, maxima: Limits = MAXIMA) -> Limits:
    """Return the limits to hold; raise InvalidRequest naming each field that is above its maximum or negative."""
    limits = Limits(
        wall=requested.wall or defaults.wall,
        cpu=requested.cpu or defaults.cpu,
        memory_bytes=requested.memory_bytes or defaults.memory_bytes,
        pids=requested.pids or defaults.pids,
    )
    checks = (
        ("limits.wall", limits.wall, 0.05, maxima.wall, "seconds"),
        ("limits.cpu", limits.cpu, 0.05, maxima.cpu, "seconds"),
        ("limits.memory_bytes", limits.memory_bytes, _LEAST_MEMORY, maxima.memory_bytes, "bytes"),
        ("limits.pids", limits.pids, 1, maxima.pids, "processes"),
    )
    violations = [
        FieldViolation(field=field, description=f"must be between {least:g} and {most:g} {unit}, not {value:g}")
        for field, value, least, most, unit in checks
        if not least <= value <= most
    ]
    if violations:
        raise InvalidRequest("; ".join(f"{v.field} {v.description}" for v in violations), violations=violations)
    return limits
