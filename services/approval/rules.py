"""Allow rules: what a user lets through from now on. They satisfy the gate *ask* and nothing stricter."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

from services.approval import changes
from services.approval.conditions import ConditionFailed, Facts, check_condition, holds
from services.approval.domain import AllowRule, Approval, Gate, Kind, RuleScope
from services.approval.errors import PolicyInvalid, RuleNotFound
from services.approval.ports import Place, Rules
from services.chassis.clock import Clock, Ids
from services.chassis.errors import FieldViolation, InvalidRequest
from services.chassis.identity import Principal

DIGEST = re.compile(r"[0-9a-f]{64}")
DECIDER_PREFIX = "rule:"


def rule_satisfies(rule: AllowRule, approval: Approval, facts: Facts, now: datetime) -> bool:
    """Return whether `rule` lets the call of `approval` through. A condition that fails to evaluate does not."""
    if approval.kind is not Kind.TOOL or approval.gate is not Gate.ASK or approval.four_eyes:
        return False
    if rule.expires_at is not None and rule.expires_at <= now:
        return False
    if rule.conversation_id and rule.conversation_id != approval.conversation_id:
        return False
    if rule.arguments_digest and rule.arguments_digest != approval.arguments_digest:
        return False
    try:
        return holds(rule.when, facts)
    except (ConditionFailed, PolicyInvalid):
        return False


def remembered(approval: Approval, scope: RuleScope, rule_id: str, now: datetime) -> AllowRule | None:
    """Return the rule that an approval makes beside it, for the user who asks; None when it is for once."""
    if scope is RuleScope.ONCE:
        return None
    if approval.gate is not Gate.ASK or approval.four_eyes:
        raise _bad("approve.remember", f"'{approval.tool}' asks every time here; approve it once")
    if scope is RuleScope.CONVERSATION and not approval.conversation_id:
        raise _bad("approve.remember", "the call belongs to no conversation; approve it once or always")
    return AllowRule(
        tenant=approval.tenant,
        rule_id=rule_id,
        user=approval.requested_by,
        tool=approval.tool,
        conversation_id=approval.conversation_id if scope is RuleScope.CONVERSATION else "",
        created_at=now,
    )


class AllowRules:
    """Makes, lists and deletes the principal's own rules, and finds the one that satisfies a request."""

    def __init__(self, rules: Rules, clock: Clock, ids: Ids) -> None:
        self._rules = rules
        self._clock = clock
        self._ids = ids

    async def create(
        self,
        principal: Principal,
        tool: str,
        *,
        conversation_id: str = "",
        arguments_digest: str = "",
        when: str = "",
        lifetime: timedelta | None = None,
    ) -> AllowRule:
        """Make a rule for the principal's own calls, which it is entitled to decide.

        Raises PolicyInvalid for a bad condition, InvalidRequest for a bad digest or lifetime.
        """
        check_condition(when)
        if arguments_digest and not DIGEST.fullmatch(arguments_digest):
            raise _bad("arguments_digest", "must be a SHA-256 in lower-case hexadecimal")
        if lifetime is not None and lifetime <= timedelta():
            raise _bad("lifetime", "must be positive; leave it out for a rule without an end")
        now = self._clock.now()
        try:
            expires_at = now + lifetime if lifetime is not None else None
        except OverflowError:
            raise _bad("lifetime", "is too long; leave it out for a rule without an end") from None
        rule = AllowRule(
            tenant=principal.tenant,
            rule_id=self._ids.new(),
            user=principal.user,
            tool=tool,
            conversation_id=conversation_id,
            arguments_digest=arguments_digest,
            when=when,
            created_at=now,
            expires_at=expires_at,
        )
        await self._rules.add(rule, changes.rule_created(rule, principal.user))
        return rule

    async def page(self, principal: Principal, after: Place | None, limit: int) -> list[AllowRule]:
        """Return up to `limit` of the principal's rules, newest first."""
        return await self._rules.page(principal.tenant, principal.user, after, limit)

    async def delete(self, principal: Principal, rule_id: str) -> None:
        """Delete one of the principal's rules, or raise RuleNotFound."""
        rule = await self._rules.find(principal.tenant, principal.user, rule_id)
        if rule is None:
            raise RuleNotFound(rule_id)
        if not await self._rules.remove(rule, changes.rule_deleted(rule, principal.user, self._clock.now())):
            raise RuleNotFound(rule_id)

    async def satisfying(self, principal: Principal, approval: Approval, arguments: Any) -> AllowRule | None:
        """Return a rule of the user who asks that lets the call through."""
        facts = Facts(arguments=arguments, principal=principal)
        now = self._clock.now()
        candidates = await self._rules.candidates(approval.tenant, approval.requested_by, approval.tool, now)
        return next((rule for rule in candidates if rule_satisfies(rule, approval, facts, now)), None)


def _bad(field: str, description: str) -> InvalidRequest:
    return InvalidRequest(f"{field}: {description}", violations=[FieldViolation(field=field, description=description)])
