"""What a notebook would show: the value of the last line, and tracebacks without our own frames."""

from __future__ import annotations

import ast
import linecache
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

SOURCE_NAME = "main.py"
_SHOWN_CHARACTERS = 20_000
# A library's own frames tell little: keep those nearest to the fault.
_LIBRARY_FRAMES = 4


def split_last_value(source: str) -> tuple[CodeType, CodeType | None]:
    """Compile `source`; when it ends in an expression, return that apart. Raise SyntaxError or ValueError."""
    tree = ast.parse(source, SOURCE_NAME)
    last: CodeType | None = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";"):
        expression = tree.body.pop()
        assert isinstance(expression, ast.Expr)
        last = compile(ast.Expression(expression.value), SOURCE_NAME, "eval")
    return compile(tree, SOURCE_NAME, "exec"), last


def remember_source(source: str) -> None:
    """Let tracebacks and `inspect` find the lines of the code, which is in no file."""
    linecache.cache[SOURCE_NAME] = (len(source), None, source.splitlines(keepends=True), SOURCE_NAME)


def show_value(value: object) -> None:
    """Print the value of the last line as a notebook would; None and the handles of a plot are no result."""
    if value is None or _is_plot_handle(value):
        return
    text = value if isinstance(value, str) else None
    shown = repr(text if text is not None else value)
    if len(shown) > _SHOWN_CHARACTERS:
        half = _SHOWN_CHARACTERS // 2
        shown = f"{shown[:half]}\n… {len(shown) - 2 * half} characters …\n{shown[-half:]}"
    print(shown)


def _is_plot_handle(value: object) -> bool:
    first = value[0] if isinstance(value, list | tuple) and value else value
    return type(first).__module__.startswith("matplotlib.")


def print_traceback(error: BaseException) -> None:
    """Write a short traceback to standard error: the code's own frames, and the last few of a library."""
    report = traceback.TracebackException.from_exception(error, compact=True)
    _shorten(report, seen=set())
    sys.stderr.write("".join(report.format()))


def _shorten(report: traceback.TracebackException, seen: set[int]) -> None:
    if id(report) in seen:
        return
    seen.add(id(report))
    frames = list(report.stack)
    own = [index for index, frame in enumerate(frames) if frame.filename == SOURCE_NAME]
    # Before the first line of the code there is only the harness; a syntax error has no line of the code at all.
    first = own[0] if own else len(frames)
    kept = {*own, *range(max(first, len(frames) - _LIBRARY_FRAMES), len(frames))}
    report.stack = traceback.StackSummary.from_list([f for index, f in enumerate(frames) if index in kept])
    for inner in (report.__cause__, report.__context__, *(report.exceptions or ())):
        if inner is not None:
            _shorten(inner, seen)
