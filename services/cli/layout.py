"""Where a local suite lives: its services in order, their addresses, and the environment each is started with."""

from __future__ import annotations

import dataclasses
import secrets
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from services.chassis.settings import variable

# Started wave by wave, each once the one before is healthy; stopped the other way round.
WAVES: tuple[tuple[str, ...], ...] = (("approval", "retrieval", "sandbox"), ("orchestrator",), ("gateway",))
NAMES: tuple[str, ...] = tuple(name for wave in WAVES for name in wave)
# Where code cannot be isolated the sandbox says NOT_SERVING, and the suite does without its tool.
MAY_NOT_SERVE = frozenset({"sandbox"})
HTTP = "gateway"
SANDBOX_PYTHON = variable("sandbox", "python_environment")
# A unix socket's path may have 107 bytes (sun_path).
MAX_SOCKET_PATH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Folders and addresses of one suite. `sockets` is removed at the end when it is `temporary`."""

    data_dir: Path
    sockets: Path
    temporary: bool
    listen: str

    def address(self, name: str) -> str:
        """Return where a service listens."""
        return self.listen if name == HTTP else f"unix:{self.sockets / name}.sock"

    @property
    def url(self) -> str:
        """Return the gateway's URL."""
        return f"http://{self.listen}"

    @property
    def logs(self) -> Path:
        """Return the folder of the services' logs."""
        return self.data_dir / "logs"

    def remove(self) -> None:
        """Remove what must not outlive the suite."""
        if self.temporary:
            shutil.rmtree(self.sockets, ignore_errors=True)


def make_layout(data_dir: Path, listen: str) -> Layout:
    """Return the layout under `data_dir` and make its folders; sockets move to /tmp when their path grows too long."""
    data_dir = data_dir.resolve()
    sockets = data_dir / "run"
    temporary = len(str(sockets / f"{max(NAMES, key=len)}.sock")) > MAX_SOCKET_PATH
    if temporary:
        sockets = Path(tempfile.mkdtemp(prefix="proctor-"))
    sockets.mkdir(parents=True, exist_ok=True, mode=0o700)
    layout = Layout(data_dir=data_dir, sockets=sockets, temporary=temporary, listen=listen)
    layout.logs.mkdir(parents=True, exist_ok=True)
    return layout


def sandbox_python() -> Path:
    """Return where set-up makes the environment for foreign code: beside the suite's own."""
    return Path(sys.prefix).parent / ".venv-sandbox"


def environment(layout: Layout, base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of every service: `base`, a signing key, and each service's addresses and folder.

    What `base` sets itself is kept. A service's peers are its settings that are called `<peer>_target`.
    """
    made = {"PROCTOR_SIGNING_KEY": secrets.token_hex(32)}
    if sandbox_python().exists():
        made[SANDBOX_PYTHON] = str(sandbox_python())
    for name in NAMES:
        settings = import_module(f"services.{name}.settings").Settings
        for field in dataclasses.fields(settings):
            peer = field.name.removesuffix("_target")
            if field.name == "listen":
                made[variable(name, field.name)] = layout.address(name)
            elif field.name == "data_dir":
                made[variable(name, field.name)] = str(layout.data_dir)
            elif peer != field.name and peer in NAMES:
                made[variable(name, field.name)] = layout.address(peer)
    return made | dict(base)
