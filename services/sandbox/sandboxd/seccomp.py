"""Assembles the system call filter: a classic BPF program that allows a list and answers the rest with errors.

Unknown calls get ENOSYS and known dangerous ones EPERM, because programs have fall-backs for errors and none for
death; only a call of a foreign architecture, which would bypass the list, kills.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from services.sandbox.sandboxd import syscalls_aarch64, syscalls_x86_64

# <linux/bpf_common.h>
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
# <linux/seccomp.h>: action in the high half, data in the low half.
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
# Offsets in struct seccomp_data; arguments are 64 bits, both supported architectures are little-endian.
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_ARGS = 0, 4, 16
_X32_BIT = 0x40000000

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET and NEWTIME of <linux/sched.h>.
_NAMESPACE_FLAGS = 0x7E020080
_AF_UNIX = 1
# TIOCSTI types into a terminal, TIOCLINUX pastes into it, TIOCSETD loads line disciplines.
_FORBIDDEN_IOCTLS = (0x5412, 0x541C, 0x5423)
# personality(2) may ask (0xffffffff) and set the default (0), not switch address randomisation off.
_PERSONALITIES = (0, 0xFFFFFFFF)


def _words(text: str) -> list[str]:
    return text.split()


ALLOWED = _words("""
read write open close stat fstat newfstatat lstat poll lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask
rt_sigreturn pread64 pwrite64 readv writev access pipe select sched_yield mremap msync mincore madvise dup dup2 pause
nanosleep getitimer alarm setitimer getpid sendfile accept sendto recvfrom sendmsg recvmsg shutdown bind listen connect
getsockname getpeername setsockopt getsockopt fork vfork execve execveat exit wait4 kill uname fcntl flock fsync
fdatasync truncate ftruncate getdents getcwd chdir fchdir rename mkdir rmdir creat link unlink symlink readlink chmod
fchmod chown fchown lchown umask gettimeofday getrlimit setrlimit getrusage sysinfo times getuid getgid geteuid getegid
setpgid getppid getpgrp setsid getgroups getresuid getresgid getpgid getsid rt_sigpending rt_sigtimedwait
rt_sigqueueinfo rt_sigsuspend sigaltstack utime statfs fstatfs getpriority setpriority sched_getparam
sched_getscheduler sched_get_priority_max sched_get_priority_min mlock munlock prctl arch_prctl sync gettid readahead
getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr tkill time futex sched_setaffinity sched_getaffinity
getdents64 set_tid_address restart_syscall fadvise64 timer_create timer_settime timer_gettime timer_getoverrun
timer_delete clock_gettime clock_getres clock_nanosleep exit_group epoll_create epoll_wait epoll_ctl tgkill utimes
waitid inotify_init inotify_add_watch inotify_rm_watch openat mkdirat fchownat futimesat unlinkat renameat linkat
symlinkat readlinkat fchmodat faccessat pselect6 ppoll set_robust_list get_robust_list splice tee sync_file_range
utimensat epoll_pwait signalfd timerfd_create eventfd fallocate timerfd_settime timerfd_gettime accept4 signalfd4
eventfd2 epoll_create1 dup3 pipe2 inotify_init1 preadv pwritev rt_tgsigqueueinfo recvmmsg syncfs sendmmsg
getcpu sched_getattr renameat2 getrandom membarrier mlock2 copy_file_range preadv2 pwritev2 statx rseq close_range
openat2 faccessat2 epoll_pwait2 futex_waitv sched_rr_get_interval mbind get_mempolicy set_mempolicy capget
""")

# Memory that only a memory cgroup can count: it belongs to no process.
UNCOUNTED_MEMORY = _words("""
memfd_create semget semop semctl semtimedop shmget shmat shmctl shmdt msgget msgsnd msgrcv msgctl
""")

DENIED = _words("""
ptrace process_vm_readv process_vm_writev keyctl add_key request_key bpf perf_event_open userfaultfd mount umount2
pivot_root chroot unshare setns open_by_handle_at name_to_handle_at kexec_load kexec_file_load init_module finit_module
delete_module reboot swapon swapoff syslog acct quotactl settimeofday clock_settime adjtimex clock_adjtime sethostname
setdomainname iopl ioperm modify_ldt vmsplice setuid setgid setreuid setregid setresuid setresgid
setgroups setfsuid setfsgid capset seccomp personality pidfd_getfd pidfd_open pidfd_send_signal kcmp fanotify_init
fanotify_mark lookup_dcookie process_madvise setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr vhangup
mknod mknodat move_pages migrate_pages
""")


class UnsupportedArchitecture(Exception):
    """There is no system call table for this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What differs between processors: the audit number, the call numbers, and whether x32 calls exist."""

    audit: int
    numbers: dict[str, int]
    has_x32: bool


_ARCHITECTURES = {
    "x86_64": Architecture(audit=syscalls_x86_64.AUDIT_ARCH, numbers=syscalls_x86_64.NUMBERS, has_x32=True),
    "aarch64": Architecture(audit=syscalls_aarch64.AUDIT_ARCH, numbers=syscalls_aarch64.NUMBERS, has_x32=False),
}


def architecture(machine: str) -> Architecture:
    """Return the table of `machine` (as `uname -m` says), or raise UnsupportedArchitecture."""
    try:
        return _ARCHITECTURES[machine]
    except KeyError:
        raise UnsupportedArchitecture(f"no system call table for '{machine}'; it needs x86_64 or aarch64") from None


def assemble(machine: str, *, counted_memory: bool) -> bytes:
    """Return the filter program (struct sock_filter[]) for `machine`.

    `counted_memory` says that a memory cgroup counts memfds and System V segments; without one they are refused.
    """
    arch = architecture(machine)
    return b"".join(_program(arch, counted_memory=counted_memory))


def _program(arch: Architecture, *, counted_memory: bool) -> Iterator[bytes]:
    yield _load(_OFFSET_ARCH)
    yield _jump(_JUMP_EQUAL, arch.audit, when_true=1, when_false=0)
    yield _return(_KILL_PROCESS)
    yield _load(_OFFSET_NUMBER)
    if arch.has_x32:
        yield _jump(_JUMP_GREATER_EQUAL, _X32_BIT, when_true=0, when_false=1)
        yield _return(_KILL_PROCESS)
    yield from _argument_rules(arch.numbers)
    allowed = [*ALLOWED, *UNCOUNTED_MEMORY] if counted_memory else ALLOWED
    yield from _verdicts(arch.numbers, allowed, _ALLOW)
    denied = DENIED if counted_memory else [*DENIED, *UNCOUNTED_MEMORY]
    yield from _verdicts(arch.numbers, denied, _error(errno.EPERM))
    yield _return(_error(errno.ENOSYS))


def _argument_rules(numbers: dict[str, int]) -> Iterator[bytes]:
    """Yield the calls whose verdict depends on an argument."""
    # clone(flags): threads and forks, but no new namespaces. clone3 hides its flags behind a pointer: libc falls back.
    yield from _when(numbers["clone"], _deny_if(0, [(_JUMP_SET, _NAMESPACE_FLAGS)], errno.EPERM))
    yield from _when(numbers["clone3"], [_return(_error(errno.ENOSYS))])
    for name in ("socket", "socketpair"):
        yield from _when(numbers[name], _allow_only(0, [_AF_UNIX], errno.EACCES))
    forbidden = [(_JUMP_EQUAL, request) for request in _FORBIDDEN_IOCTLS]
    yield from _when(numbers["ioctl"], _deny_if(1, forbidden, errno.EPERM))
    yield from _when(numbers["personality"], _allow_only(0, _PERSONALITIES, errno.EPERM))
    # prlimit64(pid): its own limits only, so that code cannot strangle the process that collects its files.
    yield from _when(numbers["prlimit64"], _allow_only(0, [0], errno.EPERM))


def _verdicts(numbers: dict[str, int], names: Iterable[str], action: int) -> Iterator[bytes]:
    for name in names:
        if name in numbers:
            yield from _when(numbers[name], [_return(action)])


def _when(number: int, body: list[bytes]) -> Iterator[bytes]:
    """Yield `body` guarded by the call number, which is in the accumulator; `body` must return on every path."""
    yield _jump(_JUMP_EQUAL, number, when_true=0, when_false=len(body))
    yield from body


def _deny_if(argument: int, tests: list[tuple[int, int]], error: int) -> list[bytes]:
    """Return a body that denies when any (jump, value) test holds for the low word of `argument`, else allows."""
    body = [_load(_OFFSET_ARGS + 8 * argument)]
    for position, (jump, value) in enumerate(tests):
        body.append(_jump(jump, value, when_true=len(tests) - position, when_false=0))
    return [*body, _return(_ALLOW), _return(_error(error))]


def _allow_only(argument: int, values: Iterable[int], error: int) -> list[bytes]:
    """Return a body that allows only `values` as the low word of `argument`."""
    accepted = list(values)
    body = [_load(_OFFSET_ARGS + 8 * argument)]
    for position, value in enumerate(accepted):
        body.append(_jump(_JUMP_EQUAL, value, when_true=len(accepted) - position, when_false=0))
    return [*body, _return(_error(error)), _return(_ALLOW)]


def _error(number: int) -> int:
    return _ERRNO | number


def _load(offset: int) -> bytes:
    return struct.pack("<HBBI", _LOAD, 0, 0, offset)


def _return(action: int) -> bytes:
    return struct.pack("<HBBI", _RETURN, 0, 0, action)


def _jump(kind: int, value: int, *, when_true: int, when_false: int) -> bytes:
    return struct.pack("<HBBI", kind, when_true, when_false, value)
