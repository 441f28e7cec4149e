"""System prompts: a sandboxed Jinja template per agent, with documented variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial
from typing import Any

from jinja2 import TemplateError, meta

from services.chassis.canonical import canonical_json
from services.orchestrator.agents.templates import NamedCall, PromptInvalid, check_template
from services.orchestrator.domain.agent import Agent
from services.orchestrator.guardrails.framing import RULE, tool_result
from services.orchestrator.templating import SafeEnvironment, rendered

# Results of named tools may stand in it, each as long as a tool's result may be.
MAX_PROMPT = 1_000_000
DEFAULT_PROMPT = """\
You are {{ agent }}, an assistant that answers from documents.{% if description %} {{ description }}{% endif %}
Today is {{ today }}.

- Answer from the documents you are given or find; cite each statement you take from one by its number, like [1].
- Never invent a source, a number or a fact. When the documents do not answer the question, say so plainly.
- RULE_OF_FRAMES
{%- if "search" in tools %}
- Search before you answer anything about the organisation's own matters; search again with other words when the first
  search finds nothing useful.
{%- endif %}
{%- if "run_code" in tools %}
- For calculations and data, call run_code instead of computing in your head. Its result is computation, not evidence:
  it has no citation number; say "from sandbox computation".
{%- endif %}
"""
LANGUAGE = """\
- Answer in {% if language %}the language with the tag {{ language }}{% else %}the language of the user's question
{%- endif %}, and think in it too.
"""
DEFAULT_PROMPT = DEFAULT_PROMPT.replace("RULE_OF_FRAMES", RULE) + LANGUAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptContext:
    """Values of the template's variables. `results` holds what each named call gave, by tool and arguments."""

    today: datetime
    tools: tuple[str, ...]
    user: str
    question: str = ""
    documents: str = ""
    results: Mapping[tuple[str, bytes], str] = field(default_factory=dict)


class Prompts:
    """Renders prompts. Templates see only documented variables, never objects."""

    def __init__(self) -> None:
        self._environment = SafeEnvironment()
        # Compiling a template takes longer than everything else before the first model call.
        self._compiled = lru_cache(maxsize=256)(self._environment.from_string)
        self._checked = lru_cache(maxsize=256)(partial(check_template, self._environment))
        self._names = lru_cache(maxsize=256)(self._names_of)

    def check(self, template: str) -> None:
        """Raise PromptInvalid when `template` does not compile or names an unknown variable."""
        self._checked(template)

    def tool_calls(self, template: str) -> tuple[NamedCall, ...]:
        """Return the calls that a template names, or raise PromptInvalid."""
        return self._checked(template)

    def places_documents(self, agent: Agent) -> bool:
        """Whether the agent's template itself places the documents."""
        return "documents" in agent.prompt and "documents" in self._names(agent.prompt)

    def values(self, agent: Agent, context: PromptContext) -> dict[str, Any]:
        """Return the variables' values."""
        return {
            "agent": agent.name,
            "description": agent.description,
            "today": context.today.date().isoformat(),
            "tools": context.tools,
            "language": agent.language,
            "documents": context.documents,
            "user": context.user,
            "question": context.question,
        }

    def render(self, agent: Agent, context: PromptContext) -> str:
        """Return the system prompt of `agent`, or raise PromptInvalid.

        A template that does not speak of the language itself gets the language policy as its last line.
        """
        template = agent.prompt or DEFAULT_PROMPT

        def tool(name: str, **arguments: Any) -> str:
            result = context.results.get((name, canonical_json(arguments)), "it did not run")
            return tool_result(name, result)

        values = self.values(agent, context)
        try:
            text = rendered(self._compiled(template), {**values, "tool": tool}, MAX_PROMPT)
            if RULE not in text:  # an operator's own words need not think of it
                text = f"{text.rstrip()}\n\n{RULE}"
            if "language" not in self._names(template):
                text = f"{text.rstrip()}\n\n{self._compiled(LANGUAGE).render(**values).removeprefix('- ')}"
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise PromptInvalid(f"the prompt of agent '{agent.name}' cannot be rendered: {error}") from error
        return text

    def _names_of(self, template: str) -> frozenset[str]:
        try:
            return frozenset(meta.find_undeclared_variables(self._environment.parse(template)))
        except TemplateError as error:
            raise PromptInvalid(f"the prompt is not a valid template: {error}") from error
