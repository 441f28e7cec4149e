"""First process inside bubblewrap: imports the libraries once, then forks a job for each request.

A cold sandbox serves a single job and becomes it; a warm one (the zygote) stays single-threaded and forks.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket

from . import frames, init, interpreter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

CONTROL_FD = 3


def main() -> None:
    """Serve the supervisor on descriptor 3 until it hangs up; in a job's own process, run its code."""
    try:
        _serve(socket.socket(fileno=CONTROL_FD))
    except init.Confined as confined:
        channel, out, err = confined.descriptors
    except frames.ChannelClosed:
        return
    interpreter.run(channel, out, err, init.WORKSPACE)


def _serve(control: socket.socket) -> NoReturn:
    setup = frames.receive(control)
    header = setup.header
    view = init.View(header, setup.payload)
    if header["preload"]:
        init.link_fonts(view.font_folder)
        _preload(header["preload"])
    frames.send(control, {"kind": "ready"})
    if view.own_namespaces:
        # Ended jobs are nobody's business here: let the kernel reap them.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request = frames.receive(control)
        if not view.own_namespaces:
            _become(view, request, control)
        if os.fork() == 0:
            _become(view, request, control)
        request.close()


def _become(view: init.View, request: frames.Frame, control: socket.socket) -> None:
    job, out_fd, err_fd = request.fds
    control.close()
    init.start(view, socket.socket(fileno=job), out_fd, err_fd)


def _preload(modules: list[str]) -> None:
    """Import, exercise the slow first paths once, and freeze what is there so that forks share its pages."""
    for name in modules:
        importlib.import_module(name)
    if "matplotlib.pyplot" in modules:
        _draw_once()
    if "pandas" in modules:
        _compute_once()
    gc.collect()
    gc.freeze()
    gc.disable()


def _draw_once() -> None:
    import io

    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    _, axes = pyplot.subplots()
    axes.plot([1, 2])
    axes.set_title("x")
    pyplot.savefig(io.BytesIO(), format="png")
    pyplot.close("all")


def _compute_once() -> None:
    import io

    pandas: Any = importlib.import_module("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    frame.groupby("b").sum()
    repr(frame.describe())
    pandas.read_csv(io.StringIO("a,b\n1,2"))
