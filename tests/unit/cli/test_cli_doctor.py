from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from services.cli import doctor
from services.cli.doctor import Grade
from tests.support.postgres import free_port


def test_every_finding_that_is_not_good_says_how_to_mend_it(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    findings = doctor.examine({"PROCTOR_SANDBOX_PYTHON_ENVIRONMENT": str(tmp_path)}, tmp_path, url)
    assert {finding.name for finding in findings} >= {"Python", "Suite", "Model", "Bubblewrap", "Sandbox Python"}
    assert all(finding.remedy for finding in findings if finding.grade is not Grade.GOOD)


def test_without_bubblewrap_code_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.cli.doctor.shutil.which", lambda name: None)
    assert doctor.bubblewrap().grade is Grade.BAD
    assert "apt-get install bubblewrap" in doctor.bubblewrap().remedy
    assert doctor.namespaces().grade is Grade.BAD


def test_a_taken_port_is_told() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        found = doctor.front_door(f"http://127.0.0.1:{port}")
    assert found.grade is Grade.BAD
    assert "--listen" in found.remedy


def test_a_model_endpoint_that_does_not_answer_is_told() -> None:
    environ = {"OPENAI_BASE_URL": f"http://127.0.0.1:{free_port()}/v1", "OPENAI_API_KEY": "k"}
    assert doctor.model(environ).grade is Grade.BAD
    assert doctor.model({}).grade is Grade.LIMITED


@pytest.mark.parametrize(("status", "grade"), [(200, Grade.GOOD), (401, Grade.BAD)])
def test_a_model_endpoint_is_asked_with_the_key(monkeypatch: pytest.MonkeyPatch, status: int, grade: Grade) -> None:
    asked: list[str] = []

    def get(url: str, headers: dict[str, str], timeout: float) -> httpx.Response:
        asked.append(f"{url} {headers['Authorization']}")
        return httpx.Response(status)

    monkeypatch.setattr("services.cli.doctor.httpx.get", get)
    assert doctor.model({"OPENAI_BASE_URL": "http://m/v1/", "OPENAI_API_KEY": "k"}).grade is grade
    assert asked == ["http://m/v1/models Bearer k"]
