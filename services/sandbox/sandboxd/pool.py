"""Keeps jobs parked ahead of need, recycles the zygote, and starts cold sandboxes when there is no warm one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count

from services.sandbox.sandboxd.cgroups import Group, Hierarchy
from services.sandbox.sandboxd.config import WARM, Config
from services.sandbox.sandboxd.launcher import Launcher, Recipe
from services.sandbox.sandboxd.loop import Loop
from services.sandbox.sandboxd.worker import Listener, Worker

# After a zygote that died before it was ready, wait before the next try: a broken machine is not hammered.
_RETRY_SECONDS = 1.0


class Pool:
    """Makes workers. Each cold sandbox and each zygote has a host user of its own from a small range."""

    def __init__(self, loop: Loop, config: Config, recipe: Recipe, hierarchy: Hierarchy, listener: Listener) -> None:
        self._loop = loop
        self._config = config
        self._recipe = recipe
        self._hierarchy = hierarchy
        self._listener = listener
        self._serial = count(1)
        self._workers: set[Worker] = set()
        self._zygote: Launcher | None = None
        self._retired: list[Launcher] = []
        self._retry_at = 0.0
        self._dying_groups: list[Group] = []
        self.on_change: Callable[[], None] = lambda: None

    def warm_up(self) -> None:
        """Start a zygote when the warm backend is configured and there is none."""
        if self._config.backend == WARM and self._zygote is None and self._loop.now() >= self._retry_at:
            uid = self._free_uid()
            self._zygote = Launcher(self._loop, self._recipe, uid, many=True, on_change=self._zygote_changed)

    def parked(self) -> Worker | None:
        """Return a warm job that waits for code, or None."""
        return next((w for w in self._workers if w.parked and not w.session and w.launcher is self._zygote), None)

    def parked_count(self) -> int:
        """Return how many warm jobs wait for code."""
        return sum(1 for w in self._workers if w.parked and not w.session and w.launcher is self._zygote)

    def ready_to_fork(self) -> bool:
        """Return whether a warm job can be had by waiting a moment."""
        return self._zygote is not None and self._zygote.ready

    def fork(self) -> Worker:
        """Return a new job of the zygote; it parks later."""
        assert self._zygote is not None
        return self._start(self._zygote)

    def cold(self) -> Worker:
        """Return a job in a sandbox of its own; it parks later."""
        launcher = Launcher(self._loop, self._recipe, self._free_uid(), many=False, on_change=lambda _: None)
        return self._start(launcher)

    def discard(self, worker: Worker) -> None:
        """Forget an ended worker and remove its group when the last process is gone."""
        self._workers.discard(worker)
        if worker.group is not None:
            self._dying_groups.append(worker.group)

    def tick(self) -> None:
        """Check limits of every worker, remove dead groups, recycle and refill."""
        for worker in list(self._workers):
            worker.tick()
        self._dying_groups = [group for group in self._dying_groups if not group.remove()]
        self._retire_old_zygote()
        self.warm_up()

    def refill(self, reserved: int) -> None:
        """Fork jobs until enough are parked or about to be; `reserved` of those under way are promised already."""
        if not self.ready_to_fork():
            return
        waiting = sum(1 for w in self._workers if w.launcher is self._zygote and w.task is None and not w.session)
        for _ in range(self._config.parked + reserved - waiting):
            self.fork()

    def running(self) -> bool:
        """Return whether any job runs code or is being set up or torn down."""
        return any(not w.parked for w in self._workers) or bool(self._dying_groups)

    def close(self) -> None:
        """Kill everything and remove every group."""
        for worker in list(self._workers):
            worker.kill()
        for launcher in self._launchers():
            launcher.close()
        self._zygote = None
        self._loop.run_until(self._groups_gone, 2.0)

    def zygote_diagnostics(self) -> str:
        """Return what the zygote wrote to standard error."""
        return self._zygote.diagnostics() if self._zygote is not None else ""

    def zygote_pid(self) -> int:
        """Return the process id of the zygote's bubblewrap, 0 when there is none."""
        return self._zygote.pid if self._zygote is not None else 0

    def _groups_gone(self) -> bool:
        self._dying_groups = [group for group in self._dying_groups if not group.remove()]
        return not self._dying_groups

    def _start(self, launcher: Launcher) -> Worker:
        group = self._hierarchy.create(f"{next(self._serial)}")
        worker = Worker(self._loop, launcher, group, self._recipe.bounds, self._listener)
        self._workers.add(worker)
        return worker

    def _launchers(self) -> Iterator[Launcher]:
        if self._zygote is not None:
            yield self._zygote
        yield from self._retired
        yield from (w.launcher for w in self._workers if not w.launcher.many)

    def _free_uid(self) -> int:
        used = {launcher.uid for launcher in self._launchers() if launcher.alive}
        return next(uid for uid in count(self._config.uid_base) if uid not in used)

    def _zygote_changed(self, launcher: Launcher) -> None:
        if not launcher.alive:
            if not launcher.ready and launcher.jobs == 0:
                self._retry_at = self._loop.now() + _RETRY_SECONDS
            _report_death(launcher)
            if self._zygote is launcher:
                self._zygote = None
            launcher.close()
        self.on_change()

    def _retire_old_zygote(self) -> None:
        """Replace a zygote that made enough jobs or is old; it stays until its last job has ended."""
        zygote, config = self._zygote, self._config
        if zygote is not None and zygote.ready:
            age = self._loop.now() - zygote.born
            if zygote.jobs >= config.recycle_jobs or age >= config.recycle_seconds:
                self._zygote = None
                self._retired.append(zygote)
        for retired in list(self._retired):
            # Also a job that was still being set up when its zygote retired parks in vain.
            for worker in list(self._workers):
                if worker.launcher is retired and worker.parked and not worker.session:
                    worker.kill()
            if not any(w.launcher is retired for w in self._workers):
                retired.close()
                self._retired.remove(retired)


def _report_death(launcher: Launcher) -> None:
    """Say on standard error, which is the service's log, why a zygote died."""
    text = f"sandboxd: a zygote died after {launcher.jobs} jobs: {launcher.diagnostics() or 'no reason given'}\n"
    os.write(2, text.encode())
