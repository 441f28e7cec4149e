"""Runs, their events and saved state in SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Integer, bindparam, delete, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.clock import Clock
from services.chassis.database import SqlConnection, aside
from services.orchestrator.adapters.sql import admission, writing
from services.orchestrator.adapters.sql.dialect import OWNER_PREFIX, DatabaseNow, Instant, before, lease, signal
from services.orchestrator.adapters.sql.rows import TERMINAL_STATES, run_from_row
from services.orchestrator.adapters.sql.tables import checkpoints, conversations, events, runs, segments
from services.orchestrator.adapters.sql.transactions import looking
from services.orchestrator.adapters.sql.transactions import writing as changing
from services.orchestrator.codec_events import stamped
from services.orchestrator.domain.events import StampedEvent
from services.orchestrator.domain.run import EventsPruned, NewRun, Run, RunNotFound, RunState
from services.orchestrator.journal.ports import (
    Admission,
    LeaseTerms,
    Ownership,
    Renewal,
    RunCursor,
    RunStatus,
    RunWrite,
    SavedState,
    WriteResult,
)

_UNOWNED = (runs.c.owner == "") | (runs.c.lease_until <= DatabaseNow())
_RUN = select(runs).where(runs.c.run_id == bindparam("run_id"))
_RUN_OF_TENANT = _RUN.where(runs.c.tenant == bindparam("tenant"))
_STATUS = select(runs.c.state, runs.c.last_sequence, runs.c.oldest_sequence).where(runs.c.run_id == bindparam("run_id"))
_HEAD = (
    select(checkpoints.c.head, runs.c.epoch, conversations.c.tool_memory)
    .join(runs, runs.c.run_id == checkpoints.c.run_id)
    .outerjoin(conversations, conversations.c.conversation_id == runs.c.conversation_id)
    .where(checkpoints.c.run_id == bindparam("run_id"))
)
_SEGMENTS = select(segments.c.digest, segments.c.content).where(segments.c.run_id == bindparam("run_id"))
_LATER = (events.c.run_id == bindparam("run_id"), events.c.sequence > bindparam("after"))
_SIZES = select(events.c.sequence, events.c.size).where(*_LATER).order_by(events.c.sequence).limit(bindparam("most"))
_PAYLOADS = (
    select(events.c.sequence, events.c.kind, events.c.payload)
    .where(*_LATER, events.c.sequence <= bindparam("last"))
    .order_by(events.c.sequence)
)
_TO_CLAIM = select(runs, _UNOWNED.label("unowned")).where(runs.c.run_id == bindparam("run_id")).with_for_update()
_CLAIM = (
    update(runs)
    .where(runs.c.run_id == bindparam("key"))
    .values(
        owner=bindparam("by"),
        epoch=bindparam("new_epoch"),
        attempt=bindparam("new_attempt"),
        reserved_until=bindparam("reserved"),
        lease_until=lease(),
        updated_at=bindparam("now", type_=Instant),
    )
    .returning(runs)
)
_PARKED = (
    select(runs)
    .where(runs.c.state == int(RunState.PAUSED), _UNOWNED, runs.c.run_id > bindparam("after"))
    .order_by(runs.c.run_id)
    .limit(bindparam("most", type_=Integer))
)
_ORPHANS = (
    select(runs)
    .where(
        runs.c.state.in_((int(RunState.QUEUED), int(RunState.RUNNING))),
        _UNOWNED,
        runs.c.min_reader <= bindparam("reader"),
    )
    .order_by(runs.c.lease_until, runs.c.run_id)
    .limit(bindparam("most", type_=Integer))
)
_RENEW = update(runs).where(runs.c.run_id.in_(bindparam("run_ids", expanding=True))).values(lease_until=lease())


class SqlRunStore:
    """`RunStore` over SQLAlchemy Core."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    # --- admission and reading ---------------------------------------------------------------------------------

    async def admit(self, new: NewRun, terms: LeaseTerms) -> Admission:
        # Nothing irreversible happens before a later commit of the run, which brings this one to the disk.
        async with changing(self._engine, relaxed=True) as connection:
            return await admission.admit(connection, new, terms, self._clock.now())

    async def get(self, tenant: str, run_id: str) -> Run:
        async with looking(self._engine) as connection:
            row = (await connection.execute(_RUN_OF_TENANT, {"run_id": run_id, "tenant": tenant})).one_or_none()
        if row is None:
            raise RunNotFound(run_id)
        return run_from_row(row)

    async def find(self, run_id: str) -> Run:
        """Return the run whatever its tenant, for work that no caller asked for; raise RunNotFound."""
        async with looking(self._engine) as connection:
            row = (await connection.execute(_RUN, {"run_id": run_id})).one_or_none()
        if row is None:
            raise RunNotFound(run_id)
        return run_from_row(row)

    async def list(
        self,
        tenant: str,
        user: str,
        *,
        states: Sequence[RunState] = (),
        conversation_id: str = "",
        limit: int = 50,
        after: RunCursor | None = None,
    ) -> Sequence[Run]:
        statement = (
            select(runs)
            .where(runs.c.tenant == tenant, runs.c.user_id == user)
            .order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
            .limit(limit)
        )
        if states:
            statement = statement.where(runs.c.state.in_([int(state) for state in states]))
        if conversation_id:
            statement = statement.where(runs.c.conversation_id == conversation_id)
        if after is not None:
            statement = statement.where(before(runs.c.created_at, after.created_at, runs.c.run_id, after.run_id))
        return await self._runs(statement)

    async def parked(self, *, limit: int = 100, after: str = "") -> Sequence[Run]:
        return await self._runs(_PARKED, {"after": after, "most": limit})

    async def orphans(self, *, limit: int = 100, reader: int = 1) -> Sequence[Run]:
        return await self._runs(_ORPHANS, {"reader": reader, "most": limit})

    async def _runs(self, statement: Any, parameters: Mapping[str, Any] | None = None) -> Sequence[Run]:
        async with looking(self._engine) as connection:
            return [run_from_row(row) for row in await connection.execute(statement, parameters)]

    async def load_checkpoint(self, run_id: str) -> SavedState:
        async with looking(self._engine) as connection:
            saved = (await connection.execute(_HEAD, {"run_id": run_id})).one_or_none()
            if saved is None:
                raise RunNotFound(run_id)
            rows = await connection.execute(_SEGMENTS, {"run_id": run_id})
            segments_by_digest = {row.digest: row.content for row in rows}
        return SavedState(
            head=saved.head, segments=segments_by_digest, epoch=saved.epoch, tool_memory=saved.tool_memory or b""
        )

    # --- events ------------------------------------------------------------------------------------------------

    async def status(self, run_id: str) -> RunStatus:
        async with looking(self._engine) as connection:
            return await _status(connection, run_id)

    async def events(self, run_id: str, after: int, *, limit: int, max_bytes: int) -> Sequence[StampedEvent]:
        async with looking(self._engine) as connection:
            # Sizes first, so that a page of large events is never in memory.
            sizes = (await connection.execute(_SIZES, {"run_id": run_id, "after": after, "most": limit})).all()
            status = await _status(connection, run_id)
            if after < status.oldest_sequence - 1:
                raise EventsPruned(run_id, after, status.oldest_sequence)
            last = _last_that_fits(sizes, max_bytes)
            if last is None:
                return []
            rows = (await connection.execute(_PAYLOADS, {"run_id": run_id, "after": after, "last": last})).all()
            if not rows or rows[0].sequence != sizes[0].sequence:
                # Pruned between the two statements; PostgreSQL shows each of them what is committed by then.
                raise EventsPruned(run_id, after, (await _status(connection, run_id)).oldest_sequence)
            return [stamped(row.sequence, row.kind, row.payload) for row in rows]

    # --- ownership ---------------------------------------------------------------------------------------------

    async def claim(self, run_id: str, terms: LeaseTerms) -> Ownership | None:
        async with changing(self._engine) as connection:
            row = (await connection.execute(_TO_CLAIM, {"run_id": run_id})).one_or_none()
            if row is None or row.state in TERMINAL_STATES or not row.unowned or row.min_reader > terms.reader:
                return None
            taken_over = row.owner != ""
            claimed = await connection.execute(
                _CLAIM,
                {
                    "key": run_id,
                    "by": terms.owner,
                    "new_epoch": row.epoch + 1,
                    "new_attempt": row.attempt + int(taken_over),
                    "reserved": row.reserved_until + terms.block,
                    "lease_ms": terms.milliseconds,
                    "now": self._clock.now(),
                },
            )
            owned = claimed.one()
            await signal(connection, [OWNER_PREFIX + run_id])
        return Ownership(
            run=run_from_row(owned),
            owner=terms.owner,
            epoch=owned.epoch,
            next_sequence=row.reserved_until + 1,
            reserved_until=owned.reserved_until,
            taken_over=taken_over,
        )

    async def renew(self, held: Mapping[str, int], terms: LeaseTerms) -> Sequence[Renewal]:
        async with changing(self._engine, urgent=True) as connection:
            rows = await connection.execute(
                select(runs.c.run_id, runs.c.epoch, runs.c.cancel_requested_by)
                .where(runs.c.run_id.in_(held), runs.c.owner == terms.owner)
                .order_by(runs.c.run_id)
                .with_for_update()
            )
            kept = [row for row in rows if row.epoch == held[row.run_id]]
            await connection.execute(_RENEW, {"run_ids": [row.run_id for row in kept], "lease_ms": terms.milliseconds})
        return [Renewal(run_id=r.run_id, epoch=r.epoch, cancel_requested_by=r.cancel_requested_by) for r in kept]

    async def release(self, run_id: str, owner: str, epoch: int) -> bool:
        async with changing(self._engine) as connection:
            result = await connection.execute(
                update(runs)
                .where(runs.c.run_id == run_id, runs.c.owner == owner, runs.c.epoch == epoch)
                .values(owner="", lease_until=0, updated_at=self._clock.now())
            )
            await signal(connection, [run_id])
            return result.rowcount == 1

    async def disown_all(self) -> None:
        """End every lease and every epoch. Only for a process that holds the database alone, before it works."""
        async with changing(self._engine) as connection:
            await connection.execute(
                update(runs).where(runs.c.state.not_in(TERMINAL_STATES)).values(epoch=runs.c.epoch + 1, lease_until=0)
            )

    async def write(self, batch: Sequence[RunWrite], terms: LeaseTerms) -> Sequence[WriteResult]:
        relaxed = not any(piece.awaited for piece in batch)
        async with changing(self._engine, urgent=True, relaxed=relaxed) as connection:
            return await writing.write(connection, batch, terms, self._clock.now())

    async def request_cancel(self, tenant: str, run_id: str, by: str) -> Run:
        here = (runs.c.run_id == run_id) & (runs.c.tenant == tenant)
        async with changing(self._engine) as connection:
            asked = await connection.execute(
                update(runs)
                .where(here, runs.c.state.not_in(TERMINAL_STATES), runs.c.cancel_requested_by == "")
                .values(cancel_requested_by=by, updated_at=self._clock.now())
            )
            if asked.rowcount:
                await signal(connection, [OWNER_PREFIX + run_id])
            row = (await connection.execute(select(runs).where(here))).one_or_none()
        if row is None:
            raise RunNotFound(run_id)
        return run_from_row(row)

    # --- retention ---------------------------------------------------------------------------------------------

    async def prune_events(self, finished_before: datetime, *, limit: int = 100) -> int:
        ended = select(runs.c.run_id, runs.c.last_sequence).where(
            runs.c.finished_at < finished_before, runs.c.pruned.is_(False)
        )
        async with changing(aside(self._engine)) as connection:
            rows = (await connection.execute(ended.limit(limit).with_for_update(skip_locked=True))).all()
            for row in rows:
                await connection.execute(
                    delete(events).where(events.c.run_id == row.run_id, events.c.sequence < row.last_sequence)
                )
                await _forget_state(connection, row.run_id)
                await connection.execute(
                    update(runs)
                    .where(runs.c.run_id == row.run_id)
                    .values(pruned=True, oldest_sequence=row.last_sequence)
                )
            return len(rows)

    async def delete_runs(self, finished_before: datetime, *, limit: int = 100) -> int:
        ended = select(runs.c.run_id).where(runs.c.finished_at < finished_before)
        async with changing(aside(self._engine)) as connection:
            rows = (await connection.execute(ended.limit(limit).with_for_update(skip_locked=True))).all()
            for row in rows:
                await connection.execute(delete(events).where(events.c.run_id == row.run_id))
                await _forget_state(connection, row.run_id)
                await connection.execute(delete(runs).where(runs.c.run_id == row.run_id))
            return len(rows)


async def _status(connection: SqlConnection, run_id: str) -> RunStatus:
    row = (await connection.execute(_STATUS, {"run_id": run_id})).one_or_none()
    if row is None:
        raise RunNotFound(run_id)
    return RunStatus(state=RunState(row.state), last_sequence=row.last_sequence, oldest_sequence=row.oldest_sequence)


async def _forget_state(connection: SqlConnection, run_id: str) -> None:
    for table in (checkpoints, segments):
        await connection.execute(delete(table).where(table.c.run_id == run_id))


def _last_that_fits(sizes: Sequence[Any], max_bytes: int) -> int | None:
    """Return the last sequence of a page that stays within the bound; the first event always fits."""
    last, total = None, 0
    for row in sizes:
        total += row.size
        if last is not None and total > max_bytes:
            break
        last = row.sequence
    return last
