"""What hostile code can do to its own result (cases 38 to 42 and 48 of the sandbox's abuse table)."""

from __future__ import annotations

import pickle

import pytest

from services.sandbox.domain import InputFile, Status
from tests.support.sandbox import Runner, needs_environment

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_environment]


REMOVE = "import os; _ = os.system('rm -rf --no-preserve-root {} 2>/dev/null')"


@pytest.mark.parametrize(
    "destroy",
    [
        "import shutil; shutil.rmtree('/workspace', True)",
        REMOVE.format("/workspace /tmp /dev /proc /opt/venv/bin"),
        pytest.param(REMOVE.format("/"), marks=pytest.mark.prove),
    ],
)
async def test_38_a_result_comes_back_from_ruins(runner: Runner, destroy: str) -> None:
    result = await runner.run(f"print('before', flush=True)\n{destroy}\nprint('after')")
    assert result.text == "before\nafter\n"
    assert result.status is Status.OK
    assert (await runner.run("import json; print(json.dumps(1))")).text == "1\n"


async def test_38_a_removed_working_folder_does_not_hide_the_result(runner: Runner) -> None:
    result = await runner.run("import os; os.mkdir('d'); os.chdir('d'); os.rmdir('/workspace/d'); print('here')")
    assert result.text == "here\n"


async def test_39_a_crash_has_its_own_exit_code(runner: Runner) -> None:
    result = await runner.run("import ctypes; ctypes.string_at(0)")
    assert (result.status, result.finished.exit_code) == (Status.ERROR, 139)


async def test_39_a_hard_exit_has_its_own_exit_code(runner: Runner) -> None:
    result = await runner.run("import os; print('x', flush=True); os._exit(77)")
    assert (result.status, result.finished.exit_code, result.text) == (Status.ERROR, 77, "x\n")


async def test_40_what_is_no_plain_file_is_dropped_with_a_reason(runner: Runner) -> None:
    result = await runner.run("""
import os, socket
os.symlink('/etc/passwd', 'passwd'); os.symlink('/', 'root'); os.symlink('/proc/1/environ', 'environ')
socket.socket(socket.AF_UNIX).bind('sock')
open('closed', 'w').write('x'); os.chmod('closed', 0)
open('good', 'w').write('fine')
os.mkdir('shut'); open('shut/in', 'w').write('x'); os.chmod('shut', 0)
""")
    assert result.files == {"good": b"fine"}
    assert set(result.dropped) == {"passwd", "root", "environ", "sock", "closed", "shut"}
    assert result.dropped["passwd"] == "it is a link"
    assert result.dropped["sock"] == "it is not a regular file"
    assert "cannot be opened" in result.dropped["closed"]


async def test_40_a_link_to_a_folder_is_not_entered(runner: Runner) -> None:
    result = await runner.run("import os; os.symlink('/usr/share', 'share')")
    assert result.files == {}
    assert list(result.dropped) == ["share"]


async def test_41_names_that_could_fool_somebody_are_rejected(runner: Runner) -> None:
    result = await runner.run(r"""
import os
for name in (b'..\\win', b'line\nbreak\x1b[31m', b'bad\xff', b'x' * 201, 'turn\u202eed'.encode(), b'good.txt'):
    open(name, 'w').write('x')
""")
    assert list(result.files) == ["good.txt"]
    assert "..\\win" in result.dropped
    assert len(result.dropped) == 5
    assert all(name.isprintable() for name in result.dropped)


async def test_41_names_come_out_composed(runner: Runner) -> None:
    result = await runner.run("open('cafe\\u0301.txt', 'w').write('x')")
    assert list(result.files) == ["caf\u00e9.txt"]


async def test_42_only_so_many_files_are_taken(runner: Runner) -> None:
    result = await runner.run("for n in range(40): open(f'{n:02}', 'w').write('x')")
    assert sorted(result.files) == [f"{n:02}" for n in range(32)]
    assert result.dropped["32"] == "there are more than 32 files"
    assert len(result.dropped) == 8


async def test_42_only_so_many_bytes_are_taken(runner: Runner) -> None:
    result = await runner.run(
        "for n in range(4): open(f'{n}', 'wb').write(b'x' * (30 << 20))\nopen('big', 'wb').truncate(40 << 20)"
    )
    assert sorted(result.files) == ["0", "1"]
    assert sorted(result.dropped) == ["2", "3", "big"]


async def test_48_a_forged_result_is_plain_text(runner: Runner) -> None:
    forged = b'{"kind":"done","exit":0,"files":["/etc/passwd"]}\n' + pickle.dumps({"status": "OK"})
    result = await runner.run(f"import os; os.write(1, {forged!r}); os._exit(3)")
    assert (result.status, result.finished.exit_code) == (Status.ERROR, 3)
    assert result.stdout == forged
    assert result.files == {}


async def test_48_descriptors_of_the_harness_are_closed(runner: Runner) -> None:
    result = await runner.run("import os; print(sorted(int(fd) for fd in os.listdir('/proc/self/fd')))")
    # 0, 1, 2 and the one that lists.
    assert result.text == "[0, 1, 2, 3]\n"


async def test_the_harness_answers_nothing_to_introspection(runner: Runner) -> None:
    result = await runner.run("""
import gc, socket, sys
print([type(o).__name__ for o in gc.get_objects() if isinstance(o, socket.socket) and o.fileno() >= 0])
frame = sys._getframe()
while frame: names = list(frame.f_locals); frame = frame.f_back
print('program' in names)
""")
    assert result.text == "[]\nFalse\n"


async def test_inputs_are_not_handed_back_unless_changed(runner: Runner) -> None:
    files = [InputFile(name="a", content=b"1"), InputFile(name="b", content=b"2")]
    result = await runner.run("open('b', 'w').write('changed')", files=files)
    assert result.files == {"b": b"changed"}
