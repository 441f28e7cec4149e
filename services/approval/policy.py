"""Which gate a call meets: the operator's lists, the agent's bindings, the tool's own default. Pure.

Strictest first, and the first that speaks decides:

1. *deny*: the operator's list, or a binding. 2. *quorum*: a binding. Both are floors.
3. *ask at every call*: the tool, the operator's list, or four eyes. No rule satisfies it.
4. the agent's *ask* or *allow*: bindings that name the tool before patterns, then in their order.
5. *auto-approve*: the operator's list. 6. the tool's default; a tool that the agent allows only under conditions, of
which none holds, asks.

An agent's explicit *ask* thus stands over the operator's auto-approve: the stricter wins. A condition that fails to
evaluate counts against the call: it holds for deny, quorum and ask, and does not for allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum

from services.approval.conditions import ConditionFailed, Facts, holds
from services.approval.domain import Gate


class ToolDefault(StrEnum):
    """What a tool itself wants."""

    ALLOW = "allow"
    ASK = "ask"
    ASK_EVERY_CALL = "ask_every_call"


class BindingPolicy(StrEnum):
    """How an agent treats one of its tools."""

    DEFAULT = "default"
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
    QUORUM = "quorum"


class Unattended(StrEnum):
    """What becomes of a call that would ask when nobody is there: wait for someone, or refuse."""

    PARK = "park"
    DENY = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A tool of an agent: the policy, and when it applies. `tool` is a name or a prefix with `*`."""

    tool: str
    policy: BindingPolicy = BindingPolicy.DEFAULT
    when: str = ""
    quorum: int = 0
    group: str = ""
    deadline: timedelta | None = None
    four_eyes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The operator's own policy. Lists hold names or prefixes with `*`."""

    auto_approve: tuple[str, ...] = ()
    always_ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    four_eyes: tuple[str, ...] = ()
    unattended: Unattended = Unattended.PARK
    default_timeout: timedelta = timedelta(minutes=2)
    max_timeout: timedelta = timedelta(days=30)
    deadlines: Mapping[str, timedelta] = field(default_factory=dict)

    def timeout(self, tool: str, wanted: timedelta | None) -> timedelta:
        """Return how long a decision about `tool` may take: as wanted, as set for the tool, or the default."""
        chosen = wanted or self.deadlines.get(tool) or self.default_timeout
        return min(chosen, self.max_timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The call that is judged."""

    tool: str
    default: ToolDefault
    facts: Facts
    unattended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The gate, why, and what a request for a decision needs to know."""

    gate: Gate
    policy: str
    timeout: timedelta
    quorum: int = 0
    group: str = ""
    four_eyes: bool = False


def evaluate(call: Call, bindings: Sequence[Binding], operator: Operator) -> Ruling:
    """Return the ruling; raises PolicyInvalid when a condition of a matching binding does not compile."""
    named = sorted((b for b in bindings if matches(call.tool, b.tool)), key=lambda b: b.tool != call.tool)
    applying = [binding for binding in named if _applies(binding, call.facts)]
    ruling = _rule(call, named, applying, operator)
    if call.unattended and operator.unattended is Unattended.DENY and ruling.gate not in (Gate.ALLOW, Gate.DENY):
        return replace(ruling, gate=Gate.DENY, policy="nobody attends this run, and it would have to ask", quorum=0)
    return ruling


def _rule(call: Call, named: Sequence[Binding], applying: Sequence[Binding], operator: Operator) -> Ruling:
    tool = call.tool
    four_eyes = listed(tool, operator.four_eyes) or any(binding.four_eyes for binding in applying)

    def ruling(gate: Gate, policy: str, by: Binding | None = None) -> Ruling:
        wanted = by.deadline if by and by.deadline else next((b.deadline for b in applying if b.deadline), None)
        quorum = by is not None and by.policy is BindingPolicy.QUORUM
        return Ruling(
            gate=gate,
            policy=policy,
            timeout=operator.timeout(tool, wanted),
            quorum=max(by.quorum, 1) if by and quorum else 0,
            group=by.group if by and quorum else "",
            four_eyes=four_eyes,
        )

    if listed(tool, operator.deny):
        return ruling(Gate.DENY, f"the operator denies '{tool}'")
    if denied := _first(applying, BindingPolicy.DENY):
        return ruling(Gate.DENY, f"the agent's policy denies '{tool}'{_because(denied)}")
    if quorums := [binding for binding in applying if binding.policy is BindingPolicy.QUORUM]:
        strictest = max(quorums, key=lambda binding: binding.quorum)
        return ruling(Gate.QUORUM, _quorum_text(strictest), strictest)
    if call.default is ToolDefault.ASK_EVERY_CALL or listed(tool, operator.always_ask):
        return ruling(Gate.ASK_ALWAYS, f"'{tool}' asks at every call")
    if four_eyes:
        return ruling(Gate.ASK_ALWAYS, f"'{tool}' needs somebody else's agreement")
    if spoken := _first(applying, BindingPolicy.ASK, BindingPolicy.ALLOW):
        gate = Gate.ASK if spoken.policy is BindingPolicy.ASK else Gate.ALLOW
        return ruling(gate, f"the agent's policy says {gate} for '{tool}'{_because(spoken)}", spoken)
    if listed(tool, operator.auto_approve):
        return ruling(Gate.ALLOW, f"the operator approves '{tool}' in advance")
    if any(binding.policy is BindingPolicy.ALLOW for binding in named):
        return ruling(Gate.ASK, f"no condition under which the agent may use '{tool}' unasked holds")
    if call.default is ToolDefault.ALLOW:
        return ruling(Gate.ALLOW, f"'{tool}' only reads")
    return ruling(Gate.ASK, f"'{tool}' has effects, so it asks")


def matches(tool: str, pattern: str) -> bool:
    """Return whether `pattern`, a name or a prefix with `*`, names `tool`."""
    return tool.startswith(pattern[:-1]) if pattern.endswith("*") else tool == pattern


def listed(tool: str, patterns: Iterable[str]) -> bool:
    """Return whether one of `patterns` names `tool`."""
    return any(matches(tool, pattern) for pattern in patterns)


def _applies(binding: Binding, facts: Facts) -> bool:
    try:
        return holds(binding.when, facts)
    except ConditionFailed:
        return binding.policy is not BindingPolicy.ALLOW


def _first(bindings: Sequence[Binding], *policies: BindingPolicy) -> Binding | None:
    return next((binding for binding in bindings if binding.policy in policies), None)


def _because(binding: Binding) -> str:
    return f" when {binding.when}" if binding.when else ""


def _quorum_text(binding: Binding) -> str:
    whose = f" of the group '{binding.group}'" if binding.group else ""
    return f"{max(binding.quorum, 1)}{whose} must agree{_because(binding)}"
