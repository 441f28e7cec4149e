"""Conversations, artifacts and quotas in the orchestrator's database, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.domain.artifact import ArtifactNotFound, OwnedArtifact
from services.orchestrator.domain.conversation import (
    ConversationBusy,
    ConversationNotFound,
    Feedback,
    MessageNotFound,
    Rating,
)
from services.orchestrator.domain.events import RunCancelled, RunFailed
from services.orchestrator.domain.messages import Artifact, Message, Role, ToolCall, Usage, text_message
from services.orchestrator.domain.run import NewRun
from services.orchestrator.domain.usage import Quota, QuotaExceeded, QuotaScope
from services.orchestrator.journal.journal import RunJournal
from services.orchestrator.journal.ports import LeaseTerms
from tests.support.clock import FakeClock
from tests.support.journal_kit import Replica, answer, completed, decoded, in_conversation, new_run, replica

TERMS = LeaseTerms(owner="one")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def database(database_url: str, clock: FakeClock) -> AsyncIterator[Database]:
    opened = await Database.open(database_url, clock)
    yield opened
    await opened.close()


@pytest.fixture
async def here(database: Database) -> AsyncIterator[Replica]:
    async with replica(database) as made:
        yield made


def said(text: str, message_id: str) -> Message:
    return replace(text_message(Role.ASSISTANT, text), message_id=message_id)


async def opened(here: Replica, new: NewRun) -> RunJournal:
    journal = (await here.journals.admit(new)).journal
    assert journal is not None
    return journal


async def turn(here: Replica, conversation_id: str, question: str, reply: str, **changes: str) -> str:
    """Run one turn to its end and return the reply's message id."""
    journal = await opened(here, in_conversation(conversation_id, question, **changes))
    message_id = f"a-{journal.run_id}"
    await journal.finish(completed(reply), messages=(said(reply, message_id),))
    return message_id


async def texts(database: Database, conversation_id: str, user: str = "ann") -> list[str]:
    history = await database.conversations.history("acme", user, conversation_id)
    return [stored.message.text for stored in history]


# --- conversations -------------------------------------------------------------------------------------------------


async def test_a_conversation_grows_turn_by_turn(here: Replica, database: Database, clock: FakeClock) -> None:
    await turn(here, "v1", "one?", "one.")
    clock.advance(60)
    journal = await opened(here, in_conversation("v1", "two?"))
    call = ToolCall(call_id="c1", name="search", arguments_json=b'{"q":1}')
    await journal.finish(
        completed(),
        messages=(
            Message(role=Role.ASSISTANT, tool_calls=(call,), reasoning="hm", message_id="m-call"),
            Message(role=Role.TOOL, tool_call_id="c1", tool_name="search", message_id="m-result"),
            said("two.", "m-two"),
        ),
    )
    history = await database.conversations.history("acme", "ann", "v1")
    assert [stored.position for stored in history] == [1, 2, 3, 4, 5, 6]
    assert history[3].message.tool_calls == (call,)
    assert history[3].message.reasoning == "hm"
    assert history[4].message.tool_call_id == "c1"
    conversation = await database.conversations.get("acme", "ann", "v1")
    assert conversation.updated_at - conversation.created_at == timedelta(seconds=60)
    newest = await database.conversations.history("acme", "ann", "v1", limit=2)
    assert [stored.position for stored in newest] == [5, 6]
    older = await database.conversations.history("acme", "ann", "v1", limit=2, before=5)
    assert [stored.position for stored in older] == [3, 4]


async def test_a_failed_or_stopped_turn_keeps_its_partial_answer(here: Replica, database: Database) -> None:
    journal = await opened(here, in_conversation("v1", "one?"))
    await journal.finish(RunCancelled(cancelled_by="ann", partial_text="par"), messages=(said("par", "m1"),))
    journal = await opened(here, in_conversation("v1", "two?"))
    await journal.finish(RunFailed(reason="INTERNAL", message="no", retryable=False))
    assert await texts(database, "v1") == ["one?", "par", "two?"]


async def test_a_conversation_is_its_users_alone(here: Replica, database: Database) -> None:
    answer_id = await turn(here, "v1", "one?", "one.")
    for tenant, user in (("acme", "bob"), ("rival", "ann")):
        with pytest.raises(ConversationNotFound):
            await database.conversations.get(tenant, user, "v1")
        with pytest.raises(ConversationNotFound):
            await database.conversations.history(tenant, user, "v1")
        with pytest.raises(ConversationNotFound):
            await database.conversations.everything(tenant, user, "v1")
        with pytest.raises(ConversationNotFound):
            await database.conversations.rename(tenant, user, "v1", "mine")
        with pytest.raises(ConversationNotFound):
            await database.conversations.delete(tenant, user, "v1")
        with pytest.raises(ConversationNotFound):
            await database.conversations.rate(tenant, user, "v1", answer_id, Feedback(rating=Rating.BAD))
        with pytest.raises(ConversationNotFound):
            await database.runs.admit(in_conversation("v1", tenant=tenant, user=user), TERMS)
        assert await database.conversations.list(tenant, user) == []
    assert await texts(database, "v1") == ["one?", "one."]


async def test_a_run_cannot_join_a_conversation_that_is_missing(database: Database) -> None:
    new = replace(in_conversation("nowhere"), title="")
    with pytest.raises(ConversationNotFound):
        await database.runs.admit(new, TERMS)
    assert await database.runs.list("acme", "ann") == []


async def test_one_run_at_a_time_works_in_a_conversation(here: Replica, database: Database) -> None:
    journal = await opened(here, in_conversation("v1", run_id="r1"))
    with pytest.raises(ConversationBusy, match="run 'r1' is active in conversation 'v1'"):
        await database.runs.admit(in_conversation("v1"), TERMS)
    with pytest.raises(ConversationBusy):
        await database.conversations.delete("acme", "ann", "v1")
    assert (await database.conversations.get("acme", "ann", "v1")).active_run_id == "r1"
    assert (await database.conversations.list("acme", "ann"))[0].active_run_id == "r1"
    await journal.finish(completed())
    assert (await database.conversations.get("acme", "ann", "v1")).active_run_id == ""
    await database.runs.admit(in_conversation("v1"), TERMS)


async def test_of_many_messages_at_once_one_starts_a_run(database: Database) -> None:
    results = await asyncio.gather(
        *(database.runs.admit(in_conversation("v1"), TERMS) for _ in range(6)), return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in results) == ["Admission"] + ["ConversationBusy"] * 5
    assert len(await texts(database, "v1")) == 1


async def test_regenerating_supersedes_and_loses_nothing(here: Replica, database: Database) -> None:
    await turn(here, "v1", "one?", "one.")
    second = await turn(here, "v1", "two?", "two.")
    history = await database.conversations.history("acme", "ann", "v1")
    asked = history[2].message.message_id
    await turn(here, "v1", "two, edited?", "edited.", supersede_message_id=asked, run_id="again")
    assert await texts(database, "v1") == ["one?", "one.", "two, edited?", "edited."]
    everything = await database.conversations.everything("acme", "ann", "v1")
    assert [(s.message.text, s.superseded_by) for s in everything][2:4] == [("two?", "again"), ("two.", "again")]
    with pytest.raises(MessageNotFound):
        await database.runs.admit(in_conversation("v1", supersede_message_id=second), TERMS)


async def test_lists_page_by_activity_and_find_words(here: Replica, database: Database, clock: FakeClock) -> None:
    for n in range(5):
        clock.advance(1)
        await turn(here, f"v{n}", f"Question about Größe {n}", f"100% of {n}_x")
    conversations = database.conversations
    first = await conversations.list("acme", "ann", limit=2)
    assert [c.conversation_id for c in first] == ["v4", "v3"]
    second = await conversations.list("acme", "ann", limit=9, after=(first[-1].updated_at, first[-1].conversation_id))
    assert [c.conversation_id for c in second] == ["v2", "v1", "v0"]
    assert [c.conversation_id for c in await conversations.list("acme", "ann", query="GRÖSSE 3")] == ["v3"]
    assert [c.conversation_id for c in await conversations.list("acme", "ann", query="100% of 2_")] == ["v2"]
    assert await conversations.list("acme", "ann", query="100%%") == []
    assert len(await conversations.list("acme", "ann", query="a TALK")) == 5


async def test_text_that_no_database_can_hold_is_kept_as_well_as_can_be(here: Replica, database: Database) -> None:
    odd = "nul \0, lone \ud83d, pair \ud83d\ude00"
    mended = "nul \0, lone \ufffd, pair 😀"
    journal = await opened(here, in_conversation("v1", odd, question=odd, labels={"k": odd}))
    journal.delta(answer("half \ud83d"))
    journal.delta(answer("\ude00 whole"))
    journal.delta(answer("\udfff", "m2"))
    await journal.finish(RunFailed(reason="X", message=odd, retryable=False), messages=(said(odd, "a1"),))
    events = decoded(await here.read(journal.run_id))
    assert events == [
        answer("half 😀 whole"),
        answer("\ufffd", "m2"),
        RunFailed(reason="X", message=mended, retryable=False),
    ]
    assert await texts(database, "v1") == [mended, mended]
    conversations = database.conversations
    await conversations.rename("acme", "ann", "v1", odd)
    await conversations.rate("acme", "ann", "v1", "a1", Feedback(rating=Rating.GOOD, comment=odd))
    assert len(await conversations.list("acme", "ann", query=odd)) == 1


async def test_a_title_by_model_does_not_overwrite_the_users(here: Replica, database: Database) -> None:
    await turn(here, "v1", "one?", "one.")
    assert await database.conversations.rename("acme", "ann", "v1", "Mine")
    assert not await database.conversations.rename("acme", "ann", "v1", "The model's", only_from="A talk")
    assert (await database.conversations.get("acme", "ann", "v1")).title == "Mine"


async def test_deleting_removes_messages_and_leaves_the_runs(here: Replica, database: Database) -> None:
    await turn(here, "v1", "one?", "one.", run_id="r1")
    await database.conversations.delete("acme", "ann", "v1")
    with pytest.raises(ConversationNotFound):
        await database.conversations.history("acme", "ann", "v1")
    assert await here.read("r1") != []
    await turn(here, "v1", "anew?", "anew.")
    assert await texts(database, "v1") == ["anew?", "anew."]


async def test_an_answer_is_rated_and_rated_again(here: Replica, database: Database) -> None:
    answer_id = await turn(here, "v1", "one?", "one.")
    conversations = database.conversations
    await conversations.rate("acme", "ann", "v1", answer_id, Feedback(rating=Rating.BAD, comment="wrong"))
    await conversations.rate("acme", "ann", "v1", answer_id, Feedback(rating=Rating.GOOD))
    question, answered = await conversations.history("acme", "ann", "v1")
    assert (question.feedback, answered.feedback) == (None, Feedback(rating=Rating.GOOD))
    with pytest.raises(MessageNotFound):
        await conversations.rate("acme", "ann", "v1", question.message.message_id, Feedback(rating=Rating.GOOD))


# --- artifacts -----------------------------------------------------------------------------------------------------


def artifact(artifact_id: str, clock: FakeClock, seconds: float | None = None) -> OwnedArtifact:
    expires = None if seconds is None else clock.now() + timedelta(seconds=seconds)
    kept = Artifact(
        artifact_id=artifact_id, name="a.csv", media_type="text/csv", size=3, sha256="s" * 64, expires_at=expires
    )
    return OwnedArtifact(artifact=kept, tenant="acme", user="ann", run_id="r1")


async def test_an_artifact_is_its_owners_until_it_expires(database: Database, clock: FakeClock) -> None:
    await database.artifacts.add(artifact("a1", clock, 60))
    await database.artifacts.add(artifact("a2", clock))
    assert await database.artifacts.get("acme", "ann", "a1") == artifact("a1", clock, 60)
    for tenant, user in (("acme", "bob"), ("rival", "ann")):
        with pytest.raises(ArtifactNotFound):
            await database.artifacts.get(tenant, user, "a1")
    assert await database.artifacts.expired() == []
    clock.advance(60)
    with pytest.raises(ArtifactNotFound):
        await database.artifacts.get("acme", "ann", "a1")
    kept = await database.artifacts.of("acme", "ann", ["a2", "a1", "nowhere"])
    assert [owned.artifact.artifact_id for owned in kept] == ["a2"]
    assert await database.artifacts.expired() == ["a1"]
    await database.artifacts.remove(["a1"])
    assert await database.artifacts.expired() == []


# --- quotas --------------------------------------------------------------------------------------------------------


async def test_parallel_runs_never_overshoot_a_quota(database: Database) -> None:
    await database.usage.set_quota("acme", Quota(scope=QuotaScope.TENANT, runs=5))
    results = await asyncio.gather(
        *(database.runs.admit(new_run(user=f"u{n}"), TERMS) for n in range(20)), return_exceptions=True
    )
    assert sum(isinstance(result, QuotaExceeded) for result in results) == 15
    assert (await database.usage.consumed("acme", QuotaScope.TENANT)).runs == 5


async def test_tokens_are_reserved_then_settled(here: Replica, database: Database, clock: FakeClock) -> None:
    await database.usage.set_quota("acme", Quota(scope=QuotaScope.USER, tokens=1000))
    journal = await opened(here, new_run(reserved_tokens=800))
    with pytest.raises(QuotaExceeded, match=r"the user's quota of 1000 tokens in 24 hours is used up \(800\)"):
        await database.runs.admit(new_run(reserved_tokens=300), TERMS)
    await database.runs.admit(new_run(reserved_tokens=300, user="bob"), TERMS)
    clock.advance(3600)
    await journal.finish(completed(usage=Usage(input_tokens=150, output_tokens=50, cost_micros=9)))
    used = await database.usage.consumed("acme", QuotaScope.USER, "ann")
    assert (used.runs, used.tokens, used.cost_micros) == (1, 200, 9)
    await database.runs.admit(new_run(reserved_tokens=800), TERMS)
    with pytest.raises(QuotaExceeded) as raised:
        await database.runs.admit(new_run(reserved_tokens=1), TERMS)
    # The first run leaves the window 23 hours from now.
    assert raised.value.retry_after == pytest.approx(23 * 3600)
    clock.advance(23 * 3600 + 1)
    await database.runs.admit(new_run(reserved_tokens=100), TERMS)


async def test_an_own_quota_goes_before_the_scopes_default(database: Database) -> None:
    usage = database.usage
    await usage.set_quota("acme", Quota(scope=QuotaScope.KEY, runs=0))
    await usage.set_quota("acme", Quota(scope=QuotaScope.KEY, subject="k1", runs=1))
    await database.runs.admit(new_run(key_id="k1"), TERMS)
    with pytest.raises(QuotaExceeded, match="the key's quota of 1 runs"):
        await database.runs.admit(new_run(key_id="k1"), TERMS)
    with pytest.raises(QuotaExceeded, match="the key's quota of 0 runs"):
        await database.runs.admit(new_run(key_id="k2"), TERMS)
    await database.runs.admit(new_run(), TERMS)
    assert [(q.subject, q.runs) for q in await usage.quotas("acme")] == [("", 0), ("k1", 1)]
    await usage.set_quota("acme", Quota(scope=QuotaScope.KEY))
    await database.runs.admit(new_run(key_id="k2"), TERMS)
    assert await usage.quotas("rival") == []


async def test_a_joined_request_reserves_nothing_again(database: Database) -> None:
    await database.usage.set_quota("acme", Quota(scope=QuotaScope.TENANT, runs=1))
    await database.runs.admit(new_run(request_id="q"), TERMS)
    await database.runs.admit(new_run(request_id="q"), TERMS)
    assert (await database.usage.consumed("acme", QuotaScope.TENANT)).runs == 1


async def test_usage_is_told_by_day_user_and_model(here: Replica, database: Database, clock: FakeClock) -> None:
    since = clock.now()
    for user, model, hours in (("ann", "m1", 0), ("ann", "m1", 1), ("bob", "m2", 23)):
        clock.advance(hours * 3600)
        journal = await opened(here, new_run(user=user, model=model))
        await journal.finish(completed(usage=Usage(input_tokens=10, output_tokens=5, cost_micros=2)))
    days = await database.usage.by_day("acme", since=since)
    assert [(d.day.day, d.user, d.model, d.runs, d.input_tokens, d.cost_micros) for d in days] == [
        (1, "ann", "m1", 2, 20, 4),
        (2, "bob", "m2", 1, 10, 2),
    ]
    assert [d.user for d in await database.usage.by_day("acme", since=since, user="bob")] == ["bob"]
    assert await database.usage.forget(since + timedelta(hours=2)) == 2
    assert [d.user for d in await database.usage.by_day("acme", since=since)] == ["bob"]
