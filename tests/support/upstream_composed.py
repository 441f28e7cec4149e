"""The whole model layer over scripted servers: every wrapper in place, time and chance in the test's hands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from services.chassis.clock import Clock, SystemClock
from services.chassis.telemetry import Telemetry, no_telemetry
from services.orchestrator.models.compose import Models, build_models
from services.orchestrator.models.limits import Limits
from services.orchestrator.models.media import MediaReader
from services.orchestrator.models.ports import ModelRequest
from services.orchestrator.models.retry import RetryPolicy
from tests.support.upstream_models import Heard, hear


@asynccontextmanager
async def composed(
    directory: Path,
    toml: str,
    *,
    environ: Mapping[str, str] | None = None,
    telemetry: Telemetry | None = None,
    clock: Clock | None = None,
    media: MediaReader | None = None,
    limits: Limits | None = None,
) -> AsyncIterator[Models]:
    """The models of `toml`; retries wait a thousandth of a second."""
    config = directory / "proctor.toml"
    config.write_text(toml, encoding="utf-8")
    models = build_models(
        config=config,
        environ=environ or {},
        telemetry=telemetry or no_telemetry(),
        clock=clock or SystemClock(),
        retry=RetryPolicy(first_delay=0.001),
        media=media,
        limits=limits,
    )
    try:
        yield models
    finally:
        await models.close()


async def answer(models: Models, request: ModelRequest, heard: Heard | None = None) -> Heard:
    """Return what the composed model tells of one call."""
    return await hear(models.chat.stream(request), heard)
