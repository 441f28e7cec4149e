"""Who may see a record, and who may decide it. The answer comes from the signed identity alone."""

from __future__ import annotations

from services.approval.domain import Approval, Gate
from services.approval.errors import NotEntitled
from services.chassis.identity import Principal

DECIDE = "approvals:decide"
READ = "approvals:read"
AUDIT = "approvals:audit"


def has_scope(principal: Principal, scope: str) -> bool:
    """Return whether `principal` holds `scope`; `*` holds them all."""
    return scope in principal.scopes or "*" in principal.scopes


def is_service(principal: Principal) -> bool:
    """Return whether a service of the suite acts for itself: an actor without a tenant.

    Such an identity reads and watches the records of every tenant, as the orchestrator must for its parked runs. The
    gateway never mints one: everybody it authenticates has a tenant.
    """
    return not principal.tenant and bool(principal.actor)


def sees_all(principal: Principal) -> bool:
    """Return whether `principal` sees every record of its tenant, or of all when it is a service."""
    return is_service(principal) or has_scope(principal, DECIDE) or has_scope(principal, READ)


def may_see(principal: Principal, approval: Approval) -> bool:
    """Return whether `principal` may read `approval`: its own, its group's, or all with a scope."""
    if is_service(principal):
        return True
    if principal.tenant != approval.tenant:
        return False
    own = approval.requested_by == principal.user
    return own or sees_all(principal) or (approval.group != "" and approval.group in principal.groups)


def require_decider(principal: Principal, approval: Approval) -> None:
    """Raise NotEntitled unless `principal` may decide `approval`.

    That is the user who asks or a holder of `approvals:decide`; under a quorum of a group only its members; under four
    eyes never the user who asks.
    """
    own = approval.requested_by == principal.user
    if approval.four_eyes and own:
        raise _refused(approval, f"somebody else than '{principal.user}', who asks, must decide it")
    if approval.gate is Gate.QUORUM and approval.group:
        if approval.group not in principal.groups:
            raise _refused(approval, f"only members of the group '{approval.group}' decide it")
        return
    if not own and not has_scope(principal, DECIDE):
        raise _refused(approval, f"'{principal.user}' neither asked for it nor holds the scope '{DECIDE}'")


def _refused(approval: Approval, why: str) -> NotEntitled:
    return NotEntitled(
        f"approval '{approval.approval_id}' is not yours to decide: {why}",
        metadata={"approval_id": approval.approval_id},
    )
