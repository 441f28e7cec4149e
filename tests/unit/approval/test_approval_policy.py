"""The table of policy cases."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

from services.approval.conditions import Facts
from services.approval.domain import Gate
from services.approval.errors import PolicyInvalid
from services.approval.gate import GateKeeper
from services.approval.policy import (
    Binding,
    BindingPolicy,
    Call,
    Operator,
    Ruling,
    ToolDefault,
    Unattended,
    evaluate,
    matches,
)
from services.chassis.errors import InvalidRequest
from services.chassis.identity import Principal

ANN = Principal(tenant="acme", user="ann", groups=frozenset({"ops"}), scopes=frozenset({"runs:start"}))


def allow(tool: str = "pay", when: str = "") -> Binding:
    return Binding(tool=tool, policy=BindingPolicy.ALLOW, when=when)


def ask(tool: str = "pay", when: str = "") -> Binding:
    return Binding(tool=tool, policy=BindingPolicy.ASK, when=when)


def deny(tool: str = "pay", when: str = "") -> Binding:
    return Binding(tool=tool, policy=BindingPolicy.DENY, when=when)


def quorum(n: int = 2, group: str = "ops", when: str = "", tool: str = "pay") -> Binding:
    return Binding(tool=tool, policy=BindingPolicy.QUORUM, quorum=n, group=group, when=when)


PLAIN = Operator()


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row: what is configured, and the gate that follows for `pay {"amount": 150, "to": "x@acme.example"}`."""

    name: str
    gate: Gate
    bindings: tuple[Binding, ...] = ()
    operator: Operator = PLAIN
    default: ToolDefault = ToolDefault.ASK
    unattended: bool = False
    quorum: int = 0


CASES = [
    # The tool's default.
    Case(name="a tool with effects asks", gate=Gate.ASK),
    Case(name="a reading tool runs", gate=Gate.ALLOW, default=ToolDefault.ALLOW),
    Case(name="ask_every_call asks always", gate=Gate.ASK_ALWAYS, default=ToolDefault.ASK_EVERY_CALL),
    Case(name="a binding without policy changes nothing", gate=Gate.ASK, bindings=(Binding(tool="pay"),)),
    Case(name="another tool's binding changes nothing", gate=Gate.ASK, bindings=(allow("read"),)),
    # The agent's policy.
    Case(name="the agent allows", gate=Gate.ALLOW, bindings=(allow(),)),
    Case(name="the agent asks for a reading tool", gate=Gate.ASK, bindings=(ask(),), default=ToolDefault.ALLOW),
    Case(name="the agent denies", gate=Gate.DENY, bindings=(deny(),)),
    Case(name="the agent wants a quorum", gate=Gate.QUORUM, bindings=(quorum(3),), quorum=3),
    Case(name="a quorum is at least one", gate=Gate.QUORUM, bindings=(quorum(0),), quorum=1),
    Case(name="the larger quorum counts", gate=Gate.QUORUM, bindings=(quorum(2), quorum(4)), quorum=4),
    Case(name="deny stands over quorum", gate=Gate.DENY, bindings=(quorum(), deny())),
    Case(name="deny stands over allow, whatever the order", gate=Gate.DENY, bindings=(allow(), deny())),
    Case(name="quorum stands over allow", gate=Gate.QUORUM, bindings=(allow(), quorum()), quorum=2),
    Case(name="the name stands before the pattern", gate=Gate.ALLOW, bindings=(ask("p*"), allow("pay"))),
    Case(name="the first of equals speaks", gate=Gate.ASK, bindings=(ask(), allow())),
    Case(name="a pattern's deny is a floor too", gate=Gate.DENY, bindings=(allow("pay"), deny("*"))),
    # Conditions.
    Case(name="allow when it holds", gate=Gate.ALLOW, bindings=(allow(when="args.amount < 200"),)),
    Case(name="allow when it does not hold asks", gate=Gate.ASK, bindings=(allow(when="args.amount < 100"),)),
    Case(
        name="a reading tool allowed under a condition asks without it",
        gate=Gate.ASK,
        bindings=(allow(when="args.amount < 100"),),
        default=ToolDefault.ALLOW,
    ),
    Case(name="deny when it holds", gate=Gate.DENY, bindings=(allow(), deny(when="args.amount > 100"))),
    Case(name="deny when it does not hold", gate=Gate.ALLOW, bindings=(allow(), deny(when="args.amount > 1000"))),
    Case(name="by the principal's group", gate=Gate.ALLOW, bindings=(allow(when="'ops' in principal.groups"),)),
    Case(name="by the principal's name", gate=Gate.ASK, bindings=(allow(when="principal.user == 'bob'"),)),
    Case(name="by text", gate=Gate.ALLOW, bindings=(allow(when="args.to.endsWith('@acme.example')"),)),
    Case(
        name="quorum above a limit",
        gate=Gate.QUORUM,
        bindings=(allow(when="args.amount <= 100"), quorum(2, when="args.amount > 100")),
        quorum=2,
    ),
    # A condition that fails counts against the call.
    Case(name="allow on a missing field does not hold", gate=Gate.ASK, bindings=(allow(when="args.nothing == 1"),)),
    Case(name="deny on a missing field holds", gate=Gate.DENY, bindings=(deny(when="args.nothing == 1"),)),
    Case(name="quorum on a wrong type holds", gate=Gate.QUORUM, bindings=(quorum(when="args.to > 5"),), quorum=2),
    Case(name="ask on a missing field holds", gate=Gate.ASK, bindings=(ask(when="args.no > 1"), allow())),
    Case(name="a number is no truth", gate=Gate.ASK, bindings=(allow(when="args.amount"),)),
    # The operator's lists.
    Case(name="auto-approve", gate=Gate.ALLOW, operator=Operator(auto_approve=("pay",))),
    Case(name="auto-approve by pattern", gate=Gate.ALLOW, operator=Operator(auto_approve=("p*",))),
    Case(name="auto-approve everything", gate=Gate.ALLOW, operator=Operator(auto_approve=("*",))),
    Case(
        name="deny stands over auto-approve", gate=Gate.DENY, bindings=(deny(),), operator=Operator(auto_approve=("*",))
    ),
    Case(
        name="quorum stands over auto-approve",
        gate=Gate.QUORUM,
        bindings=(quorum(),),
        operator=Operator(auto_approve=("*",)),
        quorum=2,
    ),
    Case(
        name="an explicit ask stands over auto-approve",
        gate=Gate.ASK,
        bindings=(ask(),),
        operator=Operator(auto_approve=("*",)),
    ),
    Case(
        name="ask_every_call stands over auto-approve and allow",
        gate=Gate.ASK_ALWAYS,
        bindings=(allow(),),
        operator=Operator(auto_approve=("*",)),
        default=ToolDefault.ASK_EVERY_CALL,
    ),
    Case(
        name="always_ask stands over allow",
        gate=Gate.ASK_ALWAYS,
        bindings=(allow(),),
        operator=Operator(always_ask=("pay",)),
    ),
    Case(name="the operator denies", gate=Gate.DENY, bindings=(allow(),), operator=Operator(deny=("pay",))),
    Case(
        name="four eyes ask although the agent allows",
        gate=Gate.ASK_ALWAYS,
        bindings=(allow(), Binding(tool="pay", four_eyes=True)),
    ),
    Case(name="the operator's four eyes", gate=Gate.ASK_ALWAYS, operator=Operator(four_eyes=("pay",))),
    # Unattended runs.
    Case(name="an unattended run parks", gate=Gate.ASK, unattended=True),
    Case(
        name="an unattended run is refused",
        gate=Gate.DENY,
        unattended=True,
        operator=Operator(unattended=Unattended.DENY),
    ),
    Case(
        name="an unattended quorum is refused",
        gate=Gate.DENY,
        bindings=(quorum(),),
        unattended=True,
        operator=Operator(unattended=Unattended.DENY),
    ),
    Case(
        name="an unattended run does what is allowed",
        gate=Gate.ALLOW,
        bindings=(allow(),),
        unattended=True,
        operator=Operator(unattended=Unattended.DENY),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gate(case: Case) -> None:
    ruling = ruled(case.bindings, operator=case.operator, default=case.default, unattended=case.unattended)
    assert (ruling.gate, ruling.quorum) == (case.gate, case.quorum)
    assert ruling.policy


def ruled(
    bindings: tuple[Binding, ...] = (),
    *,
    tool: str = "pay",
    operator: Operator | None = None,
    default: ToolDefault = ToolDefault.ASK,
    unattended: bool = False,
) -> Ruling:
    facts = Facts(arguments={"amount": 150, "to": "x@acme.example"}, principal=ANN)
    call = Call(tool=tool, default=default, facts=facts, unattended=unattended)
    return evaluate(call, bindings, operator or Operator())


def test_quorum_names_its_group() -> None:
    assert ruled((quorum(2, "treasury"),)).group == "treasury"


def test_four_eyes_is_told_with_every_gate_that_asks() -> None:
    assert ruled((quorum(), Binding(tool="*", four_eyes=True))).four_eyes


def test_the_deciding_bindings_deadline_counts_first() -> None:
    bindings = (
        Binding(tool="pay", policy=BindingPolicy.DEFAULT, deadline=timedelta(hours=1)),
        Binding(tool="pay", policy=BindingPolicy.ASK, deadline=timedelta(days=3)),
    )
    assert ruled(bindings).timeout == timedelta(days=3)


def test_a_silent_bindings_deadline_counts_when_nothing_else_says_one() -> None:
    assert ruled((Binding(tool="pay", deadline=timedelta(hours=1)),)).timeout == timedelta(hours=1)


def test_the_operators_deadline_of_a_tool_counts_before_the_default() -> None:
    operator = Operator(deadlines={"pay": timedelta(days=2)})
    assert ruled(operator=operator).timeout == timedelta(days=2)
    assert ruled(operator=operator, tool="other").timeout == timedelta(minutes=2)


def test_no_deadline_is_longer_than_the_operator_permits() -> None:
    binding = Binding(tool="pay", policy=BindingPolicy.ASK, deadline=timedelta(days=400))
    assert ruled((binding,)).timeout == timedelta(days=30)


def test_a_condition_that_does_not_compile_is_refused_not_ignored() -> None:
    with pytest.raises(PolicyInvalid):
        ruled((allow(when="args.amount >"),))


@pytest.mark.parametrize(
    ("tool", "pattern", "expected"),
    [
        ("mail/send", "mail/*", True),
        ("mail/send", "mail/send", True),
        ("mail/send", "mail", False),
        ("mailer/send", "mail/*", False),
        ("anything", "*", True),
    ],
)
def test_patterns(tool: str, pattern: str, expected: bool) -> None:
    assert matches(tool, pattern) is expected


def test_the_gatekeeper_reads_arguments_and_refuses_what_is_not_json() -> None:
    keeper = GateKeeper(Operator())
    ruling = keeper.evaluate(ANN, "pay", ToolDefault.ASK, b'{"amount":5}', [allow(when="args.amount == 5")])
    assert ruling.gate is Gate.ALLOW
    with pytest.raises(InvalidRequest):
        keeper.evaluate(ANN, "pay", ToolDefault.ASK, b"{", [])


def test_checking_names_every_bad_binding() -> None:
    bindings = [allow(), allow(when="nobody == 1"), quorum(0), Binding(tool="a*b")]
    with pytest.raises(PolicyInvalid) as caught:
        GateKeeper(Operator()).check(bindings)
    assert [violation.field for violation in caught.value.violations] == [
        "bindings[1].when",
        "bindings[2].quorum",
        "bindings[3].tool",
    ]
