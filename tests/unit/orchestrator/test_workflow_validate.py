"""What is refused when a workflow is saved: names, types, shape, cycles, templates, tools. Each problem says where."""

from __future__ import annotations

import json

import pytest

from services.orchestrator.workflow.problems import WorkflowInvalid
from services.orchestrator.workflow.reading import read
from services.orchestrator.workflow.validate import checked, validate

SEARCH = json.dumps(
    {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "maximum": 9}},
        "required": ["query"],
        "additionalProperties": False,
    }
).encode()
TOOLS = {"search": SEARCH, "run_code": b"{}", "http_request": b"{}"}
BASE = """
parameters: {type: object, properties: {city: {type: string}, days: {type: integer}, more: {type: object}}}
state: {count: 0, ratio: 0.5, text: "", ready: false, items: [], table: {type: map}, open: {type: any}}
nodes:
  begin: {type: start, next: find}
  find: {type: tool, tool: search, arguments: {query: "{{ input }}"}, next: keep}
  keep: {type: state, set: {count: EXPRESSION}, next: check}
  check: {type: condition, branches: [{when: CONDITION, next: done}], else: find}
  done: {type: end, output: "OUTPUT"}
"""


def problems(condition: str = "true", expression: str = "1", output: str = "x", text: str = BASE) -> list[str]:
    quoted = json.dumps(condition)
    text = text.replace("CONDITION", quoted).replace("EXPRESSION", json.dumps(expression)).replace("OUTPUT", output)
    return [str(problem) for problem in validate(text, TOOLS, ["critic"])]


def nodes(text: str) -> list[str]:
    """Return the problems of a workflow of which only the nodes matter."""
    return [str(problem) for problem in validate(f"state: {{a: 0, b: 0}}\nnodes:\n{text}", TOOLS, ["critic"])]


def test_a_sound_workflow_has_no_problem() -> None:
    assert problems("state.count > 2 || nodes.find.value.good", "state.count + args.days", "{{ args.city }}") == []


# --- names in CEL (CASE 57) ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("state.cuont > 1", "there is no 'state.cuont'; did you mean 'count'?"),
        ('state["cuont"] > 1', "there is no 'state.cuont'"),
        ("cuont > 1", "there is no 'cuont'; there is 'input', 'args', 'state', 'nodes', 'user'"),
        ("has(state.nothing)", "there is no 'state.nothing'"),
        ("args.town == 'x'", "there is no 'args.town'"),
        ("nodes.fnid.text == ''", "there is no node 'fnid'; did you mean 'find'?"),
        ("nodes.find.tetx == ''", "a node of type tool has no 'tetx'; did you mean 'text'?"),
        ("nodes.done.error == ''", "node 'done' never runs before this one"),
        ("state.items.exists(i, j > 1)", "there is no 'j'"),
        ("state[input] == 1", "'state[…]' is not known before it runs"),
        ("user.name == 'x'", "'user' is a text"),
        ("state.text.shout() == 'X'", "calls 'shout', which does not exist"),
        ("lenght(state.text) > 1", "calls 'lenght', which does not exist"),
        ("state.count >", "is not CEL"),
        ("state.items.all(i, state.items.all(j, i == j))", "nests comprehensions"),
        ("x" * 5000, "the limit is 4096"),
    ],
)
def test_a_name_that_does_not_exist_is_an_error_when_it_is_saved(condition: str, said: str) -> None:
    (problem,) = problems(condition)
    assert problem.startswith("nodes.check.branches[0].when: ")
    assert said in problem


@pytest.mark.parametrize(
    "condition",
    [
        "state.items.exists(item, item.name == 'x' && state.count > 0)",
        "nodes.find.value['some key'][0].deep == args.more.of['any']",
        "has(nodes.find.value.maybe) && size(state.table) > 0",
        "'state.nothing' == r'nodes.\"x\"' // state.nothing",
        "state.text.startsWith('a') ? state.ready : !state.ready",
        "int(state.text) > 1 || double(state.count) * state.ratio < 2.0",
        "state.open == 1 || nodes.find.status == 'completed'",
    ],
)
def test_names_that_exist_are_found_in_every_form(condition: str) -> None:
    assert problems(condition) == []


# --- types --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("state.count * 1.5 > 2.0", "mixes types that do not go together (state.count is int)"),
        ("state.text + 1 == ''", "mixes types"),
        ("state.ready && state.count", "mixes types"),
        ("!nodes.find.text", "mixes types"),
        ("state.count", "gives int, not bool"),
        ("args.city + '!'", "gives string, not bool"),
        ("state.ready ? 'yes' : 'no'", "gives string, not bool"),
    ],
)
def test_types_that_do_not_go_together_are_errors_when_they_are_known(condition: str, said: str) -> None:
    (problem,) = problems(condition)
    assert said in problem


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("'one'", "gives string, not int"),
        ("state.ratio * 2.0", "gives double, not int"),
        ("state.count > 1", "gives bool, not int"),
        ("nodes.find.value.price", ""),
        ("10 / state.count", ""),
        ("state.items[3].price", ""),
    ],
)
def test_a_variable_is_set_to_what_has_its_type(expression: str, said: str) -> None:
    assert [said in problem for problem in problems(expression=expression)] == ([True] if said else [])


def test_a_literal_is_checked_against_the_variable_too() -> None:
    text = BASE.replace("count: EXPRESSION", "count: [1]").replace("CONDITION", "'true'")
    assert problems(text=text) == ["nodes.keep.set.count: [1] is list, 'state.count' is int"]


def test_a_default_has_the_type_that_is_said() -> None:
    assert "state.n: the default 'x' is no int" in str(validate("state: {n: {type: int, default: x}}\n" + LONE)[0])


LONE = "nodes: {begin: {type: start, next: done}, done: {type: end}}"


# --- templates ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("{{ inptu }}", "there is no 'inptu'"),
        ("{{ state.cuont }}", "there is no 'state.cuont'"),
        ("{{ nodes.find.txet }}", "has no 'txet'"),
        ("{% for i in state.items %}{{ i.name }}{{ j }}{% endfor %}", "there is no 'j'"),
        ("{{ range(9) }}", "there is no 'range'"),
        ("{{ cycler }}", "there is no 'cycler'"),
        ("{{ input", "is not a template"),
        ("{{ input | shout }}", "No filter named 'shout'"),
        ("{% include 'x' %}", "has an include, import or macro"),
        ("{% macro m() %}{% endmacro %}", "has an include, import or macro"),
        ("{% for a in state.items %}{% for b in a %}{% endfor %}{% endfor %}", "a loop inside a loop"),
    ],
)
def test_a_template_reads_only_what_there_is(output: str, said: str) -> None:
    (problem,) = problems(output=output.replace('"', '\\"'))
    assert problem.startswith("nodes.done.output: ")
    assert said in problem


def test_a_loop_variable_needs_no_scope() -> None:
    assert problems(output="{% for i in state.items %}{{ loop.index }}. {{ i.name }}{% endfor %}") == []


# --- the graph ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("  x: {type: end}", "nodes: there must be one node of type start, there are 0"),
        ("  a: {type: start, next: x}\n  b: {type: start, next: x}\n  x: {type: end}", "there are 2"),
        ("  a: {type: start, next: b}\n  b: {type: note, text: x, next: b}", "nodes: there must be a node of type end"),
        ("  a: {type: start, next: nowhere}\n  x: {type: end}", "nodes.a: leads to 'nowhere'; there is only 'a', 'x'"),
        ("  a: {type: start, next: x}\n  x: {type: end}\n  y: {type: end}", "nodes.y: nothing leads here"),
        (
            "  a: {type: start, next: b}\n  b: {type: state, set: {a: '1'}, next: a}\n  x: {type: end}",
            "nodes.b: leads back to the start 'a'",
        ),
        (
            """\
  a: {type: start, next: c}
  c: {type: condition, branches: [{when: 'true', next: b}], else: x}
  b: {type: state, set: {a: '1'}, next: d}
  d: {type: state, set: {a: '2'}, next: b}
  x: {type: end}
""",
            "nodes.b: no way leads from here to an end: it goes round without a way out",
        ),
        (
            """\
  a: {type: start, next: b}
  b: {type: tool, tool: search, arguments: {query: x}, next: b, on_error: x}
  x: {type: end}
""",
            "nodes.b: no way leads from here to an end: it goes round",
        ),
    ],
)
def test_the_graph_leads_from_one_start_to_an_end(text: str, said: str) -> None:
    assert any(said in problem for problem in nodes(text)), nodes(text)


FORK = """\
  a: {type: start, next: fork}
  fork: {type: parallel, branches: [l, r], join: x}
  l: {type: state, set: {a: "1"}, next: LEFT}
  r: {type: state, set: {RIGHT: "1"}, next: x}
  x: {type: end}
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FORK.replace("LEFT", "r").replace("RIGHT", "b"), "the branches 'l' and 'r' share 'r'"),
        (FORK.replace("LEFT", "x").replace("RIGHT", "a"), "the branches 'l' and 'r' both set 'a'"),
        (FORK.replace("LEFT", "y").replace("RIGHT", "b") + "  y: {type: end}\n", "the branch 'l' ends in 'y'"),
        (FORK.replace("LEFT", "fork").replace("RIGHT", "b"), "the branch 'l' leads back here"),
        (FORK.replace("LEFT", "x").replace("RIGHT", "b").replace("[l, r]", "[l, x]"), "the branch 'x' is the join"),
        (
            FORK.replace("LEFT", "x").replace("RIGHT", "b").replace("next: fork", "next: c")
            + "  c: {type: condition, branches: [{when: 'true', next: l}], else: fork}\n",
            "'c' leads to 'l' in the middle of the branch 'l'",
        ),
    ],
)
def test_branches_stay_apart_until_they_meet(text: str, said: str) -> None:
    assert any(said in problem for problem in nodes(text)), nodes(text)


def test_branches_that_meet_are_sound() -> None:
    assert nodes(FORK.replace("LEFT", "x").replace("RIGHT", "b")) == []


def test_the_bound_leaves_room_for_the_shortest_way() -> None:
    (problem,) = validate(f"steps: 1\n{LONE}")
    assert str(problem) == "steps: 1 steps never reach an end; it takes 2 at least"


# --- nodes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("{type: tool, tool: serach, next: x}", "nodes.n.tool: there is no tool 'serach'"),
        ("{type: tool, tool: search, next: x}", "nodes.n.arguments.query: the tool needs it"),
        ("{type: tool, tool: search, arguments: {query: x, more: 1}, next: x}", "has no such argument"),
        ("{type: tool, tool: search, arguments: {query: x, limit: 10}, next: x}", "10 is greater than the maximum"),
        ("{type: tool, tool: search, arguments: {query: '= state.zz'}, next: x}", "nodes.n.arguments.query: there is"),
        ("{type: agent, agent: ctiric, next: x}", "nodes.n.agent: there is no agent 'ctiric'; there is 'critic'"),
        ("{type: agent, agent: critic, tools: [search], next: x}", "brings its own tools"),
        ("{type: agent, tools: [nothing], next: x}", "nodes.n.tools: there is no tool 'nothing'"),
        ("{type: agent, output: {type: nothing}, next: x}", "nodes.n.output: not a JSON Schema"),
        ("{type: code, code: 'print(', next: x}", "nodes.n.code: not Python: line 1"),
        ("{type: http, url: 'http://x/{{ input', next: x}", "nodes.n.url: "),
        ("{type: http, url: 'http://x', method: BREW, next: x}", "'BREW' is not one of"),
        ("{type: approval, message: m, group: finance, next: x}", "'group' needs 'quorum'"),
        ("{type: question, questions: [{question_id: q, text: t}], next: x}", "'type' is a required property"),
        ("{type: state, set: {zz: '1'}, next: x}", "there is no 'state.zz'"),
        ("{type: note, text: x}", "a note on the way needs 'next'"),
        ("{type: tool, tool: search, arguments: {query: x}}", "'next' is a required property"),
        ("{type: tool, tool: search, arguements: {}, next: x}", "unknown key 'arguements'; did you mean 'arguments'?"),
        ("{type: wait, next: x}", "'wait' is not one of"),
        ("{type: tool, tool: search, retry: {attempts: 99}, next: x}", "99 is greater than the maximum"),
    ],
)
def test_a_node_is_checked_by_its_kind(node: str, said: str) -> None:
    found = nodes(f"  a: {{type: start, next: n}}\n  n: {node}\n  x: {{type: end, output: x}}")
    assert any(said in problem for problem in found), found


def test_an_end_fails_or_answers_but_not_both() -> None:
    assert (
        "neither 'output' nor 'value'" in nodes("  a: {type: start, next: x}\n  x: {type: end, fail: f, output: o}")[0]
    )


def test_tools_and_agents_are_left_alone_while_nobody_knows_them() -> None:
    text = LONE.replace(
        "next: done}", "next: n}, n: {type: agent, agent: later, next: t}, t: {type: tool, tool: y, next: done}"
    )
    assert validate(text) == ()
    assert len(validate(text, {}, [])) == 2


def test_parameters_are_a_schema() -> None:
    assert "parameters: not a JSON Schema" in str(validate("parameters: {type: nothing}\n" + LONE)[0])


def test_every_problem_is_a_violation_of_the_refusal() -> None:
    with pytest.raises(WorkflowInvalid) as caught:
        checked(BASE.replace("CONDITION", "state.zz").replace("EXPRESSION", "'x'").replace("OUTPUT", "{{ zz }}"))
    assert [violation.field for violation in caught.value.violations] == [
        "nodes.keep.set.count",
        "nodes.check.branches[0].when",
        "nodes.done.output",
    ]
    assert caught.value.reason == "WORKFLOW_INVALID"


# --- YAML ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is not a mapping"),
        ("nodes: [", "it is not YAML: line 1"),
        ("nodes: {a: {type: start}, a: {type: end}}", "'a' stands twice"),
        ("nodes: {1: {type: start}}", "the key 1 is no text"),
        ("x: &a [1]\nnodes: *a", "aliases are not allowed"),
        ("nodes: {a-b: {type: start}}", "does not match"),
        ("nodes: !!python/object:os.system {}", "it is not YAML"),
        ("nodes: {a: {type: [start]}}", "nodes.a.type: ['start'] is not one of"),
        ("nodes: {a: {type: end, value: !!binary aGk=}}", "it holds what JSON does not"),
        ("nodes: {a: {type: end, value: .inf}}", "it holds what JSON does not"),
        ("nodes: []", "nodes: [] is not of type 'object'"),
        ("steps: 100000\n" + LONE, "steps: 100000 is greater than the maximum of 1000"),
        ("x" * 1_000_001, "the limit is 1000000"),
    ],
)
def test_what_is_no_workflow_is_refused_with_the_place(text: str, said: str) -> None:
    assert any(said in str(problem) for problem in validate(text)), validate(text)


def test_words_that_yaml_once_took_for_truth_values_are_names() -> None:
    workflow = read("nodes: {on: {type: start, next: no}, no: {type: end, output: yes}}")
    assert list(workflow.nodes) == ["on", "no"]
    assert workflow.start.next == "no"
