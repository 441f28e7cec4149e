"""Makes the interpreter, its packages and our own harness readable to the sandbox's user.

As root the sandbox runs as an unprivileged user who may not pass a private home directory, so the directories are
bound into a small file system of the supervisor's own mount namespace, which no other process sees.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from services.sandbox import inside
from services.sandbox.inside import linux
from services.sandbox.sandboxd.bubblewrap import PYTHON_HOME, Paths

_ASK = (
    "import json, os, sys, sysconfig; print(json.dumps([os.path.realpath(sys.base_prefix), "
    "os.path.realpath(sys._base_executable), sysconfig.get_path('purelib'), '%d.%d' % sys.version_info[:2]]))"
)


class PythonMissing(Exception):
    """The environment for code does not exist or does not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The Python that runs foreign code, as found on the host."""

    base: str
    executable: str
    site_packages: str
    version: str


def inspect(directory: str) -> Environment:
    """Ask the environment in `directory` about itself; raise PythonMissing with a sentence that says why not."""
    python = os.path.join(directory, "bin", "python")
    if not os.path.exists(python):
        raise PythonMissing(f"there is no Python environment at '{directory}'")
    try:
        answer = subprocess.run([python, "-I", "-c", _ASK], capture_output=True, text=True, timeout=20, check=True)
        base, executable, site_packages, version = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise PythonMissing(f"'{python}' does not start: {error}") from error
    return Environment(base=base, executable=executable, site_packages=site_packages, version=version)


def harness_in(state: Path, environment: Environment) -> Path:
    """Return a folder with our harness and its bytecode, made once for each version of it and of Python.

    The sandbox cannot write bytecode; without it every cold start would compile the harness.
    """
    source = Path(inside.__file__).parent
    sha = hashlib.sha256(environment.version.encode())
    for file in sorted(source.glob("*.py")):
        sha.update(file.read_bytes())
    target = state / "harness" / sha.hexdigest()[:16]
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=target.parent))
        shutil.copytree(source, draft / "inside", ignore=shutil.ignore_patterns("__pycache__"))
        compile_all = [environment.executable, "-I", "-m", "compileall", "-q", str(draft)]
        subprocess.run(compile_all, check=False, capture_output=True)
        draft.chmod(0o755)
        draft.rename(target)
    return target


class Stage:
    """A directory with everything the sandbox binds. `close` removes it."""

    def __init__(self, environment: Environment, fonts: Path, harness: Path) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="proctor-sandbox-"))
        self._private = os.geteuid() == 0 and self._enter_private_namespace()
        self._root.chmod(0o755)
        under_usr = environment.base == "/usr"
        base_python = environment.executable
        if not under_usr:
            base_python = PYTHON_HOME + environment.executable.removeprefix(environment.base)
        configuration = self._root / "pyvenv.cfg"
        configuration.write_text(f"home = {os.path.dirname(base_python)}\ninclude-system-site-packages = false\n")
        self.paths = Paths(
            base=None if under_usr else self._readable("base", environment.base),
            base_python=base_python,
            site_packages=self._readable("site-packages", environment.site_packages),
            harness=self._readable("harness", str(harness)),
            fonts=self._readable("fonts", str(fonts)),
            pyvenv_cfg=str(configuration),
            version=environment.version,
        )

    def program(self, path: str) -> str:
        """Return a path to bubblewrap that the sandbox's user may start, with the libraries beside it."""
        folders = Path(path).parents
        if not self._private or all(folder.stat().st_mode & 0o001 for folder in folders):
            return path
        # The package's program finds its libraries relative to itself, two folders up.
        root = folders[min(2, len(folders) - 1)]
        return str(Path(self._readable("bwrap", str(root))) / Path(path).relative_to(root))

    def close(self) -> None:
        """Remove the directory; the private mounts die with the namespace."""
        if self._private:
            subprocess.run(["umount", "-R", "-l", str(self._root)], check=False, capture_output=True)
        shutil.rmtree(self._root, ignore_errors=True)

    def _enter_private_namespace(self) -> bool:
        """Return whether mounts made from now on are the supervisor's own; a container may forbid it."""
        try:
            linux.unshare(linux.CLONE_NEWNS)
            linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
            linux.mount("tmpfs", str(self._root), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=0755,size=16m")
        except OSError:
            return False
        return True

    def _readable(self, name: str, source: str) -> str:
        if not self._private:
            return source
        target = self._root / name
        target.mkdir()
        linux.mount(source, str(target), None, linux.MS_BIND | linux.MS_REC)
        return str(target)
