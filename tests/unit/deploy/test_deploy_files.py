"""What is shipped for operators fits what the services are: settings, names, schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.chassis import names
from services.chassis.platform import PlatformSettings
from services.chassis.settings import load
from services.chassis.telemetry import TelemetrySettings
from services.cli.layout import NAMES

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
SIGNING = {"PROCTOR_SIGNING_KEY": "k" * 32}


def documents(*patterns: str) -> list[dict[str, Any]]:
    paths = sorted(path for pattern in patterns for path in KUBERNETES.glob(pattern))
    return [document for path in paths for document in yaml.safe_load_all(path.read_text()) if document]


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in documents("*.yaml") if each["kind"] == kind}


def check_settings(name: str, environ: dict[str, str]) -> None:
    ours = {key: value for key, value in environ.items() if key.startswith("PROCTOR_")}
    load(PlatformSettings, "", SIGNING | ours)
    load(TelemetrySettings, "telemetry", ours)
    settings = load(import_module(f"services.{name}.settings").Settings, name, ours)
    assert settings.listen.startswith("0.0.0.0:")


@pytest.mark.parametrize("name", NAMES)
def test_the_composed_service_starts_with_valid_settings_and_its_own_command(name: str) -> None:
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"][name]
    environ = {key: re.sub(r"\$\{[^}]*\}", "x" * 32, str(value)) for key, value in service["environment"].items()}
    check_settings(name, environ)
    assert service["command"] == ["python", "-m", f"services.{name}"]
    assert service["read_only"] is True


@pytest.mark.parametrize("name", NAMES)
def test_the_deployed_service_starts_with_valid_settings_and_its_own_secret(name: str) -> None:
    (container,) = of_kind("Deployment")[name]["spec"]["template"]["spec"]["containers"]
    secrets = {
        each["metadata"]["name"]: each["stringData"]
        for each in yaml.safe_load_all((KUBERNETES / "secrets.example.yaml").read_text())
    }
    environ: dict[str, str] = {}
    for source in container["envFrom"]:
        environ |= secrets[source["secretRef"]["name"]]
    environ |= {each["name"]: each["value"] for each in container["env"]} | SIGNING
    check_settings(name, environ)
    assert container["command"] == ["python", "-m", f"services.{name}"]


def test_the_common_patch_keeps_what_a_service_says_of_itself() -> None:
    (patch,) = documents("patches/*.yaml")
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert container["name"] == "service"
    # A list without a merge key, such as envFrom, would replace the service's own.
    assert "envFrom" not in container
    environ = {each["name"]: each["value"] for each in container["env"]} | SIGNING
    assert load(PlatformSettings, "", {k: v for k, v in environ.items() if k.startswith("PROCTOR_")}).tls is not None
    assert patch["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_every_file_is_in_the_kustomization() -> None:
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    present = {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml", "secrets.example.yaml"}
    assert set(listed) == present


def native() -> Iterator[dict[str, Any]]:
    for each in documents("*.yaml"):
        if "cert-manager.io" not in each["apiVersion"] and each["kind"] != "Kustomization":
            yield each


@pytest.mark.parametrize("document", list(native()), ids=lambda d: f"{d['kind']}-{d['metadata']['name']}")
def test_manifests_satisfy_the_schemas_of_kubernetes(document: dict[str, Any]) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    validate.validate(document, validate.latest_version(), strict=True)


def test_every_service_has_a_budget_for_disruptions_a_certificate_and_a_network_policy() -> None:
    for kind in ("PodDisruptionBudget", "Certificate", "NetworkPolicy", "ServiceAccount", "Service"):
        assert set(NAMES) <= set(of_kind(kind)), kind


def test_the_collector_redacts_content_and_keeps_what_matters() -> None:
    config = yaml.safe_load((DEPLOY / "collector/collector.yaml").read_text())
    traces = config["service"]["pipelines"]["traces"]
    assert traces["processors"].index("redaction") < traces["processors"].index("tail_sampling")
    for pipeline in config["service"]["pipelines"].values():
        for section, used in (("receivers", "receivers"), ("processors", "processors"), ("exporters", "exporters")):
            assert set(pipeline[used]) <= set(config[section])
    patterns = [re.compile(p) for p in config["processors"]["redaction"]["blocked_key_patterns"]]
    for content in (names.GEN_AI_INPUT_MESSAGES, names.GEN_AI_OUTPUT_MESSAGES, names.GEN_AI_TOOL_CALL_ARGUMENTS):
        assert any(pattern.search(content) for pattern in patterns)
