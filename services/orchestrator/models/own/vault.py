"""Keys of users' models at rest: AES-256-GCM, bound to the row they stand in."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from services.chassis.settings import Secret

_VERSION = b"\x01"
_NONCE = 12  # bytes; NIST SP 800-38D
MIN_SECRET = 32


class SealBroken(Exception):
    """A sealed secret was made with another key, for another row, or is damaged."""


class Vault:
    """Seals and opens secrets. `context` names the row; what was sealed for one row does not open in another."""

    def __init__(self, key: bytes, random: Callable[[int], bytes] = os.urandom) -> None:
        self._cipher = AESGCM(key)
        self._random = random

    def seal(self, secret: str, context: str) -> bytes:
        """Return `secret`, sealed."""
        nonce = self._random(_NONCE)
        return _VERSION + nonce + self._cipher.encrypt(nonce, secret.encode(), context.encode())

    def open(self, sealed: bytes, context: str) -> str:
        """Return what was sealed for `context`. Raises SealBroken."""
        version, nonce, content = sealed[:1], sealed[1 : 1 + _NONCE], sealed[1 + _NONCE :]
        if version != _VERSION:
            raise SealBroken("the secret was sealed in an unknown way")
        try:
            return self._cipher.decrypt(nonce, content, context.encode()).decode()
        except InvalidTag as error:
            raise SealBroken("the secret does not open with this key") from error


def vault_of(secret: Secret) -> Vault:
    """Return the vault of a configured secret of at least 32 characters. Raises ValueError for a shorter one."""
    if len(secret) < MIN_SECRET:
        raise ValueError(f"the vault's secret needs {MIN_SECRET} characters or more, as `openssl rand -hex 32` makes")
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"proctor own models").derive(secret.encode())
    return Vault(derived)


def vault_at(path: Path) -> Vault:
    """Return the vault whose secret stands in a file, made at the first use and readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        # Written whole and then given its name: nobody who starts at the same time, or after a crash, finds half of it.
        with tempfile.NamedTemporaryFile("w", encoding="ascii", dir=path.parent, prefix=f".{path.name}-") as file:
            file.write(os.urandom(32).hex())
            file.flush()
            with suppress(FileExistsError):
                os.link(file.name, path)
    return vault_of(Secret(path.read_text(encoding="ascii").strip()))
