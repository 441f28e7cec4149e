"""The reader: a keyless `ChatModel` that is no language model and says so.

It asks for `search` when it may, picks the sentences of the evidence that answer the question, and quotes them with
their numbers. `/python CODE` asks for the code to be run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from services.chassis.canonical import canonical_json
from services.orchestrator.domain.messages import Message, Role, ToolCall, Usage
from services.orchestrator.evidence import FRAME, NOTHING_FOUND, RenderedDocument, parse
from services.orchestrator.models.errors import ModelRefused
from services.orchestrator.models.fragments import call_id_for
from services.orchestrator.models.layers import Events
from services.orchestrator.models.passages import is_cjk, quotations, terms
from services.orchestrator.models.ports import CallPiece, ModelReply, ModelRequest, Purpose, TextPiece
from services.orchestrator.models.reader_phrases import Phrases, phrases_for
from services.orchestrator.models.timing import CallClock
from services.orchestrator.models.tokens import estimate_tokens, message_tokens

MODEL_ID = "reader"
SEARCH = "search"
RUN_CODE = "run_code"
_COMMAND = re.compile(r"\A\s*/python\b[ \t]*\n?(?P<code>.*)\Z", re.DOTALL)
_FENCE = re.compile(r"\A```(?:python|py)?[ \t]*\n(?P<code>.*?)\n?```\s*\Z", re.DOTALL)
# How the tool's result begins; a call that did not run is told in other words.
_COMPUTED = "Sandbox computation"
# What stands in the user's turn behind the question.
_BEHIND_QUESTION = re.compile(
    rf"\n*(?:{re.escape(FRAME)}|{re.escape(NOTHING_FOUND)}|"
    # What research puts behind the question of a step, and behind the one that it answers at the end.
    r"\[Step \d+ of \d+ of the research: |\[The research is done: ).*",
    re.DOTALL,
)
# What people say who ask nothing yet, as terms.
_GREETINGS = frozenset({"hello", "hi", "hey", "good", "morn", "thank", "thanks", "你好", "您好", "谢谢"})
_PIECE = re.compile(r"\S+\s*|\s+")


class Reader:
    """Answers by quoting. It needs no key, no network and no time to speak of."""

    async def stream(self, request: ModelRequest, call: CallClock) -> Events:
        """Yield a search call, a code call or quotations. Raises ModelRefused for what only a language model can do."""
        call.begin(MODEL_ID)
        try:
            turn = _Turn(request)
            reply = turn.reply()
        except ModelRefused as error:
            call.end(error.reason)
            raise
        call.arrived()
        if isinstance(reply, ToolCall):
            call.token()
            yield CallPiece(call_id=reply.call_id, name=reply.name, arguments_fragment=reply.arguments_json.decode())
        else:
            for piece in _pieces(reply):
                call.token()
                yield TextPiece(text=piece)
        call.end()
        written = reply.arguments_json.decode() if isinstance(reply, ToolCall) else reply
        yield ModelReply(
            text="" if isinstance(reply, ToolCall) else reply,
            reasoning="",
            tool_calls=(reply,) if isinstance(reply, ToolCall) else (),
            finish_reason="tool_calls" if isinstance(reply, ToolCall) else "stop",
            usage=Usage(
                input_tokens=message_tokens(request.messages), output_tokens=estimate_tokens(written), estimated=True
            ),
            model=MODEL_ID,
            timing=call.timing(),
        )


class _Turn:
    """The user's last message and what has followed it."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        last = max((n for n, m in enumerate(request.messages) if m.role is Role.USER), default=-1)
        self._turn: Sequence[Message] = request.messages[last:] if last >= 0 else ()
        self._question = _BEHIND_QUESTION.sub("", self._turn[0].text).strip() if self._turn else ""
        self._say: Phrases = phrases_for(self._question)
        self._tools = () if request.tool_choice == "none" else tuple(tool.name for tool in request.tools)

    def reply(self) -> str | ToolCall:
        """Return the text or the call that this round brings."""
        if self._request.purpose is Purpose.TITLE:
            return self._question[:60].strip() or "…"
        if self._request.purpose not in (Purpose.ANSWER, Purpose.SYNTHESIZE) or not self._request.output.is_text:
            wanted = "structured output" if not self._request.output.is_text else self._request.purpose.value
            raise ModelRefused(
                MODEL_ID, f"is no language model and cannot serve '{wanted}'; configure one with OPENAI_BASE_URL"
            )
        if command := _COMMAND.match(self._question):
            return self._compute(command["code"].strip())
        return self._answer()

    def _compute(self, code: str) -> str | ToolCall:
        fenced = _FENCE.match(code)
        code = fenced["code"] if fenced else code
        results = [m.text for m in self._turn if m.role is Role.TOOL and m.tool_name == RUN_CODE]
        if results:
            result = results[-1]
            if _COMPUTED not in result:
                return self._say.not_run(result)
            told = "\n".join(line for line in result.splitlines() if not line.startswith(_COMPUTED))
            return f"{self._say.computed}\n\n{_fenced(told)}"
        if not code:
            return self._say.no_code
        if RUN_CODE not in self._tools:
            return self._say.no_sandbox
        return self._call(RUN_CODE, {"code": code}, self._say.code_reason)

    def _answer(self) -> str | ToolCall:
        documents = _documents(self._turn)
        searched = any(m.role is Role.TOOL and m.tool_name == SEARCH for m in self._turn)
        if not documents and terms(self._question) <= _GREETINGS:
            return self._say.introduction
        if not documents and not searched and SEARCH in self._tools:
            return self._call(SEARCH, {"query": self._question[:2000]}, self._say.search_reason)
        found = quotations(self._question, documents)
        if found:
            lines = "\n>\n".join(f"> {quotation.text} [{quotation.number}]" for quotation in found)
            return f"{self._say.found}\n\n{lines}\n\n{self._say.signature}"
        if documents or searched or (self._turn and self._turn[0].text != self._question):
            return f"{self._say.nothing_fits}\n\n{self._say.signature}"
        return self._say.introduction

    def _call(self, name: str, arguments: dict[str, str], reason: str) -> ToolCall:
        return ToolCall(
            call_id=call_id_for(self._request.call_id, 1, 0),
            name=name,
            arguments_json=canonical_json(arguments),
            reason=reason,
        )


def _documents(turn: Sequence[Message]) -> tuple[RenderedDocument, ...]:
    """Return the evidence that this turn has brought, each number once, as it was read last."""
    found = {d.number: d for m in turn if m.role in (Role.USER, Role.TOOL) for d in parse(m.text)}
    return tuple(found[number] for number in sorted(found))


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.strip()}\n{fence}"


def _pieces(text: str) -> Iterator[str]:
    """Cut a text as a model would stream it: word by word, or a few characters at a time where there are no spaces."""
    for word in _PIECE.findall(text):
        if len(word) <= 24 or not is_cjk(word):
            yield word
        else:
            yield from (word[start : start + 8] for start in range(0, len(word), 8))
