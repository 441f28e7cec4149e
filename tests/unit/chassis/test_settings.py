from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path

import pytest

from services.chassis.platform import PlatformSettings
from services.chassis.settings import Secret, SettingsError, load


class Level(Enum):
    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True)
class Settings:
    name: str
    listen: str = "127.0.0.1:9100"
    workers: int = 2
    share: float = 0.5
    verbose: bool = False
    data_dir: Path = Path(".proctor")
    key: Secret = Secret("")
    timeout: timedelta = timedelta(seconds=30)
    hosts: tuple[str, ...] = ()
    level: Level = Level.LOW
    limit: int | None = None


def test_fields_come_from_the_services_variables() -> None:
    environ = {
        "PROCTOR_PROBE_NAME": "n",
        "PROCTOR_PROBE_WORKERS": "7",
        "PROCTOR_PROBE_SHARE": "0.25",
        "PROCTOR_PROBE_VERBOSE": "Yes",
        "PROCTOR_PROBE_DATA_DIR": "/data",
        "PROCTOR_PROBE_KEY": "hunter2",
        "PROCTOR_PROBE_TIMEOUT": "1.5",
        "PROCTOR_PROBE_HOSTS": "a, b,,c",
        "PROCTOR_PROBE_LEVEL": "high",
        "PROCTOR_PROBE_LIMIT": "9",
        "PROCTOR_OTHER_NAME": "another service's",
    }
    assert load(Settings, "probe", environ) == Settings(
        name="n",
        workers=7,
        share=0.25,
        verbose=True,
        data_dir=Path("/data"),
        key=Secret("hunter2"),
        timeout=timedelta(seconds=1.5),
        hosts=("a", "b", "c"),
        level=Level.HIGH,
        limit=9,
    )


def test_what_is_not_set_keeps_its_default() -> None:
    settings = load(Settings, "probe", {"PROCTOR_PROBE_NAME": "n", "PROCTOR_PROBE_LIMIT": " "})
    assert settings == Settings(name="n")


def test_every_problem_is_told_at_once() -> None:
    environ = {
        "PROCTOR_PROBE_WORKERS": "two",
        "PROCTOR_PROBE_VERBOSE": "maybe",
        "PROCTOR_PROBE_LEVEL": "middle",
        "PROCTOR_PROBE_WORKRES": "2",
    }
    with pytest.raises(SettingsError) as caught:
        load(Settings, "probe", environ)
    told = caught.value.problems
    assert [problem.partition(":")[0] for problem in told] == [
        "PROCTOR_PROBE_NAME",
        "PROCTOR_PROBE_WORKERS",
        "PROCTOR_PROBE_VERBOSE",
        "PROCTOR_PROBE_LEVEL",
        "PROCTOR_PROBE_WORKRES",
    ]
    assert "'two'" in told[1]
    assert "low, high" in told[3]


def test_a_secret_shows_in_no_repr() -> None:
    settings = load(Settings, "probe", {"PROCTOR_PROBE_NAME": "n", "PROCTOR_PROBE_KEY": "hunter2"})
    assert "hunter2" not in repr(settings)
    assert settings.key == "hunter2"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "PROCTOR_SIGNING_KEY: required"),
        ({"PROCTOR_SIGNING_KEY": "short"}, "needs 32 characters"),
        ({"PROCTOR_SIGNING_KEY": "k" * 32, "PROCTOR_TLS_KEY": "/k"}, "all three or none"),
    ],
)
def test_the_platform_refuses_half_a_configuration(environ: dict[str, str], expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        load(PlatformSettings, "", environ)
