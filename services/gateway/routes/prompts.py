"""Prompts that agents refer to by name."""

from __future__ import annotations

from fastapi import APIRouter, Response

from proctor.orchestrator.v1 import agent_service_pb2 as pb
from services.gateway import openapi
from services.gateway.access import Author
from services.gateway.backends import UNARY_TIMEOUT
from services.gateway.bodies.agents import SavePrompt
from services.gateway.dependencies import PartsDep
from services.gateway.replies import json_reply
from services.gateway.routes.agents import PageSize, PageToken, Version, unbound

router = APIRouter(prefix="/v1/prompts", tags=["agents"])


@router.get("", responses=openapi.answers(pb.ListPromptsResponse), response_class=Response)
async def list_prompts(
    parts: PartsDep, caller: Author, page_size: PageSize = 0, page_token: PageToken = ""
) -> Response:
    """List the prompts that the caller's agents may refer to, the operator's first."""
    request = pb.ListPromptsRequest(page_size=page_size, page_token=page_token)
    reply = await parts.backends.agents.ListPrompts(
        request, metadata=parts.metadata(unbound(caller)), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)


@router.post("", status_code=201, responses=openapi.answers(pb.CreatePromptResponse, 201), response_class=Response)
async def create_prompt(body: SavePrompt, parts: PartsDep, caller: Author) -> Response:
    """Keep a new prompt."""
    request = pb.CreatePromptRequest(prompt=body.prompt.to_proto(), validate_only=body.validate_only)
    reply = await parts.backends.agents.CreatePrompt(
        request, metadata=parts.metadata(unbound(caller)), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply, 201)


@router.get("/{prompt_id}", responses=openapi.answers(pb.GetPromptResponse), response_class=Response)
async def get_prompt(prompt_id: str, parts: PartsDep, caller: Author, version: Version = 0) -> Response:
    """Return one prompt by id or name."""
    request = pb.GetPromptRequest(prompt_id=prompt_id, version=version)
    reply = await parts.backends.agents.GetPrompt(
        request, metadata=parts.metadata(unbound(caller)), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)


@router.put("/{prompt_id}", responses=openapi.answers(pb.UpdatePromptResponse), response_class=Response)
async def update_prompt(prompt_id: str, body: SavePrompt, parts: PartsDep, caller: Author) -> Response:
    """Make a new version of a prompt, whole; agents that name no version read it from their next run on."""
    request = pb.UpdatePromptRequest(
        prompt_id=prompt_id, prompt=body.prompt.to_proto(), validate_only=body.validate_only
    )
    reply = await parts.backends.agents.UpdatePrompt(
        request, metadata=parts.metadata(unbound(caller)), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)


@router.delete("/{prompt_id}", status_code=204)
async def delete_prompt(prompt_id: str, parts: PartsDep, caller: Author) -> Response:
    """Delete a prompt that no agent refers to."""
    await parts.backends.agents.DeletePrompt(
        pb.DeletePromptRequest(prompt_id=prompt_id), metadata=parts.metadata(unbound(caller)), timeout=UNARY_TIMEOUT
    )
    return Response(status_code=204)


@router.get("/{prompt_id}/versions", responses=openapi.answers(pb.ListPromptVersionsResponse), response_class=Response)
async def list_prompt_versions(
    prompt_id: str, parts: PartsDep, caller: Author, page_size: PageSize = 0, page_token: PageToken = ""
) -> Response:
    """List the versions of a prompt, newest first."""
    request = pb.ListPromptVersionsRequest(prompt_id=prompt_id, page_size=page_size, page_token=page_token)
    reply = await parts.backends.agents.ListPromptVersions(
        request, metadata=parts.metadata(unbound(caller)), timeout=UNARY_TIMEOUT
    )
    return json_reply(reply)
