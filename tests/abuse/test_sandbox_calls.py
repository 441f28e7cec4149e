"""Which system calls hostile code may make (cases 9 to 24 of the sandbox's abuse table)."""

from __future__ import annotations

import platform
import socket

import pytest

from services.sandbox.domain import Status
from services.sandbox.sandboxd import seccomp
from tests.support.sandbox import Runner, needs_environment

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_environment]

NUMBERS = seccomp.architecture(platform.machine()).numbers
only_x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="x86_64 has these ways in")


def raw(name: str, *arguments: int) -> str:
    """Return a line that makes the call, with zeros for what is not given."""
    listed = ", ".join(map(str, (NUMBERS[name], *arguments, *[0] * (6 - len(arguments)))))
    return f"attempt(syscall, {listed})"


async def calls(runner: Runner, *names: str) -> set[str]:
    """Return the errnos of the calls."""
    return set(await runner.errnos(*(raw(name) for name in names)))


async def test_09_memory_pressure_score_and_priority_cannot_be_bettered(runner: Runner) -> None:
    assert await runner.errno("attempt(open, '/proc/self/oom_score_adj', 'w')") in ("EROFS", "EACCES")
    assert await runner.errno("attempt(os.setpriority, os.PRIO_PROCESS, 0, -5)") in ("EACCES", "EPERM")


async def test_10_mounts_cannot_be_changed(runner: Runner) -> None:
    assert await calls(runner, "mount", "umount2", "chroot", "pivot_root") == {"EPERM"}


async def test_11_the_new_mount_calls_do_not_exist(runner: Runner) -> None:
    assert await calls(runner, "fsopen", "open_tree", "move_mount", "fsmount", "mount_setattr") == {"ENOSYS"}


async def test_12_no_new_namespaces_and_no_entering_of_others(runner: Runner) -> None:
    flags = (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x08000000, 0x02000000, 0x04000000, 0x80)
    attempts = [raw(name, flag | extra) for flag in flags for name, extra in (("unshare", 0), ("clone", 17))]
    assert set(await runner.errnos(*attempts, raw("setns"))) == {"EPERM"}


async def test_13_clone3_does_not_exist(runner: Runner) -> None:
    assert await calls(runner, "clone3") == {"ENOSYS"}


async def test_14_other_processes_cannot_be_read(runner: Runner) -> None:
    names = ("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "pidfd_open", "process_madvise")
    assert await calls(runner, *names) == {"EPERM"}
    assert await runner.errnos(raw("ptrace", 16, 1), raw("pidfd_open", 1)) == ["EPERM", "EPERM"]


async def test_14_the_limits_of_the_first_process_cannot_be_lowered(runner: Runner) -> None:
    assert await runner.errnos(raw("prlimit64", 1, 7)) == ["EPERM"]


async def test_15_io_uring_does_not_exist(runner: Runner) -> None:
    assert await calls(runner, "io_uring_setup", "io_uring_enter", "io_uring_register") == {"ENOSYS"}


async def test_16_17_keys_bpf_and_their_like_are_refused(runner: Runner) -> None:
    names = ("keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd")
    assert await calls(runner, *names) == {"EPERM"}


@only_x86_64
async def test_18_an_x32_call_kills(runner: Runner) -> None:
    result = await runner.run("import ctypes; ctypes.CDLL(None).syscall(0x40000000 + 39)")
    assert (result.status, result.finished.exit_code) == (Status.ERROR, 128 + 31)


@only_x86_64
async def test_18_a_32_bit_call_kills(runner: Runner) -> None:
    # mov eax, 20 (getpid); int 0x80; ret
    result = await runner.run("""
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
""")
    assert (result.status, result.finished.exit_code) == (Status.ERROR, 128 + 31)


async def test_19_terminals_cannot_be_typed_into(runner: Runner) -> None:
    attempts = [f"attempt(fcntl.ioctl, 0, {request}, b'x')" for request in ("0x5412", "0x541C", "0x5423")]
    attempts[0] = "import fcntl; " + attempts[0]
    assert await runner.errnos(*attempts) == ["EPERM"] * 3


async def test_19_there_is_no_terminal(runner: Runner) -> None:
    assert await runner.errno("attempt(open, '/dev/tty')") == "ENXIO"


async def test_20_there_is_no_tcp(runner: Runner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        addresses = [listener.getsockname(), ("169.254.169.254", 80), ("10.0.0.1", 443)]
        attempts = [f"attempt(socket.create_connection, {address!r}, 2)" for address in addresses]
        assert await runner.errnos(*attempts) == ["EACCES"] * 3


async def test_20_names_do_not_resolve(runner: Runner) -> None:
    result = await runner.run("""
import socket
try:
    socket.getaddrinfo('example.invalid', 80)
except socket.gaierror:
    print('gaierror')
""")
    assert result.text == "gaierror\n"


async def test_22_only_unix_sockets_exist(runner: Runner) -> None:
    """AF_INET, INET6, NETLINK, PACKET, ALG, VSOCK, RXRPC."""
    attempts = [f"attempt(socket.socket, {family}, socket.SOCK_RAW)" for family in (2, 10, 16, 17, 38, 40, 33)]
    assert set(await runner.errnos(*attempts)) == {"EACCES"}


async def test_23_set_user_id_programs_gain_nothing(runner: Runner) -> None:
    result = await runner.run("""
import os, shutil, subprocess
shutil.copy('/usr/bin/id', '/workspace/id')
os.chmod('/workspace/id', 0o6755)
print(subprocess.run(['/workspace/id', '-u'], capture_output=True, text=True).stdout.strip() == str(os.getuid()))
su = subprocess.run(['/usr/bin/su', '-c', 'id -u'], capture_output=True, text=True, stdin=subprocess.DEVNULL)
print(su.returncode != 0, su.stdout)
print(os.getuid() != 0, os.geteuid() == os.getuid())
os.unlink('/workspace/id')
""")
    assert result.text.split() == ["True", "True", "True", "True"], result.errors


async def test_24_devices_and_pipes_cannot_be_made(runner: Runner) -> None:
    attempts = ("attempt(os.mknod, 'd', 0o20666, os.makedev(1, 3))", "attempt(os.mkfifo, 'p')")
    assert await runner.errnos(*attempts) == ["EPERM", "EPERM"]


async def test_37_limits_cannot_be_raised(runner: Runner) -> None:
    result = await runner.run("""
import resource
for name in ('RLIMIT_DATA', 'RLIMIT_NPROC', 'RLIMIT_FSIZE', 'RLIMIT_CPU', 'RLIMIT_CORE', 'RLIMIT_NOFILE'):
    soft, hard = resource.getrlimit(getattr(resource, name))
    try:
        resource.setrlimit(getattr(resource, name), (hard + 1, hard + 1))
        print(name)
    except (ValueError, OSError):
        print('refused')
""")
    assert result.text.split() == ["refused"] * 6
