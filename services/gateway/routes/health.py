"""Whether the gateway lives, and whether everything behind it serves."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from services.gateway.backends import REQUIRED
from services.gateway.dependencies import PartsDep

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Say that this process answers."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "A required service does not serve."}})
async def readyz(parts: PartsDep) -> JSONResponse:
    """Say whether each service behind the gateway serves; 503 while a required one does not."""
    services = await parts.backends.health()
    ready = not parts.draining.is_set() and all(services.get(name) == "SERVING" for name in REQUIRED)
    body = {"status": "ready" if ready else "not ready", "services": services}
    return JSONResponse(body, status_code=200 if ready else 503)
