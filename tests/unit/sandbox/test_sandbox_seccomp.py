"""The system call filter, run by a small interpreter of classic BPF: verdicts on both architectures."""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence

import pytest

from services.sandbox.sandboxd import seccomp

ALLOW, KILL = 0x7FFF0000, 0x80000000
MACHINES = ("x86_64", "aarch64")


def verdict(
    machine: str, name: str | int, arguments: Sequence[int] = (), *, audit: int | None = None, counted: bool = True
) -> int:
    """Run the filter on one call and return its action."""
    arch = seccomp.architecture(machine)
    number = name if isinstance(name, int) else arch.numbers[name]
    padded = [*arguments, *[0] * (6 - len(arguments))]
    memory = struct.pack("<iIQ6Q", number, arch.audit if audit is None else audit, 0, *padded)
    program = list(struct.iter_unpack("<HBBI", seccomp.assemble(machine, counted_memory=counted)))
    accumulator, position = 0, 0
    while True:
        code, when_true, when_false, value = program[position]
        position += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            accumulator = struct.unpack_from("<I", memory, value)[0]
            continue
        holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
        position += when_true if holds else when_false


def error(number: int) -> int:
    return 0x00050000 | number


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "name", ["read", "openat", "execve", "futex", "mmap", "getrandom", "memfd_create", "exit_group"]
)
def test_ordinary_calls_are_allowed(machine: str, name: str) -> None:
    assert verdict(machine, name) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "name", ["ptrace", "mount", "unshare", "setns", "bpf", "keyctl", "userfaultfd", "pidfd_getfd", "chroot"]
)
def test_dangerous_calls_are_refused(machine: str, name: str) -> None:
    assert verdict(machine, name) == error(errno.EPERM)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "name", ["clone3", "io_uring_setup", "fsopen", "open_tree", "move_mount", "landlock_create_ruleset"]
)
def test_other_calls_do_not_exist(machine: str, name: str) -> None:
    assert verdict(machine, name) == error(errno.ENOSYS)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_call_from_the_future_does_not_exist(machine: str) -> None:
    assert verdict(machine, 4000) == error(errno.ENOSYS)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_foreign_architecture_kills(machine: str) -> None:
    assert verdict(machine, "read", audit=0x40000003) == KILL


def test_x32_kills() -> None:
    assert verdict("x86_64", 0x40000000 + 39) == KILL


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("flag", [1 << 17, 1 << 25, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30, 1 << 7])
def test_clone_makes_no_namespaces(machine: str, flag: int) -> None:
    assert verdict(machine, "clone", [flag | 17]) == error(errno.EPERM)
    assert verdict(machine, "clone", [0x01200000 | 17]) == ALLOW
    # A thread, as pthread_create makes one.
    assert verdict(machine, "clone", [0x003D0F00]) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("call", ["socket", "socketpair"])
def test_sockets_are_unix_sockets(machine: str, call: str) -> None:
    assert verdict(machine, call, [1]) == ALLOW
    for family in (0, 2, 10, 16, 17, 38, 40):
        assert verdict(machine, call, [family]) == error(errno.EACCES)


@pytest.mark.parametrize("machine", MACHINES)
def test_ioctl_is_refused_for_terminals_only(machine: str) -> None:
    for request in (0x5412, 0x541C, 0x5423):
        assert verdict(machine, "ioctl", [0, request]) == error(errno.EPERM)
        # The kernel looks at 32 bits of it; so must the filter.
        assert verdict(machine, "ioctl", [0, request | 1 << 40]) == error(errno.EPERM)
    assert verdict(machine, "ioctl", [0, 0x5401]) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_personality_may_ask_only(machine: str) -> None:
    assert verdict(machine, "personality", [0xFFFFFFFF]) == ALLOW
    assert verdict(machine, "personality", [0]) == ALLOW
    assert verdict(machine, "personality", [0x0040000]) == error(errno.EPERM)


@pytest.mark.parametrize("machine", MACHINES)
def test_limits_of_other_processes_are_out_of_reach(machine: str) -> None:
    assert verdict(machine, "prlimit64", [0]) == ALLOW
    assert verdict(machine, "prlimit64", [1]) == error(errno.EPERM)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", seccomp.UNCOUNTED_MEMORY)
def test_uncounted_memory_needs_a_cgroup(machine: str, name: str) -> None:
    assert verdict(machine, name) == ALLOW
    assert verdict(machine, name, counted=False) == error(errno.EPERM)


def test_no_call_is_both_allowed_and_denied() -> None:
    assert not set(seccomp.ALLOWED) & set(seccomp.DENIED)
    assert not set(seccomp.UNCOUNTED_MEMORY) & set(seccomp.DENIED)
    assert all(name in seccomp.architecture("x86_64").numbers for name in (*seccomp.ALLOWED, *seccomp.DENIED))


def test_other_machines_are_refused() -> None:
    with pytest.raises(seccomp.UnsupportedArchitecture, match="riscv64"):
        seccomp.assemble("riscv64", counted_memory=True)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_program_fits_the_kernels_limit(machine: str) -> None:
    assert len(seccomp.assemble(machine, counted_memory=True)) // 8 <= 4096
