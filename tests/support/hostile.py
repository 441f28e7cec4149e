"""What parsers are fed in tests: inputs that have broken others, and strategies for anything of a form or of none."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# What has broken parsers elsewhere: nesting beyond the stack, numbers beyond a limit, halves of characters.
HOSTILE = [
    "[" * 100_000,
    '{"a":' * 50_000,
    "1" * 10_000,
    '{"a": ' + "9" * 10_000 + "}",
    "NaN",
    '{"a": 1e999}',
    "\ud800",
    '"\\ud800"',
    "\0",
    "{" * 3000 + "}" * 3000,
    "```json\n" + "[" * 60_000,
    "<tool_call>" * 2000,
    "[1]" * 5000,
    '{"choices": {"": null}}',
    '{"choices": 5, "usage": {"prompt_tokens": "many"}}',
]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KNOWN_KEYS = st.sampled_from(
    "choices delta index content tool_calls function name arguments id tool usage error".split()
)
CHUNKS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KNOWN_KEYS, inner, max_size=5),
    max_leaves=16,
).map(json.dumps)
TEXTS = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(max_size=200),
    JSON_VALUES.map(json.dumps),
    CHUNKS,
    st.tuples(CHUNKS, st.integers(0, 40)).map(lambda cut: cut[0][: len(cut[0]) - cut[1]]),
)
BYTES = st.one_of(st.binary(max_size=300), TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")))
# What stands where something else was expected.
WRONG = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**70),
    st.text(max_size=6),
    st.sampled_from([[], {}, [5], [None], {"a": 5}, 1.5, "\ud800"]),
)


def shaped(fields: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects with some of the fields, each as it should be or something else."""
    return st.fixed_dictionaries({}, optional={name: value | WRONG for name, value in fields.items()})


def taking_anything(
    inputs: st.SearchStrategy[Any], target: Callable[[Any], None], examples: int, *, known: bool
) -> None:
    """Feed a target, which must not raise; `known` feeds it the same inputs every time."""

    @settings(
        max_examples=examples,
        derandomize=known,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs)
    def check(value: Any) -> None:
        target(value)

    check()
