"""Records of kept files; their bytes are in a blob store under the artifact id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.clock import Clock
from services.orchestrator.adapters.sql.tables import artifacts
from services.orchestrator.adapters.sql.transactions import looking, writing
from services.orchestrator.domain.artifact import ArtifactNotFound, OwnedArtifact
from services.orchestrator.domain.messages import Artifact
from services.orchestrator.domain.text import without_nul


class SqlArtifactRecords:
    """Which files exist, whose they are and until when."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def add(self, owned: OwnedArtifact) -> None:
        """Record a file whose bytes are stored already."""
        kept = owned.artifact
        async with writing(self._engine) as connection:
            await connection.execute(
                insert(artifacts).values(
                    artifact_id=kept.artifact_id,
                    tenant=owned.tenant,
                    user_id=owned.user,
                    run_id=owned.run_id,
                    name=without_nul(kept.name),
                    media_type=kept.media_type,
                    size=kept.size,
                    sha256=kept.sha256,
                    created_at=self._clock.now(),
                    expires_at=kept.expires_at,
                )
            )

    async def get(self, tenant: str, user: str, artifact_id: str) -> OwnedArtifact:
        """Return the record; raise ArtifactNotFound when it is missing, expired or another's."""
        found = await self.of(tenant, user, (artifact_id,))
        if not found:
            raise ArtifactNotFound(artifact_id)
        return found[0]

    async def of(self, tenant: str, user: str, artifact_ids: Sequence[str]) -> Sequence[OwnedArtifact]:
        """Return those of the ids that exist, are the user's and have not expired, in the order asked for."""
        unexpired = or_(artifacts.c.expires_at.is_(None), artifacts.c.expires_at > self._clock.now())
        statement = select(artifacts).where(
            artifacts.c.artifact_id.in_(artifact_ids),
            artifacts.c.tenant == tenant,
            artifacts.c.user_id == user,
            unexpired,
        )
        async with looking(self._engine) as connection:
            found = {row.artifact_id: _owned(row) for row in await connection.execute(statement)}
        return [found[artifact_id] for artifact_id in artifact_ids if artifact_id in found]

    async def expired(self, *, limit: int = 100) -> Sequence[str]:
        """Return ids of files whose time is over, oldest first: delete their bytes, then `remove` them."""
        statement = (
            select(artifacts.c.artifact_id)
            .where(artifacts.c.expires_at <= self._clock.now())
            .order_by(artifacts.c.expires_at)
            .limit(limit)
        )
        async with looking(self._engine) as connection:
            return list((await connection.scalars(statement)).all())

    async def remove(self, artifact_ids: Sequence[str]) -> None:
        """Forget files whose bytes are gone."""
        async with writing(self._engine) as connection:
            await connection.execute(delete(artifacts).where(artifacts.c.artifact_id.in_(artifact_ids)))


def _owned(row: Any) -> OwnedArtifact:
    return OwnedArtifact(
        artifact=Artifact(
            artifact_id=row.artifact_id,
            name=row.name,
            media_type=row.media_type,
            size=row.size,
            sha256=row.sha256,
            expires_at=row.expires_at,
        ),
        tenant=row.tenant,
        user=row.user_id,
        run_id=row.run_id,
    )
