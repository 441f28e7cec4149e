"""How a change is described for those who follow it: watchers, the audit log, webhooks."""

from __future__ import annotations

from datetime import datetime

from services.approval.domain import Action, AllowRule, Approval, Change, State
from services.chassis.canonical import canonical_json, digest

ACTIONS = {
    State.APPROVED: Action.APPROVED,
    State.EDITED: Action.EDITED,
    State.DENIED: Action.DENIED,
    State.EXPIRED: Action.EXPIRED,
    State.CANCELLED: Action.CANCELLED,
    State.ANSWERED: Action.ANSWERED,
}


def requested(approval: Approval) -> Change:
    """Describe that `approval` was asked for."""
    return _of(approval, Action.REQUESTED, approval.requested_by, approval.requested_at)


def agreed(approval: Approval, user: str, at: datetime) -> Change:
    """Describe that `user` agreed, and more must before the quorum is reached."""
    return _of(approval, Action.AGREED, user, at)


def settled(approval: Approval, via: str = "") -> Change:
    """Describe that `approval` reached its final state; `via` is the service through which the decider acted."""
    if approval.decided_at is None:
        raise ValueError(f"approval '{approval.approval_id}' is not settled")
    return _of(approval, ACTIONS[approval.state], approval.decided_by, approval.decided_at, via)


def _of(approval: Approval, action: Action, actor: str, at: datetime, via: str = "") -> Change:
    facts: dict[str, object] = {
        "kind": approval.kind,
        "run": approval.run_id,
        "round": approval.round,
        "call": approval.call_id,
        "tool": approval.tool,
        "arguments_digest": approval.arguments_digest,
        "gate": approval.gate,
        "requested_by": approval.requested_by,
    }
    optional: dict[str, object] = {
        "policy": approval.policy,
        "quorum": approval.quorum,
        "group": approval.group,
        "four_eyes": approval.four_eyes,
        "agreed": list(approval.agreed),
        "comment": approval.comment,
        "edited_digest": digest(approval.edited_arguments) if approval.edited_arguments else "",
        "answer_digest": digest(approval.answer) if approval.answer else "",
        "skipped": approval.skipped,
        "via": via,
    }
    facts.update({name: value for name, value in optional.items() if value})
    return Change(
        tenant=approval.tenant,
        action=action,
        actor=actor,
        subject=approval.approval_id,
        at=at,
        detail=canonical_json(facts),
    )


def rule_created(rule: AllowRule, actor: str) -> Change:
    """Describe that `actor` made `rule`."""
    return _of_rule(rule, Action.RULE_CREATED, actor, rule.created_at)


def rule_deleted(rule: AllowRule, actor: str, at: datetime) -> Change:
    """Describe that `actor` deleted `rule`."""
    return _of_rule(rule, Action.RULE_DELETED, actor, at)


def _of_rule(rule: AllowRule, action: Action, actor: str, at: datetime) -> Change:
    facts: dict[str, object] = {
        "user": rule.user,
        "tool": rule.tool,
        "conversation": rule.conversation_id,
        "arguments_digest": rule.arguments_digest,
        "when": rule.when,
        "expires_at": rule.expires_at.isoformat() if rule.expires_at else "",
    }
    return Change(
        tenant=rule.tenant,
        action=action,
        actor=actor,
        subject=rule.rule_id,
        at=at,
        detail=canonical_json({name: value for name, value in facts.items() if value}),
    )
