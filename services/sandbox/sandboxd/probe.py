"""Proves isolation from inside a real sandbox, and says what to do where a proof fails."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from services.sandbox.sandboxd import processes

CANARY_VARIABLE = "PROCTOR_SANDBOX_CANARY"

# Runs as foreign code does. Prints what it can see, as JSON.
CODE = r"""
import json, os, sys

def facts():
    import importlib.metadata
    packages = sorted({f"{d.name} {d.version}" for d in importlib.metadata.distributions()})
    return {"python": sys.version.split()[0], "packages": packages}

def read(path):
    try:
        return open(path, "rb").read().decode("utf-8", "replace")
    except OSError as error:
        return "!" + type(error).__name__

def writable(path):
    try:
        os.close(os.open(path, os.O_WRONLY))
        return True
    except OSError:
        return False

def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""

settings = ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory")
print(json.dumps({
    "user_namespace": link("/proc/self/ns/user"),
    "init_environ": read("/proc/1/environ"),
    "environments": [read(f"/proc/{pid}/environ") for pid in os.listdir("/proc") if pid.isdigit()],
    "environ": sorted(os.environ),
    "canary_file": os.path.exists(CANARY_PATH),
    "proc_sys_writable": [path for path in settings if writable(path)],
    **(facts() if INVENTORY else {}),
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One proof."""

    name: str
    passed: bool
    detail: str
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def failed(name: str, detail: str, remedy: str) -> Check:
    """Return a proof that failed."""
    return Check(name=name, passed=False, detail=detail, remedy=remedy)


class Canary:
    """A file and a variable of the host that no sandbox may see."""

    def __init__(self) -> None:
        handle, self.path = tempfile.mkstemp(prefix="proctor-canary-")
        os.close(handle)
        os.environ[CANARY_VARIABLE] = self.path

    def code(self, *, inventory: bool) -> str:
        """Return the probe that looks for this canary, and lists the packages when `inventory` is set."""
        return f"CANARY_PATH = {self.path!r}\nINVENTORY = {inventory}\n{CODE}"

    def close(self) -> None:
        Path(self.path).unlink(missing_ok=True)
        os.environ.pop(CANARY_VARIABLE, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """What the host's kernel says of the process that waits for code. Nothing inside can forge it.

    `user_namespace` is empty where the supervisor may not look, as root of a container without CAP_SYS_PTRACE.
    """

    user_namespace: str
    own_user_namespace: str
    uid: int
    no_new_privileges: bool
    capabilities: int
    filtered: bool
    interfaces: frozenset[str]

    @staticmethod
    def of(init_pid: int) -> HostView:
        """Look at the interpreter of the job whose first process is `init_pid`; it must be parked."""
        pid = processes.tree(init_pid)[-1]
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        devices = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
        return HostView(
            user_namespace=_namespace_of(pid),
            own_user_namespace=os.readlink("/proc/self/ns/user"),
            uid=int(status["Uid"].split()[1]),
            no_new_privileges=status["NoNewPrivs"] == "1",
            capabilities=int(status["CapEff"], 16) | int(status["CapPrm"], 16),
            filtered=status["Seccomp"] == "2",
            interfaces=frozenset(line.partition(":")[0].strip() for line in devices),
        )


def _namespace_of(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/user")
    except PermissionError:
        return ""


def judge(printed: str, host: HostView) -> tuple[list[Check], dict[str, Any]]:
    """Return the proofs, and the facts (`python`, `packages`) the probe found."""
    try:
        found: dict[str, Any] = json.loads(printed)
    except ValueError:
        detail = f"the probe printed {printed[:200]!r}"
        return [failed("probe_ran", detail, "see the sandbox's log; run `proctor doctor`")], {}
    return list(_judgements(found, host)), found


_KERNEL = "allow user namespaces, no_new_privs and seccomp for this service, or run it on another host"
_REPORT = "report this as a defect of the sandbox; until then nothing runs"


def _judgements(found: dict[str, Any], host: HostView) -> Iterator[Check]:
    namespace = host.user_namespace or found["user_namespace"]
    separate = namespace not in ("", host.own_user_namespace)
    users = "allow unprivileged user namespaces (user.max_user_namespaces)"
    yield _check("user_namespace", namespace or "unknown", users, passed=separate)
    drop = "let the service set user ids, or start it as an ordinary user"
    yield _check("unprivileged_user", f"host uid {host.uid}", drop, passed=host.uid != 0)
    yield _check("no_new_privileges", host.no_new_privileges, _KERNEL, passed=host.no_new_privileges)
    yield _check("no_capabilities", f"{host.capabilities:016x}", _KERNEL, passed=host.capabilities == 0)
    yield _check("system_call_filter", host.filtered, _KERNEL, passed=host.filtered)
    seen = ", ".join(sorted(host.interfaces))
    yield _check("no_network", seen, "allow network namespaces", passed=host.interfaces <= {"lo"})
    environment = found["init_environ"]
    hidden = environment == "" or environment.startswith("!")
    yield _check("init_environment", environment[:80] or "empty", _REPORT, passed=hidden)
    leaked = CANARY_VARIABLE in found["environ"] or any(CANARY_VARIABLE in text for text in found["environments"])
    yield _check("canary_variable", "visible" if leaked else "hidden", _REPORT, passed=not leaked)
    visible = bool(found["canary_file"])
    yield _check("canary_file", "visible" if visible else "hidden", _REPORT, passed=not visible)
    writable = found["proc_sys_writable"]
    yield _check("kernel_settings", ", ".join(writable) or "read-only", _REPORT, passed=not writable)


def _check(name: str, detail: object, remedy: str, *, passed: bool) -> Check:
    return Check(name=name, passed=passed, detail=str(detail), remedy="" if passed else remedy)
