"""The group commit: pieces of many runs' journals in one transaction, each checked against its run's epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Update, bindparam, insert, select, update

from services.chassis.database import SqlConnection
from services.orchestrator.adapters.sql.conversations import append_messages
from services.orchestrator.adapters.sql.dialect import insert_new, lease, signal, upsert
from services.orchestrator.adapters.sql.rows import event_row, pending_json, usage_json
from services.orchestrator.adapters.sql.tables import checkpoints, conversations, events, runs, segments
from services.orchestrator.adapters.sql.usage import settle
from services.orchestrator.journal.ports import LeaseTerms, RunWrite, WriteOutcome, WriteResult

_FENCE = (
    select(
        runs.c.run_id,
        runs.c.owner,
        runs.c.epoch,
        runs.c.last_sequence,
        runs.c.cancel_requested_by,
        runs.c.conversation_id,
    )
    .where(runs.c.run_id.in_(bindparam("run_ids", expanding=True)))
    .order_by(runs.c.run_id)
    .with_for_update()
)
_INSERT_EVENTS = insert(events)
_EVENT = select(events.c.sequence).where(
    events.c.run_id == bindparam("run_id"), events.c.sequence == bindparam("sequence")
)
_KEEP_TOOL_MEMORY = (
    update(conversations)
    .where(conversations.c.conversation_id == bindparam("key"))
    .values(tool_memory=bindparam("new_tool_memory"))
)


@dataclass(slots=True)
class _Held:
    """A run's row under lock, and what this transaction has made of it."""

    row: Any
    owner: str
    last_sequence: int
    reserved_until: int = 0
    columns: dict[str, Any] = field(default_factory=dict)
    touched: bool = False
    # Whether an earlier try of this batch was committed after all, its outcome unknown.
    repeated: bool = False


async def write(
    connection: SqlConnection, batch: Sequence[RunWrite], terms: LeaseTerms, now: datetime
) -> list[WriteResult]:
    """Apply every piece that its owner may write. Contract: `RunStore.write`."""
    held = await _lock(connection, {piece.run_id for piece in batch})
    _find_repeated(held, batch)
    results: list[WriteResult] = []
    accepted: list[RunWrite] = []
    for piece in batch:
        run = held.get(piece.run_id)
        outcome = WriteOutcome.FENCED if run is None else await _judge(connection, run, piece)
        if outcome is None:
            accepted.append(piece)
            assert run is not None
            _note(run, piece, now)
            outcome = WriteOutcome.WRITTEN
        results.append(WriteResult(outcome=outcome, cancel_requested_by=run.row.cancel_requested_by if run else ""))
    refused = [p for p, r in zip(batch, results, strict=True) if r.outcome is WriteOutcome.CANCEL_REQUESTED]
    await _insert_segments(connection, [*accepted, *refused])
    await _insert_events(connection, accepted)
    await _save_checkpoints(connection, accepted, now)
    for piece in accepted:
        if piece.ending is not None:
            await _end(connection, held[piece.run_id].row, piece, now)
    await _update_rows(connection, [run for run in held.values() if run.touched], terms, now)
    await signal(connection, [run_id for run_id, run in held.items() if run.touched])
    return results


async def _lock(connection: SqlConnection, run_ids: set[str]) -> dict[str, _Held]:
    """Lock the rows in one order, so that two batches never wait for each other."""
    rows = await connection.execute(_FENCE, {"run_ids": list(run_ids)})
    return {row.run_id: _Held(row, row.owner, row.last_sequence) for row in rows}


def _find_repeated(held: dict[str, _Held], batch: Sequence[RunWrite]) -> None:
    """Mark the runs whose part of this batch is in the database: only their epoch moves `last_sequence`."""
    for piece in batch:
        run = held.get(piece.run_id)
        if run is not None and piece.events and run.row.epoch == piece.epoch:
            run.repeated = run.repeated or run.row.last_sequence >= piece.last_sequence


async def _judge(connection: SqlConnection, run: _Held, piece: RunWrite) -> WriteOutcome | None:
    """Return why the piece is not to be written, or None when it is."""
    if run.row.epoch != piece.epoch:
        return WriteOutcome.FENCED
    if run.repeated:
        # Not even a checkpoint alone is written again: a later piece may have replaced it.
        return await _earlier_outcome(connection, piece) if piece.events else WriteOutcome.WRITTEN
    if run.owner != piece.owner:
        handed_back_before = not run.owner and piece.release and not piece.events
        return WriteOutcome.WRITTEN if handed_back_before else WriteOutcome.FENCED
    if piece.guarded and run.row.cancel_requested_by:
        return WriteOutcome.CANCEL_REQUESTED
    return None


async def _earlier_outcome(connection: SqlConnection, piece: RunWrite) -> WriteOutcome:
    found = await connection.scalar(_EVENT, {"run_id": piece.run_id, "sequence": piece.last_sequence})
    if found is not None:
        return WriteOutcome.WRITTEN
    # Only two kinds were left out: what a cancellation guards against, and what came after the run was handed back.
    return WriteOutcome.CANCEL_REQUESTED if piece.guarded else WriteOutcome.FENCED


def _note(run: _Held, piece: RunWrite, now: datetime) -> None:
    """Fold the piece into what the row will be."""
    run.touched = True
    run.last_sequence = max(run.last_sequence, piece.last_sequence)
    run.reserved_until = max(run.reserved_until, piece.reserved_until)
    if piece.checkpoint is not None:
        run.columns["min_reader"] = piece.checkpoint.min_reader
    if piece.state is not None:
        run.columns["state"] = int(piece.state)
    if piece.pending is not None:
        run.columns["pending"] = pending_json(piece.pending)
    if piece.usage is not None:
        run.columns["usage"] = usage_json(piece.usage)
    if piece.ending is not None:
        run.columns |= {"finished_at": now, "failure": piece.ending.failure, "pending": []}
    if piece.release:
        run.owner = ""
        # Nothing above was ever shown, so the next owner goes on without a hole.
        run.columns |= {"owner": "", "lease_until": 0, "reserved_until": run.last_sequence}


async def _insert_events(connection: SqlConnection, accepted: Sequence[RunWrite]) -> None:
    rows = [event_row(piece.run_id, event) for piece in accepted for event in piece.events]
    if rows:
        await connection.execute(_INSERT_EVENTS, rows)


async def _insert_segments(connection: SqlConnection, pieces: Sequence[RunWrite]) -> None:
    rows = [
        {"run_id": piece.run_id, "digest": s.digest, "kind": s.kind, "content": s.content}
        for piece in pieces
        if piece.checkpoint is not None
        for s in piece.checkpoint.new_segments
    ]
    if rows:
        await connection.execute(insert_new(connection, segments), rows)


async def _save_checkpoints(connection: SqlConnection, accepted: Sequence[RunWrite], now: datetime) -> None:
    last = {
        piece.run_id: {"run_id": piece.run_id, "head": piece.checkpoint.head, "saved_at": now}
        for piece in accepted
        if piece.checkpoint is not None
    }
    if last:
        await connection.execute(
            upsert(connection, checkpoints, ("run_id",), ("head", "saved_at")), list(last.values())
        )


async def _end(connection: SqlConnection, row: Any, piece: RunWrite, now: datetime) -> None:
    """Write the conversation's part of a run that ends, and settle its use."""
    assert piece.ending is not None
    if piece.usage is not None:
        await settle(connection, piece.run_id, piece.usage)
    if not row.conversation_id:
        return
    exists = await append_messages(connection, row.conversation_id, piece.run_id, piece.ending.messages, now)
    if exists and piece.ending.tool_memory is not None:
        await connection.execute(
            _KEEP_TOOL_MEMORY, {"key": row.conversation_id, "new_tool_memory": piece.ending.tool_memory}
        )


async def _update_rows(connection: SqlConnection, touched: Sequence[_Held], terms: LeaseTerms, now: datetime) -> None:
    """Move the rows on and extend their leases: one statement for all whose same columns change."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for run in touched:
        columns: dict[str, Any] = {
            "last_sequence": run.last_sequence,
            "reserved_until": run.reserved_until,
            "updated_at": now,
        }
        columns |= run.columns
        row = {"key": run.row.run_id} | {f"new_{name}": value for name, value in columns.items()}
        if "lease_until" not in columns:
            row["lease_ms"] = terms.milliseconds
        alike.setdefault(tuple(sorted(columns)), []).append(row)
    for names, rows in alike.items():
        await connection.execute(_row_update(names), rows)


@lru_cache
def _row_update(names: tuple[str, ...]) -> Update:
    changed: dict[str, Any] = {name: bindparam(f"new_{name}", type_=runs.c[name].type) for name in names}
    return update(runs).where(runs.c.run_id == bindparam("key")).values({"lease_until": lease(), **changed})
