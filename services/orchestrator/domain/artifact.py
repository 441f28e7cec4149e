"""A kept file and whose it is."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from services.chassis.errors import ServiceError
from services.orchestrator.domain.messages import Artifact


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedArtifact:
    """An artifact with its owner. `run_id` is empty for an attachment that no run has made."""

    artifact: Artifact
    tenant: str
    user: str
    run_id: str = ""


class ArtifactNotFound(ServiceError):
    """The artifact does not exist, has expired or is another's."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "ARTIFACT_NOT_FOUND"

    def __init__(self, artifact_id: str) -> None:
        super().__init__(
            f"artifact '{artifact_id}' does not exist or has expired; run the tool or upload the file again",
            metadata={"artifact_id": artifact_id},
        )
