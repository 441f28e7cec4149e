"""Quotas and what was used of them, over a rolling window of 24 hours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

import grpc

from services.chassis.errors import ServiceError

WINDOW = timedelta(hours=24)


class QuotaScope(Enum):
    """Whose use a quota bounds."""

    TENANT = "tenant"
    USER = "user"
    KEY = "key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Caps of one subject over WINDOW; None is no cap. An empty `subject` is the default for all of the scope."""

    scope: QuotaScope
    subject: str = ""
    runs: int | None = None
    tokens: int | None = None
    cost_micros: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumption:
    """What one subject used within WINDOW; reservations of running runs are part of `tokens`."""

    runs: int
    tokens: int
    cost_micros: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageDay:
    """Use of one UTC day by one user and model."""

    day: datetime
    user: str
    model: str
    runs: int
    input_tokens: int
    output_tokens: int
    cost_micros: int


class QuotaExceeded(ServiceError):
    """A quota is used up; `retry_after` says when enough of it is free again."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "QUOTA_EXCEEDED"

    def __init__(self, scope: QuotaScope, measure: str, limit: int, used: int, retry_after: float) -> None:
        super().__init__(
            f"the {scope.value}'s quota of {limit} {measure} in 24 hours is used up ({used}); "
            f"try again in {retry_after:.0f} s or ask for a higher quota",
            metadata={"scope": scope.value, "measure": measure, "limit": str(limit), "used": str(used)},
            retry_after=retry_after,
        )
        self.measure = measure
