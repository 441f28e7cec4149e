"""The OpenAPI document: what FastAPI knows, plus the messages that answers carry and the form of every failure."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from google.protobuf.message import Message

from proctor.agent.v1 import agent_pb2
from proctor.approval.v1 import approval_service_pb2
from proctor.orchestrator.v1 import (
    agent_service_pb2,
    artifact_service_pb2,
    events_pb2,
    model_service_pb2,
    run_service_pb2,
)
from proctor.retrieval.v1 import retrieval_service_pb2, source_service_pb2
from services.gateway.problems import MEDIA_TYPE
from services.gateway.schemas import REFERENCE, components, reference

_MESSAGES: list[type[Message]] = [
    run_service_pb2.Run,
    run_service_pb2.ListRunsResponse,
    run_service_pb2.CancelRunResponse,
    events_pb2.RunEvent,
    agent_pb2.Artifact,
    agent_service_pb2.ListAgentsResponse,
    agent_service_pb2.GetAgentResponse,
    artifact_service_pb2.UploadAttachmentResponse,
    model_service_pb2.ListModelsResponse,
    approval_service_pb2.Approval,
    approval_service_pb2.ListApprovalsResponse,
    approval_service_pb2.DecideResponse,
    retrieval_service_pb2.SearchResponse,
    retrieval_service_pb2.GetPassageResponse,
    source_service_pb2.Source,
    source_service_pb2.ListSourcesResponse,
    source_service_pb2.DeleteSourceResponse,
    source_service_pb2.ListDocumentsResponse,
    source_service_pb2.IngestDocumentsResponse,
]
_PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457 problem document; `reason` is stable.",
    "required": ["type", "title", "status", "detail", "reason"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong and what to do."},
        "reason": {"type": "string"},
        "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
        "violations": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"field": {"type": "string"}, "description": {"type": "string"}},
            },
        },
        "request_id": {"type": "string"},
    },
}
_OPENAI_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
# Routes that speak an OpenAI wire and its errors.
OPENAI_TAG = "openai"
_METHODS = ("get", "post", "put", "patch", "delete")


def answers(message: type[Message], status: int = 200, *, stream: str = "") -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route that answers with `message`, and as an event stream described by `stream`."""
    content: dict[str, Any] = {"application/json": {"schema": reference(message)}}
    if stream:
        content["text/event-stream"] = {"schema": {"type": "string", "description": stream}}
    return {status: {"description": message.DESCRIPTOR.name, "content": content}}


def streams(description: str) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route that only streams."""
    content = {"text/event-stream": {"schema": {"type": "string", "description": description}}}
    return {200: {"description": description, "content": content}}


def install(app: FastAPI) -> None:
    """Make `app.openapi()` return the complete document."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _complete(
                get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            )
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _complete(document: dict[str, Any]) -> dict[str, Any]:
    parts = document.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas.update(components(_MESSAGES))
    schemas["Problem"] = _PROBLEM
    schemas["OpenAIError"] = _OPENAI_ERROR
    parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path in document["paths"].values():
        for method in _METHODS:
            if method in path:
                _add_failures(path[method])
    return document


def _add_failures(operation: dict[str, Any]) -> None:
    operation["responses"].pop("422", None)
    if OPENAI_TAG in operation.get("tags", ()):
        content = {"application/json": {"schema": {"$ref": f"{REFERENCE}OpenAIError"}}}
    else:
        content = {MEDIA_TYPE: {"schema": {"$ref": f"{REFERENCE}Problem"}}}
    operation["responses"]["default"] = {"description": "Failure", "content": content}
    operation["security"] = [{"key": []}, {}]
