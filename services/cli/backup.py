"""Copying a data folder while its suite serves: each database at one moment, in an order that keeps them consistent."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

# Whoever refers to others goes first: what a run refers to is then in the later copy, and what is there too much is
# never asked for.
ORDER = ("orchestrator", "approval", "retrieval", "sandbox", "gateway")
# What belongs to a running suite.
LEFT_OUT = frozenset({"logs", "run", "up.lock"})
# The index names the files of each of its versions in here, which therefore goes before the files.
VERSIONS = "_versions"


class BackupRefused(Exception):
    """Nothing was copied; the message says why and what to do."""


def back_up(data_dir: Path, target: Path) -> None:
    """Copy `data_dir` to the new folder `target`; started on it, a suite is what the first one was.

    Raises BackupRefused when there is nothing to copy or something to overwrite.
    """
    databases = [data_dir / f"{name}.sqlite3" for name in ORDER if (data_dir / f"{name}.sqlite3").is_file()]
    if not databases:
        raise BackupRefused(f"'{data_dir}' holds no database of Proctor; name the data folder with --data-dir")
    if target.exists():
        raise BackupRefused(f"'{target}' is there already; name a new folder")
    # Databases and keys are for nobody else to read.
    target.mkdir(parents=True, mode=0o700)
    for database in databases:
        _copy_database(database, target / database.name)
    for path in _files(data_dir):
        copy = target / path.relative_to(data_dir)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)


def _copy_database(source: Path, target: Path) -> None:
    """Copy a SQLite database as it is at one moment, whoever writes to it meanwhile."""
    reader = sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)
    with closing(reader) as reading, closing(sqlite3.connect(target)) as writing:
        reading.backup(writing)
    target.chmod(0o600)


def _files(data_dir: Path) -> Iterator[Path]:
    """Yield every other file, those first that say which files belong together."""
    found = [path for path in data_dir.rglob("*") if path.is_file() and not _is_left_out(path.relative_to(data_dir))]
    yield from sorted(found, key=lambda path: (VERSIONS not in path.parts, path))


def _is_left_out(path: Path) -> bool:
    return path.parts[0] in LEFT_OUT or (len(path.parts) == 1 and ".sqlite3" in path.name)
