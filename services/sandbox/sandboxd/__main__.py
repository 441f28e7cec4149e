"""`python -m services.sandbox.sandboxd FD`: the supervisor of one service, which hangs on the other end of FD."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TextIO

from services.sandbox.inside import frames
from services.sandbox.sandboxd import cgroups, preflight
from services.sandbox.sandboxd.config import Config
from services.sandbox.sandboxd.loop import Loop
from services.sandbox.sandboxd.pool import Pool
from services.sandbox.sandboxd.supervisor import Supervisor

_LOCK_SECONDS = 10.0


def main() -> None:
    """Serve until the service hangs up; then kill every sandbox and leave."""
    ctypes.CDLL(None).prctl(15, b"sandboxd", 0, 0, 0)  # PR_SET_NAME
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the service's to handle
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sock = socket.socket(fileno=int(sys.argv[1]))
    config = Config.from_json(frames.receive(sock).header)
    sock.settimeout(0)
    config.state.mkdir(parents=True, exist_ok=True)
    lock = _lock(config.state)
    loop = Loop()
    prefix = f"proctor-{hashlib.sha256(str(config.state).encode()).hexdigest()[:10]}-"
    hierarchy = cgroups.detect(prefix, config.cgroup)
    hierarchy.reap()
    result = preflight.prepare(loop, config, hierarchy)
    supervisor = Supervisor(loop, sock, result.isolation())
    pool = None
    try:
        if result.recipe is not None and result.safe:
            pool = Pool(loop, config, result.recipe, hierarchy, supervisor)
        supervisor.serve(pool)
    finally:
        if pool is not None:
            pool.close()
        result.close()
        lock.close()


def _lock(state: Path) -> TextIO:
    """Hold the state directory for this supervisor alone; an earlier one may need a moment to die."""
    file = (state / "sandboxd.lock").open("w")
    end = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                sys.exit(f"another supervisor holds '{state}'; give each sandbox service a data directory of its own")
            time.sleep(0.02)
        else:
            return file


if __name__ == "__main__":
    main()
