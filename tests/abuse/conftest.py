"""The jails that are abused."""

from __future__ import annotations

from tests.support.jails import runner, uncounted

__all__ = ["runner", "uncounted"]
