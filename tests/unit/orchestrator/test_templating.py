"""What users' templates may cost: no construct makes much from little, in time or memory."""

from __future__ import annotations

import pytest
from jinja2 import TemplateError

from services.orchestrator.templating import MAX_OUTPUT, SafeEnvironment, TooLong, rendered, structure_problem

JINJA = SafeEnvironment()
VALUES = {"text": "x" * 20_000, "items": list(range(500)), "table": {"items": "a field", "n": 3}}
DOUBLING = "{% set a = text %}" + "{% set a = PAIR %}" * 60 + "{{ a }}"


@pytest.mark.parametrize(
    "bomb",
    [
        DOUBLING.replace("PAIR", "a ~ a"),
        DOUBLING.replace("PAIR", "a + a"),
        DOUBLING.replace("PAIR", "[a, a] | join"),
        DOUBLING.replace("PAIR", "a | replace('', a)"),
        "{{ text | join(text) }}",
        "{{ text | list | join(text) }}",
        "{% for item in items %}{{ text }}{% endfor %}",
        "{% with b = text ~ text ~ text %}{% with c = b ~ b ~ b %}{{ c ~ c ~ c }}{% endwith %}{% endwith %}",
    ],
)
def test_a_text_that_grows_is_cut_off(bomb: str) -> None:
    with pytest.raises(TooLong, match=str(MAX_OUTPUT)):
        rendered(JINJA.from_string(bomb), VALUES)


@pytest.mark.parametrize(
    "forbidden",
    [
        "{{ text * 1000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ '%1000000d' % 1 }}",
        "{{ text.ljust(1000000000) }}",
        "{{ 'x'.join(items) }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ '{:>1000000000}'['format'](1) }}",
        "{{ ['{:>1000000000}'] | map(attribute='format') | first | string }}{{ nothing }}",
        "{{ text.__class__.__mro__ }}",
        "{{ lipsum(1000000) }}",
        "{{ range(1000000) | list }}",
        "{{ text | center(1000000000) }}",
    ],
)
def test_what_widens_or_reaches_out_is_refused(forbidden: str) -> None:
    with pytest.raises(TemplateError):
        rendered(JINJA.from_string(forbidden), VALUES)


@pytest.mark.parametrize(
    "structure",
    [
        "{% for a in items %}{% for b in items %}.{% endfor %}{% endfor %}",
        "{% for a in items %}{% if a %}{% for b in items %}.{% endfor %}{% endif %}{% endfor %}",
        "{% for a in items recursive %}{{ loop(items) }}{% endfor %}",
        "{% set a %}{{ text }}{% endset %}",
        "{% filter upper %}{{ text }}{% endfilter %}",
        "{% macro m() %}{% endmacro %}",
        "{% include 'other' %}",
    ],
)
def test_what_could_multiply_itself_has_no_place(structure: str) -> None:
    assert structure_problem(JINJA.parse(structure))


def test_ordinary_templates_work() -> None:
    template = "{% for n in items[:3] if n %}{{ n + 1 }}, {% endfor %}{{ 'a' + 'b' ~ 1 }} {{ ['x', 'y'] | join('/') }} "
    template += "{{ 'a-b' | replace('-', '+') }} {{ table.items }} {{ 7 % 4 * 2 }} {{ {'k': 'ü'} | tojson }}"
    assert structure_problem(JINJA.parse(template)) == ""
    assert rendered(JINJA.from_string(template), VALUES) == '2, 3, ab1 x/y a+b a field 6 {"k": "ü"}'
