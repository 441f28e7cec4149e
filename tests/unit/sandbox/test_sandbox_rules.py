"""Limits, names, sentences, frames, the probe's judgement: everything that is pure."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace

import pytest

from services.chassis.errors import InvalidRequest, TooLarge
from services.sandbox.artifacts import checked_inputs
from services.sandbox.domain import Finished, InputFile, Job, Limits, Owner, Status, describe
from services.sandbox.inside import frames, names
from services.sandbox.limits import DEFAULTS, MAXIMA, Requested, resolve
from services.sandbox.sandboxd import probe
from services.sandbox.sandboxd.config import Config
from services.sandbox.settings import Settings

LIMITS = Limits(wall=30, cpu=20, memory_bytes=1 << 30, pids=64)


def test_what_is_unset_takes_the_default() -> None:
    assert resolve(Requested()) == DEFAULTS
    assert resolve(Requested(wall=1.5)).wall == 1.5


def test_the_maxima_themselves_are_fine() -> None:
    maxima = Requested(wall=MAXIMA.wall, cpu=MAXIMA.cpu, memory_bytes=MAXIMA.memory_bytes, pids=MAXIMA.pids)
    assert resolve(maxima) == MAXIMA


@pytest.mark.parametrize(
    ("requested", "field"),
    [
        (Requested(wall=301), "limits.wall"),
        (Requested(wall=-1), "limits.wall"),
        (Requested(cpu=201), "limits.cpu"),
        (Requested(memory_bytes=(4 << 30) + 1), "limits.memory_bytes"),
        (Requested(memory_bytes=1000), "limits.memory_bytes"),
        (Requested(pids=257), "limits.pids"),
    ],
)
def test_each_field_out_of_bounds_is_named(requested: Requested, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        resolve(requested)
    assert [violation.field for violation in caught.value.violations] == [field]


@pytest.mark.parametrize("name", ["a.txt", "folder/b.csv", "数据.csv", "with space", ".hidden", "x" * 200])
def test_plain_names_are_fine(name: str) -> None:
    assert names.rejection(name) == ""


@pytest.mark.parametrize(
    "name",
    [
        "",
        "../x",
        "a/../b",
        "/abs",
        "a//b",
        ".",
        "a\\b",
        "a\nb",
        "\x1b[31m",
        "\u202e",
        "x" * 201,
        "\udcff",
        "/".join("x" * 9),
    ],
)
def test_names_that_could_fool_somebody_are_rejected(name: str) -> None:
    assert names.rejection(name) != ""


def test_names_are_shown_printable_and_short() -> None:
    assert names.display("a\nb\x1b\udcff") == "a\\nb\\x1b\\xff"
    assert len(names.display("x" * 1000)) == 201


def test_input_names_are_unique_after_composition() -> None:
    files = [InputFile(name="e\u0301", content=b""), InputFile(name="\u00e9", content=b"")]
    with pytest.raises(InvalidRequest, match="twice"):
        checked_inputs(files)


def test_too_many_input_bytes_are_too_large() -> None:
    with pytest.raises(TooLarge):
        checked_inputs([InputFile(name="a", content=bytes((64 << 20) + 1))])


def job(**changes: object) -> Job:
    fields = {"execution_id": "e", "owner": Owner(tenant="t", user="u"), "code": "1", "files": (), "limits": LIMITS}
    return Job(**{**fields, **changes})  # type: ignore[arg-type]


def test_the_digest_tells_code_inputs_and_session_apart() -> None:
    jobs = [
        job(),
        job(code="2"),
        job(session_id="s"),
        job(files=(InputFile(name="a", content=b"1"),)),
        job(files=(InputFile(name="a", content=b"2"),)),
        job(files=(InputFile(name="b", content=b"1"),)),
    ]
    assert len({each.digest() for each in jobs}) == len(jobs)
    assert job().digest() == job(execution_id="other").digest()


@pytest.mark.parametrize(
    ("finished", "start"),
    [
        (Finished(status=Status.OK, wall=1.23), "OK after 1.2 s."),
        (Finished(status=Status.ERROR, exit_code=1), "ERROR: exit code 1"),
        (Finished(status=Status.ERROR, exit_code=139), "ERROR: killed by SIGSEGV"),
        (Finished(status=Status.TIMEOUT), "TIMEOUT after 30 s"),
        (Finished(status=Status.CPU), "CPU limit of 20 s"),
        (Finished(status=Status.OOM), "OOM: the memory limit of 1024 MiB"),
        (Finished(status=Status.OUTPUT_LIMIT), "OUTPUT_LIMIT"),
        (Finished(status=Status.CANCELLED), "CANCELLED"),
        (Finished(status=Status.SANDBOX_ERROR, detail="why"), "SANDBOX_ERROR: why; the code may or may not"),
    ],
)
def test_every_ending_has_a_sentence(finished: Finished, start: str) -> None:
    assert describe(finished, LIMITS).startswith(start)


def test_a_lost_state_is_said() -> None:
    assert "state is lost" in describe(Finished(status=Status.TIMEOUT, state_lost=True), LIMITS)


def test_frames_carry_header_payload_and_files() -> None:
    one, two = frames.pair()
    with one, two:
        read, write = os.pipe()
        frames.send(one, {"kind": "x", "text": "中"}, b"\x00raw", [write])
        os.close(write)
        frame = frames.receive(two)
        assert (frame.header, frame.payload) == ({"kind": "x", "text": "中"}, b"\x00raw")
        os.write(frame.fds[0], b"!")
        frame.close()
        assert os.read(read, 2) == b"!"
        os.close(read)


@pytest.mark.parametrize("data", [b"x", b"\xff\xff\xff\xff{}", b"\x02\x00\x00\x00[]", b"\x01\x00\x00\x00{"])
def test_nonsense_on_a_channel_ends_it(data: bytes) -> None:
    one, two = frames.pair()
    with one, two:
        one.send(data)
        with pytest.raises(frames.ChannelClosed):
            frames.receive(two)


def test_the_end_of_a_channel_is_told() -> None:
    one, two = frames.pair()
    with two:
        one.close()
        with pytest.raises(frames.ChannelClosed):
            frames.receive(two)
        with pytest.raises(frames.ChannelClosed):
            frames.send(two, {})


def test_the_kernel_names_the_sender() -> None:
    one, two = frames.pair()
    with one, two:
        two.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        frames.send(one, {})
        assert frames.receive(two).pid == os.getpid()


SAFE = {
    "user_namespace": "user:[2]",
    "init_environ": "!PermissionError",
    "environments": ["", "HOME=/workspace"],
    "environ": ["HOME"],
    "canary_file": False,
    "proc_sys_writable": [],
}
HOST = probe.HostView(
    user_namespace="user:[2]",
    own_user_namespace="user:[1]",
    uid=60600,
    no_new_privileges=True,
    capabilities=0,
    filtered=True,
    interfaces=frozenset({"lo"}),
)


def failures(found: dict[str, object], host: probe.HostView = HOST) -> list[str]:
    checks, _ = probe.judge(json.dumps(found), host)
    assert all(check.remedy for check in checks if not check.passed)
    return [check.name for check in checks if not check.passed]


def test_a_good_probe_passes() -> None:
    assert failures(SAFE) == []


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("init_environ", "SECRET=1", "init_environment"),
        ("environ", ["HOME", probe.CANARY_VARIABLE], "canary_variable"),
        ("environments", [f"{probe.CANARY_VARIABLE}=1"], "canary_variable"),
        ("canary_file", True, "canary_file"),
        ("proc_sys_writable", ["/proc/sys/kernel/core_pattern"], "kernel_settings"),
    ],
)
def test_each_leak_fails_its_own_check(key: str, value: object, name: str) -> None:
    assert failures({**SAFE, key: value}) == [name]


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("user_namespace", "user:[1]", "user_namespace"),
        ("uid", 0, "unprivileged_user"),
        ("no_new_privileges", False, "no_new_privileges"),
        ("capabilities", 0x200000, "no_capabilities"),
        ("filtered", False, "system_call_filter"),
        ("interfaces", frozenset({"lo", "eth0"}), "no_network"),
    ],
)
def test_each_fault_the_host_sees_fails_its_own_check(field: str, value: object, name: str) -> None:
    assert failures(SAFE, replace(HOST, **{field: value})) == [name]  # type: ignore[arg-type]


def test_where_the_host_may_not_look_the_sandbox_says_which_namespace_it_is_in() -> None:
    blind = replace(HOST, user_namespace="")
    assert failures(SAFE, blind) == []
    assert failures({**SAFE, "user_namespace": "user:[1]"}, blind) == ["user_namespace"]
    assert failures({**SAFE, "user_namespace": ""}, blind) == ["user_namespace"]


def test_a_probe_that_prints_nonsense_fails() -> None:
    checks, facts = probe.judge("Traceback", HOST)
    assert ([check.name for check in checks], facts) == (["probe_ran"], {})


def test_the_supervisors_configuration_survives_the_wire() -> None:
    config = Config(python_environment="/e", state_dir="/s", preload=("a", "b"))
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize("changes", [{"slots": 0}, {"parked": -1}, {"uid_base": 10}, {"node": "x" * 32}])
def test_settings_that_make_no_sense_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must"):
        Settings(**changes)  # type: ignore[arg-type]
