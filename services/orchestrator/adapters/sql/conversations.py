"""Conversations and messages: rows that outlive the runs which wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Integer, bindparam, delete, exists, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.clock import Clock
from services.chassis.database import SqlConnection, aside
from services.orchestrator.adapters.sql.dialect import Instant, before
from services.orchestrator.adapters.sql.rows import (
    TERMINAL_STATES,
    conversation_from_row,
    message_from_row,
    message_row,
)
from services.orchestrator.adapters.sql.tables import conversations, messages, runs
from services.orchestrator.adapters.sql.transactions import looking, writing
from services.orchestrator.domain.conversation import (
    Conversation,
    ConversationBusy,
    ConversationNotFound,
    Feedback,
    MessageNotFound,
    StoredMessage,
)
from services.orchestrator.domain.messages import Message, Role
from services.orchestrator.domain.text import without_nul

_IN_FORCE = messages.c.superseded_by == ""
_CONVERSATION = select(conversations).where(conversations.c.conversation_id == bindparam("conversation_id"))
_LOCK = _CONVERSATION.with_for_update()
_OWNED = _CONVERSATION.where(
    conversations.c.tenant == bindparam("tenant"), conversations.c.user_id == bindparam("user")
)
_ACTIVE_RUN = (
    select(runs.c.run_id)
    .where(
        runs.c.conversation_id == bindparam("conversation_id"),
        runs.c.state.not_in(TERMINAL_STATES),
        runs.c.run_id != bindparam("beside"),
    )
    .limit(1)
)
_INSERT_MESSAGES = insert(messages)
_MOVE_ON = (
    update(conversations)
    .where(conversations.c.conversation_id == bindparam("key"))
    .values(
        next_position=conversations.c.next_position + bindparam("more", type_=Integer),
        updated_at=bindparam("now", type_=Instant),
    )
    .returning(conversations.c.next_position)
)


async def lock_conversation(connection: SqlConnection, conversation_id: str) -> Any:
    """Return the row, locked until the transaction ends."""
    return (await connection.execute(_LOCK, {"conversation_id": conversation_id})).one_or_none()


async def active_run(connection: SqlConnection, conversation_id: str, *, beside: str = "") -> str:
    """Return the run that works or waits in the conversation, `beside` apart, or an empty string."""
    return await connection.scalar(_ACTIVE_RUN, {"conversation_id": conversation_id, "beside": beside}) or ""


async def insert_messages(
    connection: SqlConnection, conversation_id: str, position: int, run_id: str, new: Sequence[Message]
) -> None:
    """Add messages from a position on, which whoever calls keeps in the conversation's row."""
    if new:
        rows = [message_row(conversation_id, place, run_id, message) for place, message in enumerate(new, position)]
        await connection.execute(_INSERT_MESSAGES, rows)


async def append_messages(
    connection: SqlConnection, conversation_id: str, run_id: str, new: Sequence[Message], now: datetime
) -> bool:
    """Add messages at the end of a conversation, which is locked then; return whether it exists."""
    position = await connection.scalar(_MOVE_ON, {"key": conversation_id, "more": len(new), "now": now})
    if position is None:
        return False
    await insert_messages(connection, conversation_id, position - len(new), run_id, new)
    return True


class SqlConversations:
    """Conversations of users, read and tended. Writing messages belongs to the runs' transactions."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def get(self, tenant: str, user: str, conversation_id: str) -> Conversation:
        """Return the conversation, or raise ConversationNotFound when it is missing or another's."""
        async with looking(self._engine) as connection:
            row = await _owned(connection, tenant, user, conversation_id)
            return conversation_from_row(row, await active_run(connection, conversation_id))

    async def list(
        self,
        tenant: str,
        user: str,
        *,
        query: str = "",
        limit: int = 50,
        after: tuple[datetime, str] | None = None,
    ) -> Sequence[Conversation]:
        """Return conversations, newest activity first, those after (updated_at, conversation id) of the last row.

        `query` keeps those whose title or messages in force contain it, whatever its case.
        """
        statement = (
            select(conversations)
            .where(conversations.c.tenant == tenant, conversations.c.user_id == user)
            .order_by(conversations.c.updated_at.desc(), conversations.c.conversation_id.desc())
            .limit(limit)
        )
        if after is not None:
            statement = statement.where(
                before(conversations.c.updated_at, after[0], conversations.c.conversation_id, after[1])
            )
        if query := without_nul(query).casefold():
            said = exists().where(
                messages.c.conversation_id == conversations.c.conversation_id,
                _IN_FORCE,
                messages.c.role.in_((int(Role.USER), int(Role.ASSISTANT))),
                messages.c.search.contains(query, autoescape=True),
            )
            statement = statement.where(or_(conversations.c.title_search.contains(query, autoescape=True), said))
        async with looking(aside(self._engine)) as connection:
            rows = (await connection.execute(statement)).all()
            found = [row.conversation_id for row in rows]
            busy = await connection.execute(
                select(runs.c.conversation_id, runs.c.run_id).where(
                    runs.c.conversation_id.in_(found), runs.c.state.not_in(TERMINAL_STATES)
                )
            )
            active: dict[str, str] = {row.conversation_id: row.run_id for row in busy}
            return [conversation_from_row(row, active.get(row.conversation_id, "")) for row in rows]

    async def history(
        self, tenant: str, user: str, conversation_id: str, *, limit: int = 500, before: int | None = None
    ) -> Sequence[StoredMessage]:
        """Return the newest messages in force, oldest of them first; those before a position when given."""
        statement = select(messages).where(messages.c.conversation_id == conversation_id, _IN_FORCE)
        if before is not None:
            statement = statement.where(messages.c.position < before)
        statement = statement.order_by(messages.c.position.desc()).limit(limit)
        async with looking(self._engine) as connection:
            await _owned(connection, tenant, user, conversation_id)
            return [message_from_row(row) for row in reversed((await connection.execute(statement)).all())]

    async def everything(self, tenant: str, user: str, conversation_id: str) -> Sequence[StoredMessage]:
        """Return all messages, superseded ones too, in order: for export."""
        statement = select(messages).where(messages.c.conversation_id == conversation_id).order_by(messages.c.position)
        async with looking(aside(self._engine)) as connection:
            await _owned(connection, tenant, user, conversation_id)
            return [message_from_row(row) for row in await connection.execute(statement)]

    async def rename(self, tenant: str, user: str, conversation_id: str, title: str, *, only_from: str = "") -> bool:
        """Give a new title; with `only_from`, only while the title still is that one. Return whether it changed."""
        statement = update(conversations).where(conversations.c.conversation_id == conversation_id)
        if only_from:
            statement = statement.where(conversations.c.title == only_from)
        title = without_nul(title)
        async with writing(self._engine) as connection:
            await _owned(connection, tenant, user, conversation_id)
            result = await connection.execute(statement.values(title=title, title_search=title.casefold()))
            return result.rowcount == 1

    async def delete(self, tenant: str, user: str, conversation_id: str) -> None:
        """Delete the conversation and its messages; raise ConversationBusy while a run works or waits in it.

        Runs that wrote it stay, with their own retention.
        """
        async with writing(self._engine) as connection:
            await _owned(connection, tenant, user, conversation_id)
            # The lock keeps a new run from being admitted between the check and the end of this transaction.
            await lock_conversation(connection, conversation_id)
            if busy := await active_run(connection, conversation_id):
                raise ConversationBusy(conversation_id, busy)
            await connection.execute(delete(messages).where(messages.c.conversation_id == conversation_id))
            await connection.execute(delete(conversations).where(conversations.c.conversation_id == conversation_id))

    async def rate(self, tenant: str, user: str, conversation_id: str, message_id: str, feedback: Feedback) -> None:
        """Keep the user's judgement of one answer, in place of an earlier one; raise MessageNotFound."""
        async with writing(self._engine) as connection:
            await _owned(connection, tenant, user, conversation_id)
            result = await connection.execute(
                update(messages)
                .where(
                    messages.c.conversation_id == conversation_id,
                    messages.c.message_id == message_id,
                    messages.c.role == int(Role.ASSISTANT),
                )
                .values(rating=int(feedback.rating), comment=without_nul(feedback.comment))
            )
            if result.rowcount != 1:
                raise MessageNotFound(message_id)


async def _owned(connection: SqlConnection, tenant: str, user: str, conversation_id: str) -> Any:
    row = (
        await connection.execute(_OWNED, {"conversation_id": conversation_id, "tenant": tenant, "user": user})
    ).one_or_none()
    if row is None:
        raise ConversationNotFound(conversation_id)
    return row
