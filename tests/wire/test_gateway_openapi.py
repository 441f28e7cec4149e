"""The API does what its OpenAPI document says, whatever is sent: fuzzed by schemathesis before fakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import checks
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.fake_backends import Suite, gateway_suite

pytestmark = pytest.mark.asyncio(loop_scope="module")

# A stream of changes never ends by itself.
ENDLESS = {"/v1/approvals/stream"}
# Thin routes over services that the fakes do not have; the suite's tests run them.
UNSERVED = ("/v1/conversations", "/v1/memories", "/v1/tools", "/v1/usage", "/v1/quotas")
CHECKS = [checks.not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def suite() -> AsyncIterator[Suite]:
    async with gateway_suite(requests_per_minute=0) as running:
        yield running


async def test_a_little_nonsense_breaks_nothing(suite: Suite) -> None:
    await asyncio.to_thread(_fuzz, suite.url, suite.gateway.app.openapi(), 1)


@pytest.mark.prove
@pytest.mark.timeout(900)
async def test_much_nonsense_breaks_nothing(suite: Suite) -> None:
    await asyncio.to_thread(_fuzz, suite.url, suite.gateway.app.openapi(), 60)


def _fuzz(url: str, document: dict[str, Any], examples: int) -> None:
    """Call every operation `examples` times with what its schemas allow and with what they do not."""
    schema: Any = schemathesis.openapi.from_dict(document)
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path in ENDLESS or operation.path.startswith(UNSERVED):
            continue
        for mode in GenerationMode:
            _fuzz_operation(url, operation, mode, examples)


def _fuzz_operation(url: str, operation: Any, mode: GenerationMode, examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def call(case: Any) -> None:
        case.call_and_validate(base_url=url, checks=CHECKS, timeout=20)

    try:
        call()
    except Unsatisfiable:  # an operation whose every request is valid has no invalid ones
        assert mode is GenerationMode.NEGATIVE, operation.label
