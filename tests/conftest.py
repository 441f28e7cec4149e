"""Fixtures that any test may ask for."""

from __future__ import annotations

pytest_plugins = ("tests.support.postgres",)
