"""Open matplotlib figures become files by themselves, as figure-1.png and so on."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_PYPLOT = "matplotlib.pyplot"
# On a figure: how many parts it had when the code saved it itself.
_SAVED = "_saved_parts"


class Figures:
    """Saves figures that are still open into a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._count = 0

    def watch(self) -> None:
        """Hook into pyplot, now or when the code imports it."""
        pyplot = sys.modules.get(_PYPLOT)
        if pyplot is None:
            sys.meta_path.insert(0, _AfterImport(_PYPLOT, self._hook))
        else:
            self._hook(pyplot)

    def save_open(self) -> None:
        """Save and close every open figure; one that the code saved and did not change since is only closed."""
        pyplot: Any = sys.modules.get(_PYPLOT)
        if pyplot is None:
            return
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            drawn = figure.axes or figure.texts or figure.images
            if drawn and getattr(figure, _SAVED, -1) != _parts(figure):
                self._save(figure)
        pyplot.close("all")

    def _hook(self, pyplot: ModuleType) -> None:
        figures: Any = sys.modules["matplotlib.figure"]
        pyplot.show = lambda *_, **__: self.save_open()  # type: ignore[attr-defined]  # there is no screen
        savefig = figures.Figure.savefig

        def save_and_remember(figure: Any, target: Any, *arguments: Any, **named: Any) -> None:
            savefig(figure, target, *arguments, **named)
            if isinstance(target, str | os.PathLike):
                setattr(figure, _SAVED, _parts(figure))

        figures.Figure.savefig = save_and_remember

    def _save(self, figure: Any) -> None:
        while True:
            self._count += 1
            path = os.path.join(self._folder, f"figure-{self._count}.png")
            if not os.path.lexists(path):
                break
        try:
            figure.savefig(path, dpi=110, bbox_inches="tight")
        except Exception as error:
            print(f"figure {self._count} could not be drawn: {error!r}", file=sys.stderr)


def _parts(figure: Any) -> int:
    return len(figure.findobj())


class _AfterImport:
    """A finder on `sys.meta_path` that calls back once, after a module was imported by anyone."""

    def __init__(self, name: str, callback: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._callback = callback

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        found = (finder.find_spec(fullname, path, target) for finder in sys.meta_path)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None or spec.loader is None:
            return None
        loader, execute = spec.loader, spec.loader.exec_module

        def execute_and_call(module: ModuleType) -> None:
            execute(module)
            self._callback(module)

        loader.exec_module = execute_and_call  # type: ignore[method-assign]
        return spec
