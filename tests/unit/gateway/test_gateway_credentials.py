"""Keys that were verified are trusted for a moment, but not beyond the end of the streams they had opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from services.chassis.identity import Principal
from services.gateway.background import Background
from services.gateway.credentials import KeyVerifier, Lapses
from services.gateway.keys import ApiKey, KeyRevoked, Keys, NewKey
from tests.support.clock import FakeClock

ADMIN = Principal(tenant="acme", user="root", scopes=frozenset({"*"}))


@dataclass
class Rows:
    """Keys by id, and how often they were looked for."""

    rows: dict[str, ApiKey] = field(default_factory=dict)
    reads: int = 0

    async def add(self, key: ApiKey) -> None:
        self.rows[key.key_id] = key

    async def find(self, key_ids: Sequence[str]) -> list[ApiKey]:
        self.reads += 1
        return [self.rows[key_id] for key_id in key_ids if key_id in self.rows]

    async def page(self, tenant: str, before: tuple[datetime, str] | None, limit: int) -> list[ApiKey]:
        raise AssertionError("not asked for")

    async def end(self, tenant: str, key_id: str, *, revoked_at: datetime | None, expires_at: datetime | None) -> bool:
        self.rows[key_id] = replace(self.rows[key_id], revoked_at=revoked_at)
        return True

    async def used(self, key_id: str, at: datetime) -> None:
        self.rows[key_id] = replace(self.rows[key_id], last_used_at=at)


class Plain:
    """Hashes nothing."""

    async def hash(self, secret: str) -> str:
        return f"plain {secret}"

    async def matches(self, secret: str, hashed: str) -> bool:
        return hashed == f"plain {secret}"


async def test_a_key_whose_streams_were_ended_is_not_trusted_for_another_moment() -> None:
    clock, rows, background = FakeClock(), Rows(), Background()
    keys, lapses = Keys(rows, Plain(), clock), Lapses(rows, clock)
    verifier = KeyVerifier(rows, Plain(), lapses, clock, background, refresh=timedelta(seconds=5))
    issued = await keys.create(ADMIN, "acme", NewKey(name="ci", user="ann", scopes=frozenset({"runs"})))
    caller = await verifier.verify(issued.credential)
    reads = rows.reads
    assert (await verifier.verify(issued.credential)).principal.user == "ann"
    assert rows.reads == reads  # trusted without a look

    await keys.revoke("acme", issued.key.key_id)
    await lapses.check()
    assert caller.lapsed.is_set()
    with pytest.raises(KeyRevoked):
        await verifier.verify(issued.credential)
    await background.settle(1)
