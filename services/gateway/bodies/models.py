"""Bodies of the routes for models of one's own."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from proctor.orchestrator.v1 import model_service_pb2 as pb
from services.gateway.bodies.base import Body
from services.gateway.protojson import from_json

Tokens = Field(default=0, ge=0, le=2**63 - 1, description="Tokens; 0 when unknown.")


class OwnModel(Body):
    """A model behind an OpenAI-compatible endpoint. The key is sealed when it is stored and never returned."""

    name: str = Field(min_length=1, max_length=128)
    base_url: str = Field(min_length=1, max_length=2048, description="For example https://models.example.org/v1.")
    upstream_name: str = Field(default="", max_length=256, description="Name sent to the endpoint; else `name`.")
    api: Literal["chat", "responses"] = "chat"
    api_key: str = Field(
        default="", max_length=4096, description="Left out in a change: the stored one stays while the URL does."
    )
    window: int = Tokens
    output_limit: int = Tokens
    capabilities: list[Literal["tools", "vision", "json_schema", "json_mode", "reasoning"]] = Field(
        default_factory=list, max_length=16, description="Left out: tools, json_schema and json_mode."
    )
    description: str = Field(default="", max_length=512)

    def to_proto(self) -> pb.ModelDefinition:
        """Return the definition."""
        return from_json(self.model_dump(mode="json"), pb.ModelDefinition())
