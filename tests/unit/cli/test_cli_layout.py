from __future__ import annotations

from pathlib import Path

import pytest

from services.chassis.settings import load
from services.cli.layout import MAX_SOCKET_PATH, NAMES, WAVES, environment, make_layout
from services.cli.up import AlreadyRunning, only_one


def test_every_service_gets_its_address_its_folder_and_its_peers(tmp_path: Path) -> None:
    layout = make_layout(tmp_path / "d", "127.0.0.1:0")
    environ = environment(layout, {})
    assert len(environ["PROCTOR_SIGNING_KEY"]) == 64
    assert environ["PROCTOR_GATEWAY_LISTEN"] == "127.0.0.1:0"
    assert environ["PROCTOR_APPROVAL_LISTEN"] == layout.address("approval")
    assert environ["PROCTOR_GATEWAY_APPROVAL_TARGET"] == layout.address("approval")
    assert environ["PROCTOR_ORCHESTRATOR_RETRIEVAL_TARGET"] == layout.address("retrieval")
    assert environ["PROCTOR_RETRIEVAL_DATA_DIR"] == str(layout.data_dir)
    layout.remove()


@pytest.mark.parametrize("name", NAMES)
def test_the_environment_makes_valid_settings_for_every_service(name: str, tmp_path: Path) -> None:
    from importlib import import_module

    layout = make_layout(tmp_path, "127.0.0.1:8080")
    settings = load(import_module(f"services.{name}.settings").Settings, name, environment(layout, {}))
    assert settings.listen == layout.address(name)
    layout.remove()


def test_what_the_caller_sets_is_kept(tmp_path: Path) -> None:
    layout = make_layout(tmp_path, "127.0.0.1:8080")
    environ = environment(layout, {"PROCTOR_APPROVAL_DATABASE_URL": "u", "PROCTOR_SIGNING_KEY": "k"})
    assert (environ["PROCTOR_APPROVAL_DATABASE_URL"], environ["PROCTOR_SIGNING_KEY"]) == ("u", "k")
    layout.remove()


def test_sockets_move_when_their_path_would_be_too_long(tmp_path: Path) -> None:
    layout = make_layout(tmp_path / ("x" * 120), "127.0.0.1:8080")
    assert all(len(layout.address(name)) <= MAX_SOCKET_PATH for name in NAMES)
    assert layout.sockets.exists()
    layout.remove()
    assert not layout.sockets.exists()


def test_the_gateway_starts_last_and_what_it_calls_before_it() -> None:
    assert [sorted(wave) for wave in WAVES] == [["approval", "retrieval", "sandbox"], ["orchestrator"], ["gateway"]]


def test_a_data_folder_serves_one_suite(tmp_path: Path) -> None:
    layout = make_layout(tmp_path, "127.0.0.1:8080")
    with only_one(layout), pytest.raises(AlreadyRunning, match="--data-dir"), only_one(layout):
        pass
    with only_one(layout):
        pass
    layout.remove()
