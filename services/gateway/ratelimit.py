"""How many requests a caller may make: a token bucket for each, told in RateLimit headers.

The buckets belong to one gateway process; N replicas admit up to N times the rate. Quotas, which must be exact, are the
orchestrator's.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

import grpc

from services.chassis.clock import Clock
from services.chassis.errors import ServiceError

WINDOW = 60.0
# Most callers whose buckets are remembered; the one seen longest ago is forgotten first, which makes its bucket full.
MOST_BUCKETS = 10_000
# Failed credentials an address may send in a window before it must wait: enough for a typo, useless for guessing.
MOST_FAILURES = 30


class RateLimited(ServiceError):
    """Too many requests from this key or address."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "RATE_LIMITED"


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class RateLimiter:
    """Counts requests by caller and failed credentials by address."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._quota = per_minute
        self._clock = clock
        self._requests: OrderedDict[str, _Bucket] = OrderedDict()
        self._failures: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, caller: str) -> dict[str, str]:
        """Take one request of the caller's and return the RateLimit headers, or raise RateLimited."""
        if self._quota <= 0:
            return {}
        bucket = self._refilled(self._requests, caller, self._quota)
        policy = f'"requests";q={self._quota};w={int(WINDOW)}'
        if bucket.tokens < 1:
            wait = (1 - bucket.tokens) * WINDOW / self._quota
            raise RateLimited(
                f"more than {self._quota} requests in a minute; wait {math.ceil(wait)} s",
                retry_after=wait,
                metadata={"limit": str(self._quota), "window": str(int(WINDOW))},
            )
        bucket.tokens -= 1
        full_in = math.ceil((self._quota - bucket.tokens) * WINDOW / self._quota)
        return {"RateLimit-Policy": policy, "RateLimit": f'"requests";r={int(bucket.tokens)};t={full_in}'}

    def check_failures(self, address: str) -> None:
        """Raise RateLimited while the address has sent too many bad credentials."""
        if address in self._failures and self._refilled(self._failures, address, MOST_FAILURES).tokens < 1:
            raise RateLimited("too many bad credentials from this address; wait a minute", retry_after=WINDOW)

    def count_failure(self, address: str) -> None:
        """Remember a bad credential from the address."""
        self._refilled(self._failures, address, MOST_FAILURES).tokens -= 1

    def _refilled(self, buckets: OrderedDict[str, _Bucket], name: str, size: int) -> _Bucket:
        now = self._clock.monotonic()
        bucket = buckets.setdefault(name, _Bucket(float(size), now))
        bucket.tokens = min(float(size), bucket.tokens + (now - bucket.at) * size / WINDOW)
        bucket.at = now
        buckets.move_to_end(name)
        if len(buckets) > MOST_BUCKETS:
            buckets.popitem(last=False)
        return bucket
