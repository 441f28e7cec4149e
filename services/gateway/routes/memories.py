"""What agents keep about the user, listed and erased."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from proctor.orchestrator.v1 import memory_service_pb2 as pb
from services.gateway import openapi
from services.gateway.access import Asker
from services.gateway.backends import UNARY_TIMEOUT
from services.gateway.dependencies import PartsDep
from services.gateway.replies import json_reply

router = APIRouter(prefix="/v1/memories", tags=["memories"])


@router.get("", responses=openapi.answers(pb.ListMemoriesResponse), response_class=Response)
async def list_memories(
    parts: PartsDep,
    caller: Asker,
    page_size: Annotated[int, Query(ge=0, le=500)] = 0,
    page_token: Annotated[str, Query(max_length=512)] = "",
) -> Response:
    """List what is kept about the caller, the newest first."""
    request = pb.ListMemoriesRequest(page_size=page_size, page_token=page_token)
    reply = await parts.backends.memories.ListMemories(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)


@router.delete("/{memory_id}", responses=openapi.answers(pb.DeleteMemoryResponse), response_class=Response)
async def delete_memory(memory_id: str, parts: PartsDep, caller: Asker) -> Response:
    """Erase one memory for good."""
    request = pb.DeleteMemoryRequest(memory_id=memory_id)
    reply = await parts.backends.memories.DeleteMemory(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)


@router.delete("", responses=openapi.answers(pb.DeleteAllMemoriesResponse), response_class=Response)
async def delete_all_memories(parts: PartsDep, caller: Asker) -> Response:
    """Erase everything that is kept about the caller, for good."""
    request = pb.DeleteAllMemoriesRequest()
    reply = await parts.backends.memories.DeleteAllMemories(
        request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)
