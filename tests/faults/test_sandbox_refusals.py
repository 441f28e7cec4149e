"""Machines that cannot isolate: nothing runs there, and the refusal says why and what to do (case 47)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from proctor.sandbox.v1 import sandbox_service_pb2 as pb
from proctor.sandbox.v1 import sandbox_service_pb2_grpc as pb_grpc
from services.chassis.errors import RemoteFailure, from_rpc_error
from services.sandbox.bootstrap import build
from services.sandbox.settings import Backend, Settings
from tests.support.platform import principal, test_platform
from tests.support.sandbox import needs_environment, sandbox_settings, short_folder
from tests.support.servers import Served, serve

pytestmark = needs_environment

BWRAP = shutil.which("bwrap") or "/usr/bin/bwrap"
# A user namespace that allows none below it, as a machine with user.max_user_namespaces=0 does.
NO_NAMESPACES = f"""#!/bin/sh
exec /usr/bin/unshare --user --map-root-user /bin/sh -c \\
  'echo 0 > /proc/sys/user/max_user_namespaces; exec {BWRAP} "$@"' sh "$@"
"""
# A container's seccomp profile that refuses unshare and clone with namespaces.
NO_UNSHARE = f"""#!{sys.executable} -I
import errno, os, sys
sys.path.insert(0, {{tree!r}})
from services.sandbox.inside import linux
from services.sandbox.sandboxd.seccomp import *
from services.sandbox.sandboxd import seccomp
import platform
numbers = seccomp.architecture(platform.machine()).numbers
program = [seccomp._load(0)]
program += seccomp._when(numbers['unshare'], [seccomp._return(seccomp._error(errno.EPERM))])
program += seccomp._when(numbers['clone'], seccomp._deny_if(0, [(seccomp._JUMP_SET, 0x7E020080)], errno.EPERM))
program.append(seccomp._return(seccomp._ALLOW))
linux.set_no_new_privileges()
linux.install_filter(b''.join(program))
os.execv({BWRAP!r}, [{BWRAP!r}, *sys.argv[1:]])
"""


@asynccontextmanager
async def refusing(settings: Settings) -> AsyncIterator[Served]:
    platform = test_platform()
    service = await build(settings, platform)
    async with serve(service, platform=platform) as served:
        yield served


async def refusal(served: Served) -> RemoteFailure:
    """Return how Execute fails; health must say NOT_SERVING and sessions must be refused too."""
    stub = pb_grpc.SandboxServiceStub(served.channel)
    metadata = served.platform.signer.metadata(principal())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in stub.Execute(pb.ExecuteRequest(execution_id="x", code="1"), metadata=metadata):
            pass
    with pytest.raises(grpc.aio.AioRpcError) as session:
        await stub.CreateSession(pb.CreateSessionRequest(), metadata=metadata)
    assert from_rpc_error(session.value).reason == "SANDBOX_UNSAFE"
    health = await health_pb2_grpc.HealthStub(served.channel).Check(
        health_pb2.HealthCheckRequest(service="proctor.sandbox.v1.SandboxService")
    )
    assert health.status == health_pb2.HealthCheckResponse.NOT_SERVING
    failure = from_rpc_error(caught.value)
    assert failure.code is grpc.StatusCode.FAILED_PRECONDITION
    assert failure.reason == "SANDBOX_UNSAFE"
    report = await stub.GetIsolation(pb.GetIsolationRequest(), metadata=metadata)
    assert not report.safe
    assert failure.metadata["remedy"] == next(check.remedy for check in report.checks if not check.passed)
    return failure


def script(folder: Path, text: str) -> str:
    path = folder / "bwrap"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


async def test_47_without_bubblewrap_nothing_runs() -> None:
    with short_folder() as folder:
        async with refusing(sandbox_settings(folder, bwrap=str(folder / "none"))) as served:
            failure = await refusal(served)
    assert failure.metadata["check"] == "bwrap_present"
    assert "install bubblewrap" in failure.metadata["remedy"]


async def test_47_an_old_bubblewrap_is_refused() -> None:
    with short_folder() as folder:
        old = script(folder, "#!/bin/sh\necho bubblewrap 0.4.1\n")
        async with refusing(sandbox_settings(folder, bwrap=old)) as served:
            failure = await refusal(served)
    assert failure.metadata["check"] == "bwrap_version"


async def test_47_a_setuid_bubblewrap_is_refused() -> None:
    with short_folder() as folder:
        copy = folder / "bwrap"
        shutil.copy(BWRAP, copy)
        copy.chmod(0o4755)
        async with refusing(sandbox_settings(folder, bwrap=str(copy))) as served:
            failure = await refusal(served)
    assert failure.metadata["check"] == "bwrap_not_setuid"
    assert "chmod u-s" in failure.metadata["remedy"]


@pytest.mark.parametrize("backend", list(Backend))
async def test_47_without_user_namespaces_nothing_runs(backend: Backend) -> None:
    with short_folder() as folder:
        async with refusing(sandbox_settings(folder, backend, bwrap=script(folder, NO_NAMESPACES))) as served:
            failure = await refusal(served)
    assert failure.metadata["check"] == "sandbox_starts_cold"
    assert "max_user_namespaces" in failure.metadata["remedy"]
    assert "namespace" in failure.metadata["detail"]


async def test_47_where_seccomp_forbids_unshare_nothing_runs() -> None:
    with short_folder() as folder:
        # The interpreter and this tree may be closed to the sandbox's user, so they are copied where it can read.
        tree = folder / "tree"
        for name in ("sandboxd", "inside"):
            shutil.copytree(
                Path(__file__).parents[2] / "services" / "sandbox" / name,
                tree / "services" / "sandbox" / name,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        (tree / "services" / "sandbox" / "__init__.py").touch()
        python = "/usr/bin/python3"
        if not Path(python).exists():
            pytest.skip("needs a Python that everyone may start, at /usr/bin/python3")
        text = NO_UNSHARE.replace(sys.executable, python, 1).replace("{tree!r}", repr(str(tree)))
        async with refusing(sandbox_settings(folder, bwrap=script(folder, text))) as served:
            failure = await refusal(served)
    assert failure.metadata["check"] == "sandbox_starts_cold"
    assert "seccomp" in failure.metadata["remedy"]


async def test_47_without_an_environment_for_code_nothing_runs() -> None:
    with short_folder() as folder:
        async with refusing(sandbox_settings(folder, python_environment=folder / "none")) as served:
            failure = await refusal(served)
    assert failure.metadata["check"] == "python_environment"
    assert "PROCTOR_SANDBOX_PYTHON_ENVIRONMENT" in failure.metadata["remedy"]


async def test_a_supervisor_that_never_speaks_is_a_refusal_and_not_a_wait() -> None:
    with short_folder() as folder:
        # The supervisor cannot make its lock file where a folder of that name stands.
        settings = sandbox_settings(folder)
        (settings.state_dir / "sandboxd.lock").mkdir(parents=True)
        async with refusing(settings) as served:
            failure = await refusal(served)
    assert failure.metadata["check"] == "supervisor_starts"
