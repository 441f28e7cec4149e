"""Reading records: what has lapsed is settled as expired before it is told, so an answer once given stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.approval.domain import Approval, Kind, State
from services.approval.entitlement import is_service, may_see, sees_all
from services.approval.errors import ApprovalNotFound
from services.approval.ports import Approvals, Audience, Filter, Place
from services.chassis.clock import Clock
from services.chassis.identity import Principal

EXPIRE_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a principal asks to see; empty fields exclude nothing."""

    states: frozenset[State] = frozenset()
    run_id: str = ""
    tool: str = ""
    kind: Kind | None = None


class Records:
    """Reads records for a principal."""

    def __init__(self, approvals: Approvals, clock: Clock) -> None:
        self._approvals = approvals
        self._clock = clock

    async def one(self, tenant: str, approval_id: str) -> Approval:
        """Return the record as it stands now, or raise ApprovalNotFound. Rights are the caller's to check."""
        found = await self._settled(tenant, [approval_id])
        if not found:
            raise ApprovalNotFound(approval_id)
        return found[0]

    async def many(self, principal: Principal, ids: Sequence[str]) -> list[Approval]:
        """Return those of `ids` that exist and that `principal` may see."""
        tenant = None if is_service(principal) else principal.tenant
        return [approval for approval in await self._settled(tenant, ids) if may_see(principal, approval)]

    async def page(self, principal: Principal, query: Query, after: Place | None, limit: int) -> list[Approval]:
        """Return up to `limit` records that `principal` may see, newest first."""
        while len(await self._approvals.expire(self._clock.now(), EXPIRE_BATCH, tenant=principal.tenant)):
            pass
        wanted = Filter(
            audience=audience(principal),
            states=query.states,
            run_id=query.run_id,
            tool=query.tool,
            kind=query.kind,
        )
        return await self._approvals.page(wanted, after, limit)

    async def sweep(self) -> int:
        """Settle one batch of lapsed records of all tenants; return how many there were."""
        return len(await self._approvals.expire(self._clock.now(), EXPIRE_BATCH))

    async def _settled(self, tenant: str | None, ids: Sequence[str]) -> list[Approval]:
        found = await self._approvals.find(tenant, ids)
        now = self._clock.now()
        lapsed = [approval.approval_id for approval in found if approval.lapsed(now)]
        if not lapsed:
            return found
        await self._approvals.expire(now, len(lapsed), tenant=tenant, ids=lapsed)
        return await self._approvals.find(tenant, ids)


def audience(principal: Principal) -> Audience:
    """Return whose records `principal` may list."""
    if sees_all(principal):
        return Audience(tenant=principal.tenant)
    return Audience(tenant=principal.tenant, user=principal.user, groups=tuple(sorted(principal.groups)))
