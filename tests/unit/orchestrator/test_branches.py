"""Steps beside the run's own loop: they pause side by side, count on one account, and come back from a checkpoint."""

from __future__ import annotations

from dataclasses import replace

from services.orchestrator.continuation import READER, decode, encode, segment_digests
from services.orchestrator.domain.events import AnswerDelta
from services.orchestrator.domain.messages import Budget, Role, text_message
from services.orchestrator.leg import Leg
from services.orchestrator.loop import LoopEnd
from services.orchestrator.ports import RecordState
from services.orchestrator.tools.ports import Consent, Effect
from tests.support.orchestrator_kit import (
    START,
    Bench,
    FakeTool,
    ScriptedModel,
    answering,
    bench,
    reply,
    tool_call,
)


def acting() -> FakeTool:
    return FakeTool(name="act", work=answering("acted"), consent=Consent.ASK, effect=Effect.SIDE_EFFECT)


def step(stand: Bench, name: str, **changes: object) -> Leg:
    messages = [text_message(Role.SYSTEM, "You are a step."), text_message(Role.USER, f"Do {name}.")]
    return stand.leg.branch(name, replace(stand.leg.spec, **changes), messages, 1)  # type: ignore[arg-type]


def restored(stand: Bench) -> None:
    """Put the leg's progress through every checkpoint that was written."""
    segments: dict[bytes, bytes] = {}
    head = b""
    for checkpoint in [*stand.journal.checkpoints, encode(stand.leg.spec, stand.leg.progress, START)]:
        segments |= {segment.digest: segment.content for segment in checkpoint.new_segments}
        head = checkpoint.head
    _, stand.leg.progress = decode(head, segments)


async def test_two_steps_wait_for_their_decisions_and_go_on_apart_after_a_restart() -> None:
    tool = acting()
    stand = bench(tool)
    first = ScriptedModel([reply("", tool_call("c1", "act", query="one")), reply("First done.")])
    second = ScriptedModel([reply("", tool_call("c2", "act", query="two")), reply("Second done.")])
    for name, model in (("s1", first), ("s2", second)):
        assert await stand.loop(model).run(step(stand, name)) == (LoopEnd.WAITING, None)
    assert {p.call_id for p in stand.leg.progress.pending_calls()} == {"c1", "c2"}

    restored(stand)
    stand.approvals.settle("c2", RecordState.APPROVED)
    end, answer = await stand.loop(second).run(step(stand, "s2"))
    assert (end, answer and answer.text) == (LoopEnd.ANSWERED, "Second done.")
    assert (await stand.loop(first).run(step(stand, "s1")))[0] is LoopEnd.WAITING

    restored(stand)
    stand.approvals.settle("c1", RecordState.DENIED)
    end, answer = await stand.loop(first).run(step(stand, "s1"))
    assert (end, answer and answer.text) == (LoopEnd.ANSWERED, "First done.")
    assert [arguments["query"] for arguments in tool.executions] == ["two"]
    assert step(stand, "s2").progress.answer == "Second done."


async def test_a_step_has_caps_of_its_own_and_those_of_the_run() -> None:
    look = FakeTool(name="look", work=answering("seen"))
    stand = bench(look, budget=Budget(rounds=3))
    model = ScriptedModel(
        [reply("", tool_call("c1", "look", query="a")), reply("Cut."), reply("", tool_call("c2", "look", query="a"))]
    )
    await stand.loop(model).run(step(stand, "s1", budget=Budget(rounds=1)))
    assert stand.leg.progress.spent.rounds == 2
    assert stand.leg.progress.spent.usage.total_tokens == 30

    model.replies += [reply("Cut by the run.")]
    branch = step(stand, "s2", budget=Budget(rounds=9))
    await stand.loop(model).run(branch)
    assert "limit of 3 rounds" in branch.progress.closing_reason
    assert branch.progress.spent.rounds == 2


async def test_the_same_call_may_be_made_by_two_steps_but_not_twice_by_one() -> None:
    look = FakeTool(name="look", work=answering("seen"))
    stand = bench(look)
    for name in ("s1", "s2"):
        calls = [reply("", tool_call(f"{name}-{i}", "look", query="a")) for i in range(2)]
        await stand.loop(ScriptedModel([*calls, reply("Done.")])).run(step(stand, name))
    assert len(look.executions) == 2


async def test_text_of_a_step_is_told_as_the_steps_own_and_not_as_the_answer() -> None:
    stand = bench()
    await stand.loop(ScriptedModel([reply("Found it.")])).run(step(stand, "s1"))
    assert [event.text for event in stand.journal.of(AnswerDelta)] == ["Found it."]
    assert stand.leg.progress.answer == ""


async def test_a_run_with_steps_is_left_alone_by_readers_that_would_forget_them() -> None:
    stand = bench()
    assert stand.leg.checkpoint().min_reader == 1
    branch = step(stand, "s1")
    checkpoint = branch.checkpoint()
    assert checkpoint.min_reader == READER == 2
    kept = {segment.digest for segment in checkpoint.new_segments}
    assert kept <= set(segment_digests(checkpoint.head))
    stand.leg.close_branch("s1")
    assert stand.leg.checkpoint().min_reader == 1


def test_the_first_call_of_a_step_has_another_id_for_every_owner() -> None:
    stand = bench()
    first = step(stand, "s1").progress.next_call_id
    stand.leg.close_branch("s1")
    stand.leg.progress.attempt = 2
    assert step(stand, "s1").progress.next_call_id not in ("", first)
