"""Verifying keys on every request: fast for one seen before, and never longer valid than its row says."""

from __future__ import annotations

import asyncio
import hashlib
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from services.chassis.clock import Clock
from services.chassis.errors import Unauthenticated
from services.gateway.auth import Caller
from services.gateway.background import Background
from services.gateway.ending import Ending
from services.gateway.keys import ApiKey, KeyRevoked, KeyStore, SecretHasher, parse_credential

# Credentials remembered as verified, by their SHA-256; the one used longest ago is verified anew.
MOST_REMEMBERED = 10_000
USED_RESOLUTION = timedelta(minutes=1)


class Lapses:
    """Tells open streams when the credential they were opened with ends."""

    def __init__(self, store: KeyStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._keys: weakref.WeakValueDictionary[str, Ending] = weakref.WeakValueDictionary()
        self._timed: weakref.WeakKeyDictionary[Ending, datetime] = weakref.WeakKeyDictionary()
        # Told the id of each key that has ended.
        self.ended: Callable[[str], object] = str

    def of_key(self, key_id: str) -> Ending:
        """Return the event that is set once the key is revoked or has expired; all users of a key share it."""
        event = self._keys.get(key_id)
        if event is None:
            event = self._keys[key_id] = Ending()
        return event

    def at(self, when: datetime) -> Ending:
        """Return an event that is set at a time."""
        event = Ending()
        self._timed[event] = when
        return event

    async def check(self) -> None:
        """Set the events of whatever has ended."""
        now = self._clock.now()
        for event, when in list(self._timed.items()):
            if now >= when:
                event.set()
        watched = dict(self._keys)
        valid = {key.key_id for key in await self._store.find(list(watched)) if key.valid_at(now)} if watched else set()
        for key_id in watched.keys() - valid:
            # First, so that nobody whose stream has ended comes back in.
            self.ended(key_id)
            watched[key_id].set()
            self._keys.pop(key_id, None)

    async def watch(self, every: timedelta) -> None:
        """Check again and again."""
        while True:
            await asyncio.sleep(every.total_seconds())
            await self.check()


@dataclass(slots=True)
class _Remembered:
    key: ApiKey
    read_at: float


class KeyVerifier:
    """Turns a key into its caller. A row is read again after `refresh`, an Argon2 check is made once per credential."""

    def __init__(
        self,
        store: KeyStore,
        hasher: SecretHasher,
        lapses: Lapses,
        clock: Clock,
        background: Background,
        refresh: timedelta,
    ) -> None:
        self._store = store
        self._hasher = hasher
        self._lapses = lapses
        self._clock = clock
        self._background = background
        self._refresh = refresh.total_seconds()
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()
        lapses.ended = self._forget

    def _forget(self, key_id: str) -> None:
        """Read a key's row again at its next use."""
        for digest in [digest for digest, known in self._remembered.items() if known.key.key_id == key_id]:
            del self._remembered[digest]

    def recognises(self, credential: str) -> bool:
        return parse_credential(credential) is not None

    async def verify(self, credential: str) -> Caller:
        """Return the key's caller; raise Unauthenticated for a wrong key and KeyRevoked for one that has ended."""
        key = await self._known(credential)
        now = self._clock.now()
        if not key.valid_at(now):
            raise KeyRevoked(f"the key '{key.prefix}…' was revoked or has expired", metadata={"key_id": key.key_id})
        if key.last_used_at is None or now - key.last_used_at > USED_RESOLUTION:
            self._background.spawn(self._store.used(key.key_id, now), "note the use of a key")
        lapsed = self._lapses.of_key(key.key_id)
        return Caller(principal=key.principal, identity="key", lapsed=lapsed, agent=key.agent)

    async def _known(self, credential: str) -> ApiKey:
        digest = hashlib.sha256(credential.encode()).digest()
        known = self._remembered.get(digest)
        moment = self._clock.monotonic()
        if known is not None and moment - known.read_at < self._refresh:
            return known.key
        parsed = parse_credential(credential)
        found = await self._store.find([parsed[0]]) if parsed is not None else []
        if not found or parsed is None:
            self._remembered.pop(digest, None)
            raise Unauthenticated("the key is not known here; make one with 'proctor keys create'")
        (key,) = found
        # The same credential against the same hash needs no second look.
        checked = known is not None and known.key.secret_hash == key.secret_hash
        if not checked and not await self._hasher.matches(parsed[1], key.secret_hash):
            raise Unauthenticated("the key is not known here; make one with 'proctor keys create'")
        self._remembered[digest] = _Remembered(key, moment)
        self._remembered.move_to_end(digest)
        if len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        return key
