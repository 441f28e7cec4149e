"""The page: one document for every page address, and its files, under a policy that allows nothing from elsewhere."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException

WEB = Path(__file__).parent / "web"
# As `web/README.md` asks: own files only, no inline script or style, and HTML only through the sanitizer.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dompurify"
)
ADDRESSES = (
    *("/", "/c/{conversation_id}", "/runs", "/runs/{run_id}", "/approvals", "/sources"),
    *("/agents", "/agents/{agent_id}", "/memories", "/usage"),
)
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".woff2": "font/woff2", ".svg": "image/svg+xml"}


def router(folder: Path = WEB) -> APIRouter:
    """Return the routes that serve the page from `folder`."""
    routes = APIRouter(include_in_schema=False)

    def page() -> Response:
        index = folder / "index.html"
        if not index.is_file():
            raise HTTPException(404, "the page is not installed; use the API, /docs describes it")
        headers = {"Content-Security-Policy": PAGE_POLICY, "Cache-Control": "no-cache"}
        return FileResponse(index, media_type="text/html", headers=headers)

    root = folder.resolve()

    def asset(path: str) -> Response:
        file = (root / path).resolve()
        if not file.is_relative_to(root) or not file.is_file():
            raise HTTPException(404, f"there is no file '{path[:200]}'")
        media_type = _TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        return FileResponse(file, media_type=media_type, headers={"Cache-Control": "no-cache"})

    for address in ADDRESSES:
        routes.add_api_route(address, page, methods=["GET", "HEAD"])
    routes.add_api_route("/assets/{path:path}", asset, methods=["GET", "HEAD"])
    return routes
