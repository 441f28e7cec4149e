"""What can be known to be wrong with one node: the names it reads, the types it gives, the tools it calls."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from services.chassis.canonical import canonical_json
from services.orchestrator.checks import ArgumentsRefused, check_schema, validate_arguments
from services.orchestrator.tools.ask_user import AskUserTool
from services.orchestrator.workflow import expressions, templates
from services.orchestrator.workflow.fitting import argument_problems
from services.orchestrator.workflow.graph import (
    TEMPLATE_FIELDS,
    VALUE_FIELDS,
    AgentWork,
    ApprovalWork,
    CodeWork,
    ConditionWork,
    EndWork,
    HttpWork,
    Node,
    NoteWork,
    ParallelWork,
    QuestionWork,
    StartWork,
    StateWork,
    ToolWork,
    Type,
)
from services.orchestrator.workflow.problems import Problem
from services.orchestrator.workflow.reading import is_of, type_of
from services.orchestrator.workflow.scope import Scope
from services.orchestrator.workflow.values import Formula, formulas

# Tools behind nodes that name none.
CODE_TOOL = "run_code"
HTTP_TOOL = "http_request"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCheck:
    """One node with what it may name."""

    node: Node
    scope: Scope
    tools: Mapping[str, bytes] | None
    agents: Collection[str] | None

    def problems(self) -> Iterator[Problem]:  # noqa: C901, PLR0912 - one case for each kind
        """Yield what is wrong with the node."""
        work = self.node.work
        for field in TEMPLATE_FIELDS.get(type(work), ()):
            yield from self._template(field, getattr(work, field))
        for field in VALUE_FIELDS.get(type(work), ()):
            yield from self._values(field, getattr(work, field))
        match work:
            case AgentWork():
                yield from self._agent(work)
            case ToolWork():
                yield from self._tool(work)
            case CodeWork():
                yield from self._known("code", CODE_TOOL)
                yield from self._python(work.code)
            case HttpWork():
                yield from self._known("type", HTTP_TOOL)
            case StateWork():
                yield from self._state(work)
            case ConditionWork():
                for index, branch in enumerate(work.branches):
                    yield from self._expression(f"branches[{index}].when", branch.when, Type.BOOL)
            case ApprovalWork():
                if work.group and not work.quorum:
                    yield self._problem("group", "'group' needs 'quorum': how many of them must agree")
            case QuestionWork():
                yield from self._questions(work)
            case EndWork():
                yield from self._end(work)
            case StartWork() | ParallelWork() | NoteWork():
                return

    def _agent(self, work: AgentWork) -> Iterator[Problem]:
        own = [name for name in ("instructions", "tools", "sources") if getattr(work, name)]
        if work.agent and own:
            yield self._problem(own[0], f"the agent '{work.agent}' brings its own {', '.join(own)}; leave out one")
        if work.agent and self.agents is not None and work.agent not in self.agents:
            known = ", ".join(f"'{name}'" for name in sorted(self.agents)) or "none"
            yield self._problem("agent", f"there is no agent '{work.agent}'; there is {known}")
        for tool in work.tools:
            yield from self._known("tools", tool)
        if work.output and (wrong := check_schema(canonical_json(work.output))):
            yield self._problem("output", f"not a JSON Schema: {wrong}")

    def _tool(self, work: ToolWork) -> Iterator[Problem]:
        yield from self._known("tool", work.tool)
        schema = (self.tools or {}).get(work.tool)
        if schema is not None:
            for name, message in argument_problems(work.arguments, schema):
                yield self._problem(f"arguments.{name}" if name else "arguments", message)

    def _python(self, code: str) -> Iterator[Problem]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)
                compile(code, "code", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
            said = error.msg if isinstance(error, SyntaxError) else str(error)
            yield self._problem("code", f"not Python: {line}{said}")

    def _state(self, work: StateWork) -> Iterator[Problem]:
        for name, value in work.set.items():
            variable = self.scope.workflow.state.get(name)
            if variable is None:
                yield self._problem(f"set.{name}", self.scope.problem(("state", name)))
            elif isinstance(value, str):
                yield from self._expression(f"set.{name}", value, variable.type)
            elif not is_of(value, variable.type):
                message = f"{value!r} is {type_of(value).value}, 'state.{name}' is {variable.type.value}"
                yield self._problem(f"set.{name}", message)

    def _questions(self, work: QuestionWork) -> Iterator[Problem]:
        try:
            asked = canonical_json({"questions": list(work.questions)})
            validate_arguments(asked, AskUserTool.definition.spec.parameters_json)
        except (ArgumentsRefused, TypeError, ValueError) as error:
            yield self._problem("questions", str(error))

    def _end(self, work: EndWork) -> Iterator[Problem]:
        given = [name for name in ("output", "value", "fail") if getattr(work, name) not in ("", None)]
        if "fail" in given and len(given) > 1:
            yield self._problem("fail", "an end that fails has neither 'output' nor 'value'")

    # --- names, expressions, templates ----------------------------------------------------------------------------

    def _known(self, field: str, tool: str) -> Iterator[Problem]:
        if self.tools is not None and tool not in self.tools:
            known = ", ".join(f"'{name}'" for name in sorted(self.tools)) or "none"
            yield self._problem(field, f"there is no tool '{tool}'; there is {known}")

    def _values(self, field: str, value: Any) -> Iterator[Problem]:
        for formula in formulas(value, field):
            yield from self._formula(formula)

    def _formula(self, formula: Formula) -> Iterator[Problem]:
        if formula.is_cel:
            yield from self._expression(formula.where, formula.text, Type.ANY)
        else:
            yield from self._template(formula.where, formula.text)

    def _expression(self, field: str, text: str, wanted: Type) -> Iterator[Problem]:
        try:
            found = expressions.references(text)
        except expressions.ExpressionInvalid as error:
            yield self._problem(field, str(error))
            return
        wrong = [problem for reference in found if (problem := self.scope.problem(reference))]
        for problem in wrong:
            yield self._problem(field, problem)
        if not wrong and (problem := self.scope.type_problem(text, found, wanted)):
            yield self._problem(field, problem)

    def _template(self, field: str, text: str) -> Iterator[Problem]:
        try:
            found = templates.references(text)
        except templates.TemplateInvalid as error:
            yield self._problem(field, str(error))
            return
        for reference in found:
            if problem := self.scope.problem(reference):
                yield self._problem(field, problem)

    def _problem(self, field: str, message: str) -> Problem:
        return Problem(where=f"nodes.{self.node.node_id}.{field}", message=message)


def tools_of(node: Node) -> tuple[str, ...]:
    """Return the tools that a node names."""
    match node.work:
        case ToolWork(tool=tool):
            return (tool,)
        case AgentWork(tools=tools):
            return tools
        case _:
            return ()
