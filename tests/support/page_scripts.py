"""Scripts for the fake gateway: runs that show everything the page can show."""

from __future__ import annotations

import base64
from typing import Any

from tests.support.fake_gateway import FakeGateway
from tests.support.fake_run import FakeRun

PER_DIEM = (
    "| City | Per diem (EUR per day) | Hotel limit (EUR per night) |\n|---|---|---|\n"
    "| London | 72 | 230 |\n| Zurich | 86 | 240 |\n| Singapore | 70 | 215 |"
)
PART_DAYS = (
    "The day of departure and the day of return are each paid at 60 % of the per diem of the city where you spend that "
    "night or, on the way back, the last night."
)
EVIDENCE = [
    ("Per diem and hotel limits", "Rates by city", PER_DIEM, 0.87, "EVIDENCE_KIND_PASSAGE"),
    ("Per diem and hotel limits", "Part days", PART_DAYS, 0.81, "EVIDENCE_KIND_PASSAGE"),
    (
        "Travel and expenses",
        "Summary",
        "The policy covers trips, hotels, cars, meals, receipts and deadlines.",
        0.55,
        "EVIDENCE_KIND_SUMMARY",
    ),
    (
        "Singapore hotel prices 2026",
        "example.com",
        "Average nightly rates in the centre stand at SGD 310.",
        0.41,
        "EVIDENCE_KIND_WEB",
    ),
]
ANSWER = (
    "Four days in Singapore with three nights away come to **EUR 224** when breakfast is not included.[1][2]\n\n"
    "The two full days are paid at EUR 70; the day of departure and the day of return at 60 % each [2]:\n\n"
    "$$2 \\times 70 + 2 \\times (0.6 \\times 70) = 224$$\n\n"
    "| Day | Share | EUR |\n|---|---|---:|\n| Departure | 60 % | 42 |\n"
    "| Two full days | 100 % | 140 |\n| Return | 60 % | 42 |\n\n"
    "- The hotel may cost up to EUR 215 a night [1].\n"
    "- A provided breakfast takes 20 % off the day; check your booking, hotels there cost about SGD 310 [4].\n\n"
    "Nothing in the documents speaks of tips [9].\n"
)
CODE = """import matplotlib.pyplot as plt

cities = ["London", "Zurich", "Singapore"]
plt.bar(cities, [72, 86, 70])
plt.savefig("per-diem.png")"""
HOSTILE = (
    '<img src=x onerror="window.hacked=1"> <script>window.hacked=2</script>\n\n'
    "[click](javascript:window.hacked=3) ![p](https://evil.example/p.png) <svg onload=window.hacked=4>\n\n"
    '<a href="data:text/html,<script>window.hacked=5</script>">x</a> [1](javascript:window.hacked=6)\n\n'
    "```html\n<script>window.hacked=7</script>\n```\n\n"
    "$\\href{javascript:window.hacked=8}{x}$ <style>body{display:none}</style>\n"
    '<iframe srcdoc="<script>parent.hacked=9</script>"></iframe><form action=/v1/runs><input name=q></form> [2]'
)
BAD = '"><img src=x onerror="window.hacked=10"><script>window.hacked=11</script>'
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
USAGE = {"input_tokens": 2310, "output_tokens": 184, "cached_input_tokens": 1024}


def install(gateway: FakeGateway, pace: float = 0.0) -> None:
    """Teach the gateway every script; `pace` slows text down for people who look."""
    gateway.scripts |= {
        "What is the per diem": lambda run: per_diem(run, pace),
        "/python": lambda run: python(run, pace),
        "Hostile steps": hostile_steps,
        "Hostile": hostile,
        "Fail": fail,
        "Wait": wait,
        "Retract": retract,
        "Ask me": questions,
        "Stand by": stand_by,
        "Count": count,
        "Compare": research,
    }
    gateway.artifacts.setdefault("a1", ("image/png", PIXEL))
    gateway.artifacts.setdefault("a2", ("text/csv", b"city,eur\nLondon,72\n"))


def evidence(run: FakeRun, count: int = 4, call_id: str = "") -> list[dict[str, Any]]:
    """Add evidence to the run and return it."""
    made = []
    for number, (title, where, text, score, kind) in enumerate(EVIDENCE[:count], start=1):
        item = {
            "number": number,
            "kind": kind,
            "title": title,
            "where": where,
            "text": text,
            "score": score,
            "passage_id": f"p{number}",
        }
        if kind.endswith("WEB"):
            item |= {"url": "https://example.com/hotels", "passage_id": ""}
        made.append(item)
        run.emit("evidence_added", evidence=item, call_id=call_id)
    return made


def cite(items: list[dict[str, Any]], *cited: int) -> list[dict[str, Any]]:
    """Return citations of the evidence."""
    return [{"number": item["number"], "cited": item["number"] in cited, "evidence": item} for item in items]


def model_call(run: FakeRun, call: str, first: float, total: float, finish: str = "stop", **more: Any) -> None:
    """Emit the measurement of one model call that ends now."""
    began = run.events[-1]["at"]
    run.emit(
        "model_call_finished",
        model_call_id=call,
        purpose="answer",
        model="gpt-large",
        queued="0.012s",
        started_at=began,
        time_to_first_token=f"{first}s",
        total=f"{total}s",
        attempts=1,
        usage=USAGE,
        finish_reason=finish,
        **more,
    )


def search(run: FakeRun, query: str, pace: float) -> list[dict[str, Any]]:
    """One round in which the model thinks and searches."""
    run.emit("stage_changed", stage="STAGE_THINKING", text="Reading the question")
    for piece in (
        "The question asks for an amount. ",
        "The rates are in the per diem table, ",
        "so that is what to search for.",
    ):
        run.emit("thinking_delta", text=piece, model_call_id="m0")
        run.rest(pace * 10) if pace else None
    run.emit("tool_call_delta", call_id="c0", name="search", arguments_fragment='{"query":', model_call_id="m0")
    run.emit(
        "tool_call_proposed", call={"call_id": "c0", "name": "search", "arguments_json": {"query": query}}, round=1
    )
    model_call(run, "m0", 0.42, 1.3, "tool_calls")
    run.emit("stage_changed", stage="STAGE_CALLING_TOOLS", text="Searching the handbook")
    run.emit("tool_call_started", call_id="c0", name="search", arguments_json={"query": query})
    run.rest(pace * 20) if pace else None
    items = evidence(run, call_id="c0")
    run.emit(
        "tool_call_finished",
        call_id="c0",
        name="search",
        status="TOOL_STATUS_COMPLETED",
        preview="4 passages",
        duration="0.231s",
    )
    return items


def per_diem(run: FakeRun, pace: float) -> None:
    """Search, then an answer with citations, a formula and a table."""
    items = search(run, "per diem Singapore four days", pace)
    run.emit("stage_changed", stage="STAGE_ANSWERING", text="Writing the answer")
    run.say(ANSWER, pace=pace)
    model_call(run, "m1", 0.38, 2.1)
    run.emit(
        "run_completed",
        text=ANSWER,
        message_id="am1",
        citations=cite(items, 1, 2, 4),
        usage=USAGE,
        finish_reason="stop",
        unknown_citations=[9],
    )


def python(run: FakeRun, pace: float) -> None:
    """Code that asks first, draws a picture, and answers."""
    arguments = {"code": run.question.removeprefix("/python").strip() or CODE}
    reason = "Draws the per diem rates of the three cities as a bar chart, so that they can be compared."
    run.emit(
        "tool_call_proposed",
        call={"call_id": "c1", "name": "run_code", "arguments_json": arguments, "reason": reason},
        round=1,
    )
    run.emit("stage_changed", stage="STAGE_WAITING", text="Waiting for permission to run code")
    decision = run.ask("c1", "run_code", arguments, reason)
    if decision["decision"] in ("deny", "expired"):
        status = "DENIED" if decision["decision"] == "deny" else "EXPIRED"
        run.emit(
            "tool_call_finished",
            call_id="c1",
            name="run_code",
            status=f"TOOL_STATUS_{status}",
            preview="A person refused the call.",
        )
        run.say("The code did not run.", pace=pace)
        run.emit("run_completed", text="The code did not run.", message_id="am2", usage=USAGE)
        return
    arguments = decision.get("arguments") or arguments
    run.emit("stage_changed", stage="STAGE_CALLING_TOOLS", text="Running code in the sandbox")
    run.emit("tool_call_started", call_id="c1", name="run_code", arguments_json=arguments)
    run.emit("tool_call_progress", call_id="c1", stream="PROGRESS_STREAM_STDOUT", text="3 bars drawn\n")
    picture = {
        "artifact_id": "a1",
        "name": "per-diem.png",
        "media_type": "image/png",
        "size": len(run.gateway.artifacts["a1"][1]),
    }
    table = {"artifact_id": "a2", "name": "per-diem.csv", "media_type": "text/csv", "size": 19}
    run.emit("artifact_created", artifact=picture, call_id="c1")
    run.emit(
        "tool_call_finished",
        call_id="c1",
        name="run_code",
        status="TOOL_STATUS_COMPLETED",
        preview="3 bars drawn",
        artifacts=[picture, table],
        duration="0.842s",
    )
    items = evidence(run, 2)
    text = "The chart compares three cities: Zurich is paid most, EUR 86 a day [1]. The bars come from the sandbox."
    run.emit("stage_changed", stage="STAGE_ANSWERING", text="Writing the answer")
    run.say(text, pace=pace)
    run.emit("run_completed", text=text, message_id="am3", citations=cite(items, 1), usage=USAGE, finish_reason="stop")


def hostile(run: FakeRun) -> None:
    """Everything that comes from outside tries to run script."""
    bad = BAD
    item = {
        "number": 1,
        "kind": "EVIDENCE_KIND_WEB",
        "title": bad,
        "where": bad,
        "text": f"{bad}\n\n| a |\n|---|\n| {bad} |",
        "url": "javascript:window.hacked=12",
        "passage_id": bad,
    }
    run.emit("evidence_added", evidence=item)
    arguments = {"code": bad}
    run.emit("tool_call_proposed", call={"call_id": bad, "name": bad, "arguments_json": arguments, "reason": bad})
    run.emit("notice", code=bad, text=bad)
    run.emit("artifact_created", artifact={"artifact_id": "a2", "name": bad, "media_type": "image/svg+xml", "size": 3})
    run.emit("tool_call_finished", call_id=bad, name=bad, status="TOOL_STATUS_COMPLETED", preview=bad)
    run.say(HOSTILE + " [1]")
    run.emit("run_completed", text=HOSTILE + " [1]", message_id="am4", citations=cite([item], 1))


def hostile_steps(run: FakeRun) -> None:
    """An agent, a router, a workflow, MCP servers and people with hostile names; it ends waiting for answers."""
    bad = BAD
    run.emit("run_started", conversation_id=run.conversation_id, agent_name=bad, model=bad, question=bad, trace_id=bad)
    run.emit("stage_changed", stage=bad, text=bad)
    run.emit("route_decided", scores=[{"label": bad, "score": bad}], choice=bad, explanation=bad, duration=bad)
    run.emit("plan_made", complexity=bad, steps=[{"step_id": bad, "title": bad}, {"step_id": "other", "title": bad}])
    run.emit("step_started", step_id=bad, title=bad, kind=bad)
    call = {"call_id": "c1", "name": bad, "arguments_json": {bad: bad}, "reason": bad, "malformed_arguments": bad}
    run.emit("tool_call_proposed", step_id=bad, call=call, round=1, title=bad)
    run.emit("tool_call_started", step_id=bad, call_id="c1", name=bad, arguments_json={"query": bad, "memory": bad})
    run.emit("tool_call_progress", step_id=bad, call_id="c1", stream=bad, text=bad)
    run.emit("tool_call_finished", step_id=bad, call_id="c1", name=bad, status=bad, preview=bad, duration=bad)
    run.emit("thinking_delta", step_id=bad, text=bad, model_call_id="m1")
    run.emit("answer_delta", step_id=bad, text=bad, model_call_id="m1")
    models = {"model_call_id": bad, "purpose": bad, "model": bad, "fallback_from": bad, "error": bad}
    run.emit("model_call_finished", step_id=bad, started_at=run.events[0]["at"], total="1s", **models)
    run.emit("step_finished", step_id=bad, summary=bad, failed=True)
    run.emit("answer_retracted", model_call_id=bad, reason=bad)
    run.emit("history_compacted", messages=bad)
    question = {"question_id": bad, "text": bad, "type": "QUESTION_TYPE_SINGLE_CHOICE", "options": [bad]}
    record: dict[str, Any] = {
        "approval_id": "q-bad",
        "kind": "APPROVAL_KIND_QUESTION",
        "state": "APPROVAL_STATE_PENDING",
    }
    record |= {"tool": bad, "run_id": run.run_id, "requested_by": bad, "policy": bad, "questions": [question]}
    run.gateway.approvals["q-bad"] = record
    run.emit("questions_asked", approval_id="q-bad", questions_json=[question])
    arguments = {"code": bad, bad: bad}
    schema = {"type": "object", "properties": {bad: {"type": "string", "description": bad}}}
    asked: dict[str, Any] = {"arguments_json": arguments, "parameters_json": schema, "arguments_digest": bad}
    asked |= {"reason": bad, "policy": bad, "requested_by": bad}
    run.gateway.approvals["a-bad"] = {**record, **asked, "approval_id": "a-bad", "kind": "APPROVAL_KIND_TOOL"}
    decided = {"state": "APPROVAL_STATE_EDITED", "decided_by": bad, "comment": bad, "edited_arguments_json": {bad: 1}}
    run.gateway.approvals["d-bad"] = {**run.gateway.approvals["a-bad"], **decided, "approval_id": "d-bad"}
    run.emit("approval_requested", approval_id="a-bad", call_id="c1", tool=bad, **asked)
    run.wait_for("hostile")
    told: dict[str, Any] = {
        "resolution": "RESOLUTION_EDITED",
        "decided_by": bad,
        "comment": bad,
        "edited_arguments_json": {bad: 1},
    }
    run.emit("approval_resolved", approval_id="a-bad", call_id="c1", **told)
    run.emit("run_failed", reason=bad, message=bad, partial_text=bad)


def fail(run: FakeRun) -> None:
    """A model that breaks half-way."""
    run.say("Half an ans")
    run.emit(
        "run_failed",
        reason="MODEL_STALLED",
        message="The model sent nothing for 180 s.",
        retryable=True,
        partial_text="Half an ans",
    )


def wait(run: FakeRun) -> None:
    """An answer that stops in the middle until it is released."""
    run.emit("stage_changed", stage="STAGE_THINKING", text="Thinking it over")
    run.say("First half. ")
    run.wait_for("rest")
    run.say("Second half.")
    run.emit("run_completed", text="First half. Second half.", message_id="am5")


def retract(run: FakeRun) -> None:
    """Text that is withdrawn and written anew."""
    run.say("Wrong words.", call="m1")
    run.wait_for("retract")
    run.emit("answer_retracted", model_call_id="m1", reason="the model's connection broke")
    run.say("Right words.", call="m2")
    run.emit("run_completed", text="Right words.", message_id="am6")


def questions(run: FakeRun) -> None:
    """The run asks its user, then goes on."""
    asked = [
        {
            "question_id": "city",
            "text": "Which city?",
            "type": "QUESTION_TYPE_SINGLE_CHOICE",
            "options": ["London", "Zurich"],
            "required": True,
        },
        {"question_id": "days", "text": "How many days?", "type": "QUESTION_TYPE_NUMBER", "required": True},
    ]
    record = {
        "approval_id": "q1",
        "kind": "APPROVAL_KIND_QUESTION",
        "state": "APPROVAL_STATE_PENDING",
        "run_id": run.run_id,
        "tool": "",
    }
    run.gateway.approvals["q1"] = record
    run.emit("questions_asked", approval_id="q1", questions_json=asked)
    run.decided(record)
    answers = record["decision"]["answers"]  # type: ignore[index]
    record["state"] = "APPROVAL_STATE_ANSWERED"
    run.emit("questions_answered", approval_id="q1", answers_json=answers)
    text = f"{answers['city']} for {answers['days']} days."  # type: ignore[index]
    run.say(text)
    run.emit("run_completed", text=text, message_id="am7")


def stand_by(run: FakeRun) -> None:
    """The run yields until its user writes again, then says what it was told."""
    reason = "Restart the router, then tell me what its lamp shows."
    call = {"call_id": "w1", "name": "wait_for_user", "arguments_json": {}, "reason": reason}
    run.emit("tool_call_proposed", call=call, round=1, title="Wait for you")
    run.emit("client_tool_requested", call=call, approval_id="w1")
    run.emit("run_paused", pending=[{"call_id": "w1", "approval_id": "w1", "kind": "PAUSE_KIND_CONTINUE"}])
    record: dict[str, Any] = {"approval_id": "w1", "kind": "APPROVAL_KIND_CONTINUE", "tool": "wait_for_user"}
    record |= {"state": "APPROVAL_STATE_PENDING", "run_id": run.run_id, "reason": reason}
    run.gateway.approvals["w1"] = record
    run.decided(record)
    record |= {"state": "APPROVAL_STATE_ANSWERED", "decided_by": "local"}
    run.emit("approval_resolved", approval_id="w1", call_id="w1", resolution="RESOLUTION_ANSWERED", decided_by="local")
    run.emit("run_resumed", cause="decision")
    run.emit("tool_call_finished", call_id="w1", name="wait_for_user", status="TOOL_STATUS_COMPLETED")
    text = f"You said: {record['decision'].get('input', 'nothing more')}."
    run.say(text)
    run.emit("run_completed", text=text, message_id="am10")


def count(run: FakeRun) -> None:
    """Many numbered words, so that a lost or doubled piece shows."""
    text = " ".join(f"w{number}" for number in range(200))
    run.say(text, size=7)
    run.emit("run_completed", text="", message_id="am8")


def research(run: FakeRun) -> None:
    """A research agent: a plan, two steps side by side, a synthesis."""
    run.emit("stage_changed", stage="STAGE_ROUTING", text="Choosing who answers")
    scores = [
        {"label": "small_talk", "score": 0.02},
        {"label": "agent", "score": 0.91},
        {"label": "off_topic", "score": 0.07},
    ]
    run.emit("route_decided", scores=scores, choice="agent", explanation="0.91 is above 0.60", duration="0.184s")
    run.emit("stage_changed", stage="STAGE_THINKING", text="Making a plan")
    steps = [("s1", "Rates in London"), ("s2", "Rates in Zurich")]
    run.emit("plan_made", complexity="simple", steps=[{"step_id": step, "title": title} for step, title in steps])
    for step, title in steps:
        run.emit("step_started", step_id=step, title=title, kind="research")
    for step, title in steps:
        call = {"call_id": f"c-{step}", "name": "search", "arguments_json": {"query": title}}
        run.emit("tool_call_proposed", step_id=step, call=call, round=1)
    items = evidence(run, 2)
    for step, title in steps:
        ended = {"call_id": f"c-{step}", "name": "search", "status": "TOOL_STATUS_COMPLETED", "duration": "0.2s"}
        run.emit("tool_call_finished", step_id=step, **ended)
        run.emit("answer_delta", step_id=step, text=f"Found: {title}.", model_call_id=f"m-{step}")
        model_call(run, f"m-{step}", 0.3, 0.9, step_id=step)
        run.emit("step_finished", step_id=step, summary=f"{title} are in the table.", duration="1.4s")
    run.say("Zurich pays EUR 14 more than London [1].", call="m9")
    text = "Zurich pays EUR 14 more than London [1]."
    run.emit("run_completed", text=text, message_id="am9", citations=cite(items, 1), usage=USAGE)
