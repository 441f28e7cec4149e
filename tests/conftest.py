"""Fixtures that any test may ask for."""

from __future__ import annotations

from hypothesis import settings

pytest_plugins = ("tests.support.postgres",)

# A busy machine is no failure: examples have no deadline of their own, the test's timeout bounds them all.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")
