"""Opening the orchestrator's database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from services.chassis.clock import Clock
from services.chassis.database import migrate, open_engine
from services.chassis.errors import NotConfigured
from services.orchestrator.adapters.sql.artifacts import SqlArtifactRecords
from services.orchestrator.adapters.sql.conversations import SqlConversations
from services.orchestrator.adapters.sql.exclusive import ExclusiveFile
from services.orchestrator.adapters.sql.runs import SqlRunStore
from services.orchestrator.adapters.sql.signals import NoSignals
from services.orchestrator.adapters.sql.standing import SqlStanding
from services.orchestrator.adapters.sql.usage import SqlUsage
from services.orchestrator.journal.ports import Signals

# An owner that freezes inside a transaction keeps its rows locked, and nobody could take its runs over. PostgreSQL ends
# such a session after this time; a living process is never idle that long. Nobody waits longer for a lock than LOCK.
IDLE_IN_TRANSACTION = "1500ms"
LOCK = "5s"

MIGRATIONS = "services.orchestrator:migrations"


class Database:
    """The stores over one engine. Make it with `open`."""

    def __init__(self, engine: AsyncEngine, clock: Clock, signals: Signals, lock: ExclusiveFile | None) -> None:
        self.engine = engine
        self.runs = SqlRunStore(engine, clock)
        self.conversations = SqlConversations(engine, clock)
        self.artifacts = SqlArtifactRecords(engine, clock)
        self.usage = SqlUsage(engine, clock)
        self.standing = SqlStanding(engine, clock)
        self.signals = signals
        self._lock = lock

    @classmethod
    async def open(cls, url: str, clock: Clock) -> Database:
        """Open and migrate the database at `url`.

        A SQLite file is held alone while it is open, or DatabaseHeld is raised; then every run left by the previous
        process is an orphan and its writes are fenced.
        """
        parsed = make_url(url)
        lock = None
        if parsed.get_backend_name() == "sqlite":
            if not parsed.database or ":memory:" in parsed.database:
                raise NotConfigured(f"'{url}' is no file; runs must outlive the process, so name a file or PostgreSQL")
            lock = ExclusiveFile(Path(parsed.database))
            lock.acquire()
        engine = open_engine(url)
        signals: Signals = NoSignals()
        if lock is None:
            # The driver is loaded by those who use it.
            from services.orchestrator.adapters.sql.postgres_signals import PostgresSignals

            signals = PostgresSignals(engine)
            event.listen(engine.sync_engine, "connect", _bound_transactions)
        try:
            await migrate(engine, MIGRATIONS)
            database = cls(engine, clock, signals, lock)
            if lock is not None:
                await database.runs.disown_all()
        except BaseException:
            await engine.dispose()
            if lock is not None:
                lock.release()
            raise
        return database

    async def close(self) -> None:
        """Close every connection and give the file back."""
        await self.engine.dispose()
        if self._lock is not None:
            self._lock.release()


def _bound_transactions(connection: Any, record: object) -> None:
    cursor = connection.cursor()
    cursor.execute(f"SET SESSION idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION}'")
    cursor.execute(f"SET SESSION lock_timeout = '{LOCK}'")
    cursor.close()
    # Outside of a transaction's commit, the settings would end with the first rollback.
    connection.commit()
