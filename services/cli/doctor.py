"""What works on this machine, and how to mend what does not. Every check looks at the real thing."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import httpx

from services.cli.layout import SANDBOX_PYTHON, sandbox_python
from services.cli.show import plain

OLDEST_BWRAP = (0, 8)
LEAST_FREE = 1024**3


class Grade(Enum):
    """How a check came out."""

    GOOD = "ok"
    LIMITED = "limited"
    BAD = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check: what was found, and what to do when it is not good."""

    name: str
    grade: Grade
    found: str
    remedy: str = ""


def good(name: str, found: str) -> Finding:
    """Return a finding that needs nothing."""
    return Finding(name=name, grade=Grade.GOOD, found=found)


def examine(environ: Mapping[str, str], data_dir: Path, url: str) -> list[Finding]:
    """Return every finding, in the order in which a newcomer needs them."""
    checks: list[Callable[[], Finding]] = [
        python,
        lambda: data_folder(data_dir),
        lambda: front_door(url),
        lambda: model(environ),
        lambda: tool_servers(url, environ.get("PROCTOR_API_KEY", "")),
        bubblewrap,
        namespaces,
        memory_groups,
        lambda: sandbox_environment(Path(environ.get(SANDBOX_PYTHON, sandbox_python()))),
    ]
    return [check() for check in checks]


def python() -> Finding:
    """Python is new enough."""
    version = ".".join(map(str, sys.version_info[:3]))
    return good("Python", version)


def data_folder(path: Path) -> Finding:
    """The data folder can be written and has room."""
    existing = next(parent for parent in (path.resolve(), *path.resolve().parents) if parent.exists())
    if not os.access(existing, os.W_OK):
        remedy = "choose another folder with --data-dir, or make this one writable"
        return Finding(name="Data folder", grade=Grade.BAD, found=f"{existing} cannot be written", remedy=remedy)
    free = shutil.disk_usage(existing).free
    found = f"{path} · {free / 1024**3:.1f} GiB free"
    if free < LEAST_FREE:
        return Finding(name="Data folder", grade=Grade.LIMITED, found=found, remedy="free at least 1 GiB")
    return good("Data folder", found)


def front_door(url: str) -> Finding:
    """The gateway answers, or its port is free."""
    try:
        reply = httpx.get(f"{url}/readyz", timeout=3.0, trust_env=False)
    except httpx.TransportError:
        return _port(url)
    services = reply.json().get("services", {}) if reply.headers.get("content-type") == "application/json" else {}
    told = ", ".join(f"{name} {state}" for name, state in sorted(services.items()))
    if reply.status_code == httpx.codes.OK:
        return good("Suite", f"serves at {url} ({told})")
    remedy = "look at the logs of what does not serve, under logs/ in the data folder"
    return Finding(
        name="Suite", grade=Grade.BAD, found=f"{url} is not ready ({told or reply.status_code})", remedy=remedy
    )


def _port(url: str) -> Finding:
    address = httpx.URL(url)
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port or 80))
    except OSError as error:
        remedy = "stop what uses it, or start with --listen 127.0.0.1:PORT"
        return Finding(name="Suite", grade=Grade.BAD, found=f"{url} cannot be used: {error.strerror}", remedy=remedy)
    return good("Suite", f"does not run; {url} is free")


def model(environ: Mapping[str, str]) -> Finding:
    """The model endpoint answers, or no key is set and the reader answers."""
    base, key = environ.get("OPENAI_BASE_URL", ""), environ.get("OPENAI_API_KEY", "")
    if not base and not key:
        remedy = "set OPENAI_API_KEY (and OPENAI_BASE_URL, PROCTOR_MODEL) for a language model"
        found = "no key: the built-in reader quotes documents, it is no language model"
        return Finding(name="Model", grade=Grade.LIMITED, found=found, remedy=remedy)
    endpoint = base or "https://api.openai.com/v1"
    try:
        reply = httpx.get(f"{endpoint.rstrip('/')}/models", headers={"Authorization": f"Bearer {key}"}, timeout=5.0)
    except httpx.HTTPError as error:
        remedy = "check OPENAI_BASE_URL and that this machine reaches it"
        return Finding(name="Model", grade=Grade.BAD, found=f"{endpoint} does not answer: {error}", remedy=remedy)
    if reply.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        remedy = "check OPENAI_API_KEY"
        return Finding(name="Model", grade=Grade.BAD, found=f"{endpoint} refuses the key", remedy=remedy)
    return good("Model", f"{endpoint} answers")


def tool_servers(url: str, key: str) -> Finding:
    """Every MCP server of proctor.toml answers the suite that runs."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        reply = httpx.get(
            f"{url}/v1/tools/servers", params={"connect": "true"}, headers=headers, timeout=30.0, trust_env=False
        )
    except httpx.TransportError:
        return good("Tool servers", "are looked at while the suite runs")
    if reply.status_code != httpx.codes.OK:
        remedy = "set PROCTOR_API_KEY to a key of yours"
        found = f"cannot be listed: HTTP {reply.status_code}"
        return Finding(name="Tool servers", grade=Grade.LIMITED, found=found, remedy=remedy)
    servers = reply.json()["servers"]
    if not servers:
        return good("Tool servers", "none is named in proctor.toml")
    broken = [each for each in servers if each["state"] == "TOOL_SERVER_STATE_BROKEN"]
    if broken:
        found = "; ".join(f"{each['name']}: {plain(each['problem'])}" for each in broken)
        remedy = "mend or remove them under [mcp.servers] in proctor.toml; the others work"
        return Finding(name="Tool servers", grade=Grade.LIMITED, found=found, remedy=remedy)
    return good("Tool servers", ", ".join(f"{each['name']} with {len(each['tools'])} tools" for each in servers))


def bubblewrap() -> Finding:
    """Bubblewrap is there, new enough and not setuid."""
    install = "install it: apt-get install bubblewrap; until then code does not run"
    program = shutil.which("bwrap")
    if program is None:
        return Finding(name="Bubblewrap", grade=Grade.BAD, found="bwrap is not installed", remedy=install)
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    numbers = re.findall(r"\d+", told)
    if tuple(map(int, numbers[:2])) < OLDEST_BWRAP:
        return Finding(name="Bubblewrap", grade=Grade.BAD, found=told.strip() or "unknown version", remedy=install)
    if Path(program).stat().st_mode & stat.S_ISUID:
        remedy = f"chmod u-s {program}: a setuid bwrap cannot make the namespaces that the sandbox needs"
        return Finding(name="Bubblewrap", grade=Grade.BAD, found=f"{program} is setuid", remedy=remedy)
    return good("Bubblewrap", told.strip())


def namespaces() -> Finding:
    """A sandbox with every namespace can really be made here."""
    program = shutil.which("bwrap")
    if program is None:
        return Finding(
            name="Namespaces", grade=Grade.BAD, found="cannot be tried without bwrap", remedy="see Bubblewrap"
        )
    flags = ["--unshare-all", "--unshare-user", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    tried = subprocess.run([program, *flags, "true"], capture_output=True, text=True, check=False)
    if tried.returncode == 0:
        return good("Namespaces", "user, mount, pid and network namespaces work")
    remedy = "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, or run the container with them)"
    return Finding(name="Namespaces", grade=Grade.BAD, found=tried.stderr.strip() or "bwrap failed", remedy=remedy)


def memory_groups() -> Finding:
    """A memory control group can be made."""
    for root in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):
        controllers = root / "cgroup.controllers"
        has_memory = root.name == "memory" or (controllers.exists() and "memory" in controllers.read_text().split())
        if root.is_dir() and has_memory and os.access(root, os.W_OK):
            return good("Control groups", f"memory is bounded in {root}")
    remedy = "run as root or with a delegated cgroup, or set PROCTOR_SANDBOX_ALLOW_NO_CGROUP=true for weaker bounds"
    return Finding(name="Control groups", grade=Grade.LIMITED, found="no writable memory cgroup", remedy=remedy)


def sandbox_environment(path: Path) -> Finding:
    """The environment that code finds inside the sandbox is there."""
    if (path / "bin" / "python").exists():
        return good("Sandbox Python", str(path))
    found = f"{path} has no Python"
    return Finding(name="Sandbox Python", grade=Grade.BAD, found=found, remedy="make it: make setup")
