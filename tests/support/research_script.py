"""A scripted upstream for research: it answers by what it is asked for, since steps ask side by side."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.upstream_script import Reach, Request, Say, Turn, Wait, call, say

_STEP = re.compile(r"\[Step (\d+) of ")


@dataclass
class ResearchScript:
    """Two steps over the handbook. `act` is a tool call that each step makes before it reports, (name, arguments).

    The second step waits with its search until the first has read its own, so that numbers are the same each time.
    `stall` names a stage (plan, step, answer): the next reply of that stage begins, sets `stalled` and never ends.
    """

    questions: Sequence[str] = ("What is the mileage rate for cars?", "How long is an account locked?")
    answer: Sequence[str] = ("Cars: EUR 0.38 [1]. ", "Accounts: 20 minutes [2].")
    act: tuple[str, str] | None = None
    ask: Sequence[str] = ()
    stall: str = ""
    stalled: asyncio.Event = field(default_factory=asyncio.Event)
    seen: list[str] = field(default_factory=list)
    _first_has_read: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, request: Request) -> Turn:
        texts = [_text(message) for message in request.messages]
        step = next((found[1] for text in texts if (found := _STEP.search(text))), "")
        if "[The research is done:" in request.last_text:
            return self._turn("answer", say(*self.answer))
        if "Plan the research" in request.last_text:
            return self._turn("plan", say(self._plan(request.last_text)))
        assert step, f"the script does not know what is asked: {request.last_text[:200]}"
        return self._turn("step", self._step(int(step), request))

    def _plan(self, instruction: str) -> str:
        ask = self.ask if "cannot be asked" not in instruction else ()
        steps = [{"title": f"Step about {n}", "question": text} for n, text in enumerate(self.questions, start=1)]
        asked = [{"text": text, "options": []} for text in ask]
        return json.dumps({"complexity": "simple", "steps": [] if asked else steps, "questions": asked})

    def _step(self, number: int, request: Request) -> Turn:
        results = [message for message in request.messages if message["role"] == "tool"]
        if not results:
            arguments = json.dumps({"query": self.questions[number - 1], "reason": "to look it up"})
            first = call("search", arguments)
            return first if number == 1 else Turn(steps=(Wait(event=self._first_has_read), *first.steps))
        if number == 1:
            self._first_has_read.set()
        if self.act is not None and len(results) == 1:
            return call(*self.act)
        return say(f"Report of step {number}: ", f"see [{number}].")

    def _turn(self, stage: str, turn: Turn) -> Turn:
        self.seen.append(stage)
        if self.stall != stage:
            return turn
        self.stall = ""
        return Turn(steps=(Say(pieces=("Half a ",)), Reach(event=self.stalled), Wait()))


def _text(message: dict[str, object]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return str(content or "")
