"""Runs Python of this tree as an ordinary user, when the tests themselves run as root."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

UID = 60400


def closed_ancestor(path: Path) -> Path | None:
    """Return the topmost folder above `path` that others may not pass, None when all are open."""
    for folder in reversed(path.resolve().parents):
        if not folder.stat().st_mode & 0o001:
            return folder
    return None


ORDINARY = f"--reuid {UID} --regid {UID} --clear-groups"
# What Docker leaves to root of a container, as far as it matters here.
CONTAINER_ROOT = "--bounding-set=-sys_admin,-sys_ptrace,-sys_resource --inh-caps=-all"


def run(code: str, *, privileges: str = ORDINARY, timeout: float = 90.0) -> subprocess.CompletedProcess[str]:
    """Run `code` with `privileges` (options of setpriv), by default as an ordinary user, in this tree.

    An interpreter below a private home is bound to the same path in a private mount namespace.
    """
    base = Path(sys.base_prefix).resolve()
    closed = closed_ancestor(base)
    steps = ["set -e", "mount --make-rprivate /"]
    if closed is not None:
        steps += [
            "kept=$(mktemp -d)",
            f'mount --bind "{base}" "$kept"',
            f'mount -t tmpfs -o mode=0755 tmpfs "{closed}"',
            f'mkdir -p "{base}"',
            f'mount --move "$kept" "{base}"; rmdir "$kept"',
        ]
    steps.append(f'exec setpriv {privileges} "$@"')
    command = ["unshare", "--mount", "sh", "-c", "\n".join(steps), "sh", sys.executable, "-c", code]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "HOME": "/nonexistent"}
    tree = Path(__file__).resolve().parents[2]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout, env=environ, cwd=tree)
