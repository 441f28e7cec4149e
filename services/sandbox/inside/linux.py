"""The few Linux calls that Python does not wrap."""

from __future__ import annotations

import ctypes
import os
import struct

# <linux/sched.h>
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
# <linux/mount.h>
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
# <linux/prctl.h>
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63
_SIGKILL = 9

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Enter new namespaces."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount, or change a mount."""
    arguments = (source.encode(), target.encode(), kind.encode() if kind else None)
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() or None), f"mount {target}")


def map_own_ids(uid: int, gid: int) -> None:
    """Map the only user and group of a new user namespace onto themselves."""
    for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(line)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that made it ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0), "PR_SET_PDEATHSIG")


def set_dumpable(*, dumpable: bool) -> None:
    """Say whether others of the same user may look into this process through /proc."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, int(dumpable), 0, 0, 0), "PR_SET_DUMPABLE")


def set_no_new_privileges() -> None:
    """Make set-user-id bits and file capabilities powerless for this process and all it starts."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")


def drop_capabilities() -> None:
    """Empty every capability set, the bounding set included."""
    for capability in range(_LAST_CAPABILITY + 1):
        # Fails with EINVAL above the kernel's last one and EPERM without CAP_SETPCAP; capset below is what counts.
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("II", _CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, bytes(24)), "capset")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install_filter(program: bytes) -> None:
    """Install a seccomp filter (struct sock_filter[]) for good."""
    buffer = ctypes.create_string_buffer(program, len(program))
    descriptor = _Program(len(program) // 8, ctypes.addressof(buffer))
    _check(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(descriptor), 0, 0), "PR_SET_SECCOMP")
