"""Runs Python of this tree on a host whose /proc is partly covered, as container runtimes leave it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Any folder of /proc will do; the kernel then refuses every fresh mount of proc.
_COVER = 'for name in acpi scsi fs driver; do mount -t tmpfs tmpfs "/proc/$name" 2>/dev/null && exec "$@"; done; exit 1'


def run(code: str, *, timeout: float = 90.0) -> subprocess.CompletedProcess[str]:
    """Run `code` in a mount namespace of its own where part of /proc is covered; needs root."""
    steps = f"mount --make-rprivate /; {_COVER}"
    command = ["unshare", "--mount", "sh", "-c", steps, "sh", sys.executable, "-c", code]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    tree = Path(__file__).resolve().parents[2]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout, env=environ, cwd=tree)
