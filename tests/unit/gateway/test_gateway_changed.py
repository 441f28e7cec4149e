"""Stepping a fold's state, compared with the standard library's way."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from services.gateway.projections import ag_ui, chat_completions, response_state, ui_messages
from services.gateway.stepping import changed

STATES: list[Any] = [
    chat_completions.State(options=chat_completions.Options(), sent="a", model="m"),
    response_state.State(id="r", output=({"id": "o"},)),
    ui_messages.State(text="a"),
    ag_ui.State(thread_id="t", run_id="r"),
]


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__module__.rpartition(".")[2])
def test_a_changed_state_is_what_replace_makes_of_it(state: Any) -> None:
    before = replace(state)
    for field in fields(state):
        other = changed(state, **{field.name: ("other",)})
        assert other == replace(state, **{field.name: ("other",)})
        assert vars(other).keys() == vars(state).keys()
    assert changed(state) == state == before
    assert changed(state) is not state


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__module__.rpartition(".")[2])
def test_what_is_no_field_cannot_be_changed(state: Any) -> None:
    with pytest.raises(TypeError, match="has no field \\['sentt'\\]"):
        changed(state, sentt="b")
    with pytest.raises(FrozenInstanceError):
        changed(state).run_id = "x"
