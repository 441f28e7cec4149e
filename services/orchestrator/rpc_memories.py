"""MemoryService: the principal's own memories."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import grpc

from proctor.orchestrator.v1 import memory_service_pb2 as pb
from proctor.orchestrator.v1 import memory_service_pb2_grpc
from services.chassis.identity import current_principal
from services.chassis.paging import decode_token, encode_token
from services.orchestrator.codec_reflect import timestamp
from services.orchestrator.memory.memories import Memories
from services.orchestrator.memory.ports import Memory

DEFAULT_PAGE = 100
_SCOPE = "memories"
Context = grpc.aio.ServicerContext[Any, Any]


class MemoryServicer(memory_service_pb2_grpc.MemoryServiceServicer):
    """Lists and erases memories; only the tool `remember` writes them."""

    def __init__(self, memories: Memories) -> None:
        self._memories = memories

    async def ListMemories(self, request: pb.ListMemoriesRequest, context: Context) -> pb.ListMemoriesResponse:
        after = None
        if request.page_token:
            stamp, memory_id = decode_token(_SCOPE, request.page_token)
            after = (datetime.fromisoformat(str(stamp)), str(memory_id))
        limit = request.page_size or DEFAULT_PAGE
        rows = await self._memories.list(current_principal(), limit=limit + 1, after=after)
        shown = rows[:limit]
        more = len(rows) > limit
        token = encode_token(_SCOPE, shown[-1].created_at.isoformat(), shown[-1].memory_id) if more else ""
        return pb.ListMemoriesResponse(memories=[_shown(row) for row in shown], next_page_token=token)

    async def DeleteMemory(self, request: pb.DeleteMemoryRequest, context: Context) -> pb.DeleteMemoryResponse:
        await self._memories.forget(current_principal(), request.memory_id)
        return pb.DeleteMemoryResponse()

    async def DeleteAllMemories(
        self, request: pb.DeleteAllMemoriesRequest, context: Context
    ) -> pb.DeleteAllMemoriesResponse:
        return pb.DeleteAllMemoriesResponse(deleted=await self._memories.forget_all(current_principal()))


def _shown(memory: Memory) -> pb.Memory:
    return pb.Memory(
        memory_id=memory.memory_id,
        text=memory.text,
        created_at=timestamp(memory.created_at),
        run_id=memory.run_id,
        conversation_id=memory.conversation_id,
    )
