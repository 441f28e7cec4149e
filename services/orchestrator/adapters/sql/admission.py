"""Admitting a run: everything it needs from its first moment, in one transaction."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.sql.dml import Insert

from services.chassis.database import SqlConnection
from services.orchestrator.adapters.sql.conversations import (
    active_run,
    append_messages,
    insert_messages,
    lock_conversation,
)
from services.orchestrator.adapters.sql.dialect import insert_new, insert_new_into, lease
from services.orchestrator.adapters.sql.rows import event_row, new_run_row, run_from_row
from services.orchestrator.adapters.sql.tables import checkpoints, conversations, events, messages, runs, segments
from services.orchestrator.adapters.sql.usage import reserve
from services.orchestrator.domain.conversation import ConversationBusy, ConversationNotFound, MessageNotFound
from services.orchestrator.domain.run import NewRun, RequestIdReused, Run
from services.orchestrator.domain.text import without_nul
from services.orchestrator.journal.ports import Admission, LeaseTerms, Ownership, StoreUnavailable

_INSERT_CHECKPOINT = insert(checkpoints)
_INSERT_EVENTS = insert(events)
_OF_REQUEST = select(runs).where(
    runs.c.tenant == bindparam("tenant"),
    runs.c.user_id == bindparam("user"),
    runs.c.request_id == bindparam("request_id"),
)


async def admit(connection: SqlConnection, new: NewRun, terms: LeaseTerms, now: datetime) -> Admission:
    """Insert the run, or find the one its request started. Contract: `RunStore.admit`."""
    run = new.run
    row = new_run_row(new, terms, now)
    # The second of two copies of one request waits here for the first to be admitted or refused.
    inserting = _insert_run(connection.dialect.name)
    made = await connection.execute(inserting, {**row, "lease_ms": terms.milliseconds})
    if not made.rowcount:
        existing = await _run_of_request(connection, run)
        if existing is None:
            raise StoreUnavailable("the run of this request was just deleted; try again", retry_after=0.1)
        if existing.request_digest != new.request_digest:
            raise RequestIdReused(run.request_id, existing.run_id)
        return Admission(run=run_from_row(existing), ownership=None)
    await reserve(connection, new, now)
    tool_memory = await _join_conversation(connection, new, now) if run.conversation_id else b""
    await connection.execute(_INSERT_CHECKPOINT, {"run_id": run.run_id, "head": new.checkpoint.head, "saved_at": now})
    if new.checkpoint.new_segments:
        await connection.execute(
            insert_new(connection, segments),
            [
                {"run_id": run.run_id, "digest": s.digest, "kind": s.kind, "content": s.content}
                for s in new.checkpoint.new_segments
            ],
        )
    if new.events:
        await connection.execute(_INSERT_EVENTS, [event_row(run.run_id, event) for event in new.events])
    # What the row says, without reading it back.
    admitted = replace(
        run, question=row["question"], labels=row["labels"], updated_at=now, last_sequence=row["last_sequence"]
    )
    ownership = Ownership(
        run=admitted,
        owner=terms.owner,
        epoch=1,
        next_sequence=len(new.events) + 1,
        reserved_until=terms.block,
        taken_over=False,
    )
    return Admission(run=admitted, ownership=ownership, tool_memory=tool_memory)


@lru_cache
def _insert_run(dialect: str) -> Insert:
    return insert_new_into(dialect, runs).values(lease_until=lease())


async def _run_of_request(connection: SqlConnection, run: Run) -> Any:
    request = {"tenant": run.tenant, "user": run.user, "request_id": run.request_id}
    return (await connection.execute(_OF_REQUEST, request)).one_or_none()


async def _join_conversation(connection: SqlConnection, new: NewRun, now: datetime) -> bytes:
    """Make or check the conversation, supersede what is asked for, append the message; return the tool memory."""
    run = new.run
    new_messages = (new.user_message,) if new.user_message else ()
    if title := without_nul(new.title):
        made = await connection.execute(
            insert_new(connection, conversations),
            {
                "conversation_id": run.conversation_id,
                "tenant": run.tenant,
                "user_id": run.user,
                "title": title,
                "title_search": title.casefold(),
                "created_at": now,
                "updated_at": now,
                "next_position": 1 + len(new_messages),
                "tool_memory": b"",
            },
        )
        if made.rowcount and not new.supersede_message_id:  # nobody else knows it yet
            await insert_messages(connection, run.conversation_id, 1, run.run_id, new_messages)
            return b""
    conversation = await lock_conversation(connection, run.conversation_id)
    if conversation is None or (conversation.tenant, conversation.user_id) != (run.tenant, run.user):
        raise ConversationNotFound(run.conversation_id)
    if busy := await active_run(connection, run.conversation_id, beside=run.run_id):
        raise ConversationBusy(run.conversation_id, busy)
    if new.supersede_message_id:
        await _supersede(connection, run, new.supersede_message_id)
    await append_messages(connection, run.conversation_id, run.run_id, new_messages, now)
    memory: bytes = conversation.tool_memory
    return memory


async def _supersede(connection: SqlConnection, run: Run, message_id: str) -> None:
    """Mark the message and all in force after it as replaced by this run. Nothing is lost."""
    here = messages.c.conversation_id == run.conversation_id
    in_force = messages.c.superseded_by == ""
    position = await connection.scalar(
        select(messages.c.position).where(here, in_force, messages.c.message_id == message_id)
    )
    if position is None:
        raise MessageNotFound(message_id)
    await connection.execute(
        update(messages).where(here, in_force, messages.c.position >= position).values(superseded_by=run.run_id)
    )
