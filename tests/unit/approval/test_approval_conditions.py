"""Conditions: what is refused when they are saved, and what fails when they run."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from services.approval.conditions import FUNCTIONS, ConditionFailed, Facts, check_condition, holds
from services.approval.errors import PolicyInvalid
from services.chassis.identity import Principal

ANN = Principal(tenant="acme", user="ann", groups=frozenset({"ops"}))


def facts(**arguments: Any) -> Facts:
    return Facts(arguments=arguments, principal=ANN)


@pytest.mark.parametrize(
    "text",
    [
        "args.amount >",
        "amount > 5",
        "request.user == 'x'",
        "principal.name == 'ann'",
        "lookup(args.x)",
        "args.text.lowerAscii() == 'x'",
        "'" + "x" * 5000 + "' == args.x",
        "(" * 400 + "true" + ")" * 400,
        "args.rows.exists(row, row.cells.all(cell, cell > 0))",
        "args.a.filter(x, x > 0).map(y, args.b.exists(z, z == y)).size() > 0",
    ],
)
def test_a_condition_that_cannot_serve_is_refused_when_saved(text: str) -> None:
    with pytest.raises(PolicyInvalid):
        check_condition(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "true",
        "args.amount > 5 && principal.user != 'eve'",
        "has(args.to) && args.to.matches('^[a-z]+@acme[.]example$')",
        "args.rows.exists(row, row > 0) && args.rows.all(row, row < 9)",
        "'principal.secret' == args.text",
        "args.text == 'nobody knows'",
        "timestamp(args.day) < timestamp('2030-01-01T00:00:00Z')",
        "size(args.list) < 3 && type(args.n) == int && string(args.n) == '1'",
    ],
)
def test_a_condition_that_can_serve_is_taken(text: str) -> None:
    check_condition(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("args.amount > 5", True),
        ("args.amount > 50", False),
        ("args.amount > 5.5", True),
        ("principal.tenant == 'acme'", True),
        ("'ops' in principal.groups", True),
        ("args.rows.exists(row, row == 2)", True),
        ("!has(args.missing)", True),
    ],
)
def test_a_condition_holds_or_not(text: str, expected: bool) -> None:
    assert holds(text, facts(amount=10, rows=[1, 2])) is expected


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("args.missing > 5", {}),
        ("args.amount > 5", {"amount": "ten"}),
        ("args.amount", {"amount": 1}),
        ("1 / args.amount > 0", {"amount": 0}),
        ("args.amount + 1 > 0", {"amount": 2**63 - 1}),
        ("args.n == 1 && args.big > 1", {"n": 1, "big": None}),
        ("args.text.matches(args.text)", {"text": "("}),
        ("args.list[5] == 1", {"list": []}),
        ("int(args.text) == 1", {"text": "one"}),
    ],
)
def test_a_condition_that_fails_when_it_runs_says_so(text: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConditionFailed):
        holds(text, facts(**arguments))


def test_an_integer_beyond_64_bits_never_crashes_the_evaluator() -> None:
    with contextlib.suppress(ConditionFailed):
        assert holds("args.n > 1", facts(n=2**70)) in (True, False)


EXAMPLES = {
    "bytes": "bytes('a') == b'a'",
    "contains": "'ab'.contains('b')",
    "double": "double('1') == 1.0",
    "duration": "duration('60s') == duration('1m')",
    "dyn": "dyn(1) == 1",
    "endsWith": "'ab'.endsWith('b')",
    "int": "int('1') == 1",
    "matches": "'ab'.matches('^a')",
    "size": "size('ab') == 2",
    "startsWith": "'ab'.startsWith('a')",
    "string": "string(1) == '1'",
    "timestamp": "timestamp('2030-01-02T00:00:00Z') > timestamp('2030-01-01T00:00:00Z')",
    "type": "type(1) == int",
    "uint": "uint(1) == 1u",
} | {name: f"timestamp('2030-01-01T00:00:00Z').{name}() >= 0" for name in sorted(FUNCTIONS) if name.startswith("get")}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_that_we_admit_exists(name: str) -> None:
    assert holds(EXAMPLES[name], facts())
