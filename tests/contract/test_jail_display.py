"""What a notebook would show, shown by the jail on both backends."""

from __future__ import annotations

import struct

import pytest

from services.sandbox.domain import Status
from tests.support.jails import runner
from tests.support.sandbox import Runner, needs_environment

__all__ = ["runner"]

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_environment]

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("1 + 1", "2\n"),
        ("x = 3\nx", "3\n"),
        ("'text'", "'text'\n"),
        ("None", ""),
        ("x = 1", ""),
        ("1 + 1;", ""),
        ("print('a')\n[1, 2]", "a\n[1, 2]\n"),
        ("for i in range(2): i", ""),
        ("import pandas as pd\npd.DataFrame({'a': [1, 2]})", "   a\n0  1\n1  2\n"),
        ("import sympy\nsympy.sqrt(8)", "2*sqrt(2)\n"),
    ],
)
async def test_the_value_of_the_last_line_is_shown(runner: Runner, code: str, shown: str) -> None:
    result = await runner.run(code)
    assert (result.text, result.errors) == (shown, "")


async def test_open_figures_become_files(runner: Runner) -> None:
    result = await runner.run(
        "import matplotlib.pyplot as plt\nfor n in range(2):\n    plt.figure()\n    plt.plot([n, 2])"
    )
    assert sorted(result.files) == ["figure-1.png", "figure-2.png"]
    assert all(data.startswith(PNG) for data in result.files.values())
    assert result.errors == ""


async def test_show_saves_the_figure_and_the_next_one_is_another(runner: Runner) -> None:
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nplt.plot([2, 1])"
    result = await runner.run(code)
    assert sorted(result.files) == ["figure-1.png", "figure-2.png"]
    assert result.errors == ""


async def test_an_empty_figure_is_no_file(runner: Runner) -> None:
    result = await runner.run("import matplotlib.pyplot as plt\nplt.figure()")
    assert result.files == {}


async def test_a_figure_that_the_code_saved_itself_is_not_saved_again(runner: Runner) -> None:
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('mine.png')"
    assert list((await runner.run(code)).files) == ["mine.png"]


async def test_figures_are_saved_after_an_error(runner: Runner) -> None:
    result = await runner.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\n1 / 0")
    assert list(result.files) == ["figure-1.png"]
    assert result.status is Status.ERROR


async def test_handles_of_a_plot_are_no_result(runner: Runner) -> None:
    result = await runner.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])")
    assert result.text == ""


async def test_chinese_text_in_a_plot_has_glyphs(runner: Runner) -> None:
    result = await runner.run("""
import warnings
warnings.simplefilter('error')
import matplotlib
import matplotlib.pyplot as plt
if len(matplotlib.rcParams['font.family']) > 1:
    plt.title('中文标题 日本語 한국어')
    plt.plot([-1, 1])
    plt.gcf().canvas.draw()
else:
    print('no font')
""")
    if "no font" in result.text:
        pytest.skip("no font with Chinese glyphs is installed; `apt install fonts-noto-cjk`")
    assert result.errors == ""
    width, height = struct.unpack(">II", result.files["figure-1.png"][16:24])
    assert width > 300
    assert height > 200


async def test_the_font_list_is_not_searched_again(runner: Runner) -> None:
    result = await runner.run("""
import time, sys
began = time.perf_counter()
import matplotlib.font_manager, os
print([n for n in os.listdir('/tmp/mpl') if n.startswith('fontlist')], os.path.islink('/tmp/mpl/matplotlibrc'))
""")
    assert result.text.startswith("['fontlist-v")
    assert result.errors == ""


async def test_tracebacks_show_the_code_and_not_the_harness(runner: Runner) -> None:
    result = await runner.run("def f(x):\n    return 1 / x\n\nf(0)")
    assert result.status is Status.ERROR
    assert result.errors.splitlines()[:2] == [
        "Traceback (most recent call last):",
        '  File "main.py", line 4, in <module>',
    ]
    assert "return 1 / x" in result.errors
    assert "ZeroDivisionError: division by zero" in result.errors
    assert "harness" not in result.errors
    assert "interpreter.py" not in result.errors


async def test_a_syntax_error_is_short(runner: Runner) -> None:
    result = await runner.run("x = = 1")
    assert "SyntaxError" in result.errors
    assert "harness" not in result.errors
    assert len(result.errors.splitlines()) <= 5


async def test_a_librarys_own_frames_are_cut_to_the_last_few(runner: Runner) -> None:
    result = await runner.run("import pandas as pd\npd.DataFrame({'a': [1]}).groupby('nope').sum()")
    assert "KeyError: 'nope'" in result.errors
    assert 'File "main.py", line 2' in result.errors
    assert result.errors.count("File ") <= 6


async def test_causes_are_shown_too(runner: Runner) -> None:
    result = await runner.run("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('outer') from e")
    assert "direct cause" in result.errors
    assert result.errors.rstrip().endswith("ValueError: outer")


async def test_the_code_is_the_main_module(runner: Runner) -> None:
    code = """
if __name__ == '__main__': print('main')
import pickle
class A: pass
print(type(pickle.loads(pickle.dumps(A()))) is A)
"""
    assert (await runner.run(code)).text == "main\nTrue\n"


async def test_threads_and_exit_handlers_finish(runner: Runner) -> None:
    code = """
import atexit, threading, time
atexit.register(print, 'exit handler')
threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()
"""
    assert (await runner.run(code)).text == "thread\nexit handler\n"


async def test_worker_processes_work(runner: Runner) -> None:
    code = """
from concurrent.futures import ProcessPoolExecutor
def square(n): return n * n
with ProcessPoolExecutor(2) as pool: print(list(pool.map(square, range(4))))
"""
    result = await runner.run(code)
    assert (result.text, result.errors) == ("[0, 1, 4, 9]\n", "")


async def test_another_python_of_the_same_environment_can_be_started(runner: Runner) -> None:
    code = """
import subprocess, sys
other = [sys.executable, '-c', 'import numpy; print(numpy.arange(2))']
print(subprocess.run(other, capture_output=True, text=True).stdout)
"""
    assert "[0 1]" in (await runner.run(code)).text


async def test_spreadsheets_and_tables_work(runner: Runner) -> None:
    result = await runner.run("""
import pandas as pd
pd.DataFrame({'a': [1]}).to_excel('t.xlsx', index=False)
print(pd.read_excel('t.xlsx').to_markdown())
""")
    assert result.status is Status.OK, result.errors
    assert list(result.files) == ["t.xlsx"]
