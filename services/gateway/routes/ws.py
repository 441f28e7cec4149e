"""`/v1/ws`: the native wire over a WebSocket."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from services.chassis.errors import ServiceError, Unauthenticated
from services.gateway.access import admit
from services.gateway.auth import Caller
from services.gateway.dependencies import Parts, parts_of
from services.gateway.problems import problem_of
from services.gateway.websocket import Session

router = APIRouter()

# Browsers cannot send headers with a WebSocket; they have this long to send `{"type": "authenticate", "key": "…"}`.
AUTHENTICATE_WITHIN = 10.0
REFUSED = 4401


@router.websocket("/v1/ws")
async def websocket(socket: WebSocket) -> None:
    """Serve one session; a caller without credentials in its headers authenticates by its first message."""
    parts = parts_of(socket)
    await socket.accept()
    try:
        caller = await _caller(socket, parts)
    except ServiceError as error:
        await socket.send_text(orjson.dumps({"type": "error", "id": "", "error": problem_of(error).body()}).decode())
        await socket.close(REFUSED)
        return
    except (WebSocketDisconnect, TimeoutError):
        return
    await socket.send_text(orjson.dumps({"type": "ready", "id": "", "identity": caller.identity}).decode())
    await Session(socket, parts, caller).serve()


async def _caller(socket: WebSocket, parts: Parts) -> Caller:
    headers: dict[str, str] = {}
    try:
        return await admit(socket, parts, headers)
    except Unauthenticated:
        if "authorization" in socket.headers:
            raise
    async with asyncio.timeout(AUTHENTICATE_WITHIN):
        message = await socket.receive_text()
    return await admit(socket, parts, headers, credential=_key(message))


def _key(message: str) -> str:
    try:
        value: Any = orjson.loads(message)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict) or value.get("type") != "authenticate" or not isinstance(value.get("key"), str):
        raise Unauthenticated('send {"type": "authenticate", "key": "…"} first')
    return str(value["key"])
