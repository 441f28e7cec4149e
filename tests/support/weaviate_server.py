"""Finding and building a Weaviate server for the tests. Needs nothing but Python and Go.

    python3 -m tests.support.weaviate_server          # builds it from the Go module proxy: five minutes on one core
    python3 -m tests.support.weaviate_server --wait   # waits for a build that another process has under way

Ends with 0 when the server is there, with 3 when this machine cannot have it, and with 1 when its build failed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VERSION = "1.35.2"
VARIABLE = "PROCTOR_TEST_WEAVIATE_SERVER"
MODULE = "github.com/weaviate/weaviate"
CACHE = Path.home() / ".cache" / "proctor"
BUILT = CACHE / f"weaviate-server-{VERSION}"
WAIT_SECONDS = 900.0
IMPOSSIBLE = 3
# What Go says when the machine, not the module, is at fault.
NOT_OURS = ("dial tcp", "no such host", "proxyconnect", "requires go >=", "i/o timeout", "connection refused", "TLS ")
SKIP = (
    f"no Weaviate server: build one with `python -m tests.support.weaviate_server` (needs Go) or set {VARIABLE} "
    "to a weaviate-server program"
)


def program() -> Path | None:
    """Return the server's program: the one that is set, the one that was built, or the PATH's."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    if BUILT.exists():
        return BUILT
    found = shutil.which("weaviate-server")
    return Path(found) if found else None


def build() -> int:
    """Build the server into the user's cache unless it is there; return how the process should end."""
    if _go() is None:
        return _told("Go is not installed", IMPOSSIBLE)
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "weaviate-server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return 0 if program() else _install()


def wait(seconds: float = WAIT_SECONDS) -> int:
    """Wait until a build that is under way has ended, then make sure that it succeeded."""
    CACHE.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + seconds
    with (CACHE / "weaviate-server.lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    return _told(f"it was not built within {seconds:g} seconds", 1)
                time.sleep(1)
    return 0 if program() else build()


def _go() -> str | None:
    # Where Go's own packages put it, which no login shell may have told us.
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


def _install() -> int:
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"GOBIN": folder, "GOFLAGS": "-buildvcs=false"}
        command = ["nice", "-n", "19", str(_go()), "install", f"{MODULE}/cmd/weaviate-server@v{VERSION}"]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            said = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("go: downloading"))
            return _told(said.strip()[-2000:], IMPOSSIBLE if any(sign in said for sign in NOT_OURS) else 1)
        # Seen whole or not at all, also by a process that does not look at the lock.
        moved = shutil.move(Path(folder) / "weaviate-server", BUILT.with_name(f"{BUILT.name}.part"))
        Path(moved).rename(BUILT)
    return 0


def _told(why: str, code: int) -> int:
    sys.stderr.write(f"no Weaviate {VERSION} for the tests: {why}\n")
    return code


if __name__ == "__main__":
    ended = wait() if "--wait" in sys.argv[1:] else build()
    if not ended:
        sys.stdout.write(f"{program()}\n")
    raise SystemExit(ended)
