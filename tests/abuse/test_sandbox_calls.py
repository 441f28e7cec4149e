"""Which system calls hostile code may make (cases 9 to 24 of the sandbox's abuse table)."""

from __future__ import annotations

import platform

import pytest

from services.sandbox.domain import Status
from services.sandbox.sandboxd import seccomp
from tests.support.sandbox import Runner, needs_environment

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_environment]

NUMBERS = seccomp.architecture(platform.machine()).numbers
only_x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="x86_64 has these ways in")


async def call(runner: Runner, name: str, *arguments: int) -> str:
    listed = ", ".join(map(str, (NUMBERS[name], *arguments)))
    return await runner.errno(f"attempt(syscall, {listed})")


async def test_09_memory_pressure_score_and_priority_cannot_be_bettered(runner: Runner) -> None:
    assert await runner.errno("attempt(open, '/proc/self/oom_score_adj', 'w')") in ("EROFS", "EACCES")
    assert await runner.errno("attempt(os.setpriority, os.PRIO_PROCESS, 0, -5)") in ("EACCES", "EPERM")


@pytest.mark.parametrize("name", ["mount", "umount2", "chroot", "pivot_root"])
async def test_10_mounts_cannot_be_changed(runner: Runner, name: str) -> None:
    assert await call(runner, name, 0, 0, 0, 0, 0) == "EPERM"


@pytest.mark.parametrize("name", ["fsopen", "open_tree", "move_mount", "fsmount", "mount_setattr"])
async def test_11_the_new_mount_calls_do_not_exist(runner: Runner, name: str) -> None:
    assert await call(runner, name, 0, 0, 0) == "ENOSYS"


@pytest.mark.parametrize("flag", [0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x08000000, 0x02000000, 0x80])
async def test_12_no_new_namespaces(runner: Runner, flag: int) -> None:
    assert await call(runner, "unshare", flag) == "EPERM"
    assert await call(runner, "clone", flag | 17, 0, 0, 0, 0) == "EPERM"


async def test_12_no_entering_of_namespaces(runner: Runner) -> None:
    assert await call(runner, "setns", 0, 0) == "EPERM"


async def test_13_clone3_does_not_exist(runner: Runner) -> None:
    assert await call(runner, "clone3", 0, 0) == "ENOSYS"


@pytest.mark.parametrize("name", ["ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "pidfd_open"])
async def test_14_other_processes_cannot_be_read(runner: Runner, name: str) -> None:
    assert await call(runner, name, 16, 1, 0, 0, 0, 0) == "EPERM"


async def test_14_the_limits_of_the_first_process_cannot_be_lowered(runner: Runner) -> None:
    assert await call(runner, "prlimit64", 1, 7, 0, 0) == "EPERM"


@pytest.mark.parametrize("name", ["io_uring_setup", "io_uring_enter", "io_uring_register"])
async def test_15_io_uring_does_not_exist(runner: Runner, name: str) -> None:
    assert await call(runner, name, 0, 0) == "ENOSYS"


@pytest.mark.parametrize("name", ["keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd"])
async def test_16_17_keys_bpf_and_their_like_are_refused(runner: Runner, name: str) -> None:
    assert await call(runner, name, 0, 0, 0, 0, 0) == "EPERM"


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


@pytest.mark.parametrize("request_name", ["0x5412", "0x541C", "0x5423"])
async def test_19_terminals_cannot_be_typed_into(runner: Runner, request_name: str) -> None:
    assert await runner.errno(f"import fcntl; attempt(fcntl.ioctl, 0, {request_name}, b'x')") == "EPERM"


async def test_19_there_is_no_terminal(runner: Runner) -> None:
    assert await runner.errno("attempt(open, '/dev/tty')") == "ENXIO"


@pytest.mark.parametrize("address", [("127.0.0.1", 22), ("169.254.169.254", 80), ("10.0.0.1", 443)])
async def test_20_there_is_no_tcp(runner: Runner, address: tuple[str, int]) -> None:
    assert await runner.errno(f"attempt(socket.create_connection, {address!r}, 2)") == "EACCES"


async def test_20_names_do_not_resolve(runner: Runner) -> None:
    result = await runner.run("""
import socket
try:
    socket.getaddrinfo('example.invalid', 80)
except socket.gaierror:
    print('gaierror')
""")
    assert result.text == "gaierror\n"


@pytest.mark.parametrize("family", [2, 10, 16, 17, 38, 40, 33])
async def test_22_only_unix_sockets_exist(runner: Runner, family: int) -> None:
    """AF_INET, INET6, NETLINK, PACKET, ALG, VSOCK, RXRPC."""
    assert await runner.errno(f"attempt(socket.socket, {family}, socket.SOCK_RAW)") == "EACCES"


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
    assert await runner.errno("attempt(os.mknod, 'd', 0o20666, os.makedev(1, 3))") == "EPERM"
    assert await runner.errno("attempt(os.mkfifo, 'p')") == "EPERM"


@pytest.mark.parametrize("name", ["RLIMIT_DATA", "RLIMIT_NPROC", "RLIMIT_FSIZE", "RLIMIT_CPU", "RLIMIT_CORE"])
async def test_37_limits_cannot_be_raised(runner: Runner, name: str) -> None:
    result = await runner.run(f"""
import resource
soft, hard = resource.getrlimit(resource.{name})
try:
    resource.setrlimit(resource.{name}, (hard + 1, hard + 1))
    print('raised')
except (ValueError, OSError):
    print('refused')
""")
    assert result.text == "refused\n"
