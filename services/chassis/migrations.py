"""Alembic, run from code: no ini file, no env.py, only `versions/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

# Any constant will do: services may share one PostgreSQL server, but not one database.
LOCK = 7526761


def upgrade(connection: Connection, folder: Path, to: str = "head") -> None:
    """Bring the database to the revision `to` under `folder`, inside the connection's transaction."""
    scripts = ScriptDirectory(str(folder))
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")

    def steps(revision: Any, context: MigrationContext) -> Any:
        return scripts._upgrade_revs(to, revision)  # noqa: SLF001 - what `alembic upgrade head` itself calls

    with EnvironmentContext(Config(), scripts, fn=steps) as environment:
        environment.configure(connection=connection)
        with environment.begin_transaction():
            environment.run_migrations()
