"""The key store, on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from services.chassis.database import migrate, open_engine
from services.gateway.adapters.sql_keys import SqlKeys
from services.gateway.bootstrap import MIGRATIONS
from services.gateway.keys import ApiKey
from tests.support.clock import START


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[SqlKeys]:
    engine = open_engine(database_url)
    await migrate(engine, MIGRATIONS)
    yield SqlKeys(engine)
    await engine.dispose()


def key(key_id: str = "k1", **fields: Any) -> ApiKey:
    return ApiKey(
        **{
            "key_id": key_id,
            "tenant": "acme",
            "user": "ann",
            "name": "持続",
            "secret_hash": "$argon2id$x",
            "scopes": frozenset({"runs", "sources:read"}),
            "groups": frozenset({"finance"}),
            "agent": "handbook",
            "created_by": "boss",
            "created_at": START,
            "expires_at": START + timedelta(days=1, microseconds=7),
            "replaces": "k0",
            **fields,
        }
    )


async def test_a_key_comes_back_as_it_was(store: SqlKeys) -> None:
    await store.add(key())
    assert await store.find(["k1", "none"]) == [key()]
    assert await store.find([]) == []


async def test_keys_are_paged_newest_first_within_their_tenant(store: SqlKeys) -> None:
    same_moment = [key(f"k{n}") for n in range(3)]
    newer = key("k9", created_at=START + timedelta(seconds=1))
    for each in [*same_moment, newer, key("x", tenant="rival")]:
        await store.add(each)
    first = await store.page("acme", None, 2)
    assert [each.key_id for each in first] == ["k9", "k2"]
    rest = await store.page("acme", (first[-1].created_at, first[-1].key_id), 9)
    assert [each.key_id for each in rest] == ["k1", "k0"]


async def test_an_end_never_moves_later(store: SqlKeys) -> None:
    await store.add(key(expires_at=None))
    sooner, later = START + timedelta(hours=1), START + timedelta(hours=2)
    assert await store.end("acme", "k1", revoked_at=None, expires_at=sooner)
    assert await store.end("acme", "k1", revoked_at=None, expires_at=later)
    assert await store.end("acme", "k1", revoked_at=sooner, expires_at=None)
    assert await store.end("acme", "k1", revoked_at=later, expires_at=None)
    (found,) = await store.find(["k1"])
    assert (found.expires_at, found.revoked_at) == (sooner, sooner)


async def test_another_tenants_key_is_not_ended(store: SqlKeys) -> None:
    await store.add(key())
    assert not await store.end("rival", "k1", revoked_at=START, expires_at=None)
    assert not await store.end("acme", "none", revoked_at=START, expires_at=None)
    assert await store.find(["k1"]) == [key()]


async def test_use_is_noted(store: SqlKeys) -> None:
    await store.add(key())
    await store.used("k1", START)
    assert await store.find(["k1"]) == [replace(key(), last_used_at=START)]
