"""The catalogue: which models there are, from the file and the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.orchestrator.domain.messages import Sampling, Usage
from services.orchestrator.models.catalogue import FileCatalogue
from services.orchestrator.models.catalogue_file import ModelsInvalid
from services.orchestrator.models.errors import ModelNotFound
from services.orchestrator.models.model_settings import ModelSettings, Price
from services.orchestrator.models.ports import Purpose

FULL = """
[models.big]
upstream_name = "big-2"
base_url = "https://models.example.org/v1"
key_env = "BIG_KEY"
window = 200000
output_limit = 8192
capabilities = ["tools", "vision", "json_schema"]
price = { input = 2.5, cached_input = 0.25, output = 10 }
fallbacks = ["small"]
sampling = { temperature = 0.2, stop = ["END"] }

[models.small]
base_url = "http://127.0.0.1:1/v1"
roles = ["route", "title"]
"""


def catalogue(directory: Path, toml: str = "", environ: dict[str, str] | None = None) -> FileCatalogue:
    path = directory / "proctor.toml"
    path.write_text(toml, encoding="utf-8")
    return FileCatalogue(path, environ or {})


def test_without_configuration_the_reader_is_the_only_model(tmp_path: Path) -> None:
    found = FileCatalogue(tmp_path / "missing.toml", {})
    assert [info.model_id for info in found.list()] == ["reader"]
    assert found.default(Purpose.ANSWER).model_id == "reader"
    assert "No language model" in found.get("reader").description


def test_the_environment_names_one_model(tmp_path: Path) -> None:
    environ = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "OPENAI_API_KEY": "k", "PROCTOR_MODEL": "qwen3"}
    found = catalogue(tmp_path, environ=environ)
    assert [info.model_id for info in found.list()] == ["qwen3", "reader"]
    assert found.default(Purpose.TITLE).model_id == "qwen3"
    settings = found.settings("qwen3")
    assert settings is not None
    assert str(settings.api_key) == "k"
    assert "k" not in repr(settings.api_key).replace("Secret", "")


def test_a_file_describes_models_fully(tmp_path: Path) -> None:
    found = catalogue(tmp_path, FULL, {"BIG_KEY": "secret"})
    settings = found.settings("big")
    assert settings is not None
    assert settings.upstream_name == "big-2"
    assert str(settings.api_key) == "secret"
    assert settings.price.cost_micros(Usage(input_tokens=1000, cached_input_tokens=400, output_tokens=10)) == 1700
    assert settings.sampled(Sampling(max_output_tokens=99999)) == Sampling(
        temperature=0.2, stop=("END",), max_output_tokens=8192
    )
    assert found.get("big").fallbacks == ("small",)
    assert found.default(Purpose.ROUTE).model_id == "small"
    assert found.default(Purpose.ANSWER).model_id == "big"


def test_every_fault_of_the_file_is_told_at_once(tmp_path: Path) -> None:
    toml = """
    [models.a]
    base_url = "ftp://x"
    window = "big"
    capabilities = ["flying"]
    roles = ["cook"]
    fallbacks = ["ghost"]
    key_env = "NOT_SET"
    colour = "red"
    sampling = { heat = 1 }
    api = "soap"
    """
    with pytest.raises(ModelsInvalid) as caught:
        catalogue(tmp_path, toml)
    told = "\n".join(caught.value.problems)
    for fault in ("base_url", "window", "flying", "cook", "ghost", "NOT_SET", "colour", "heat", "soap"):
        assert fault in told


def test_an_unknown_model_is_not_found_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="'nope'"):
        catalogue(tmp_path).get("nope")


def test_a_changed_file_is_read_again_and_a_wrong_one_keeps_the_last_good(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = catalogue(tmp_path, FULL, {"BIG_KEY": "secret"})
    path = tmp_path / "proctor.toml"
    assert not found.reload()
    rewrite(path, FULL.replace("big-2", "big-3"))
    assert found.reload()
    assert found.get("big").upstream_name == "big-3"
    rewrite(path, "[models.big\n")
    assert not found.reload()
    assert found.get("big").upstream_name == "big-3"
    assert "last good ones stay" in caplog.text


def rewrite(path: Path, text: str) -> None:
    """Write a file so that its time of change differs whatever the clock's grain."""
    changed = path.stat().st_mtime_ns + 1_000_000
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(changed, changed))


def test_prices_are_millionths_per_token() -> None:
    assert Price(input=1.0, output=2.0).cost_micros(Usage(input_tokens=10, output_tokens=5)) == 20


def test_the_provider_is_known_by_its_host() -> None:
    gemini = "https://generativelanguage.googleapis.com/v1beta/openai/"
    assert ModelSettings(model_id="g", upstream_name="g", base_url=gemini).provider == "gcp.gemini"
    assert ModelSettings(model_id="x", upstream_name="x", base_url="http://127.0.0.1:1").provider == "openai"
