"""What the files of a deployment say of one another holds: names, ports, secrets, volumes, budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from services.chassis import names
from services.cli.layout import NAMES

ROOT = Path(__file__).resolve().parents[3]
KUBERNETES = ROOT / "deploy/kubernetes"


def documents() -> list[dict[str, Any]]:
    return [doc for path in sorted(KUBERNETES.glob("*.yaml")) for doc in yaml.safe_load_all(path.read_text()) if doc]


def kind(wanted: str) -> dict[str, dict[str, Any]]:
    return {doc["metadata"]["name"]: doc for doc in documents() if doc["kind"] == wanted}


def patched(name: str) -> dict[str, Any]:
    """Return a deployment's pod as the common patch leaves it: maps and named lists are merged, the rest replaced."""
    (patch,) = yaml.safe_load_all((KUBERNETES / "patches/every-service.yaml").read_text())
    merged: dict[str, Any] = merge(kind("Deployment")[name], patch)
    return merged


def merge(base: Any, patch: Any) -> Any:
    if isinstance(base, dict) and isinstance(patch, dict):
        return base | {key: merge(base[key], value) if key in base else value for key, value in patch.items()}
    if isinstance(base, list) and isinstance(patch, list) and all(isinstance(x, dict) for x in (*base, *patch)):
        key = "mountPath" if all("mountPath" in each for each in (*base, *patch)) else "name"
        if all(key in each for each in (*base, *patch)):
            ours = {each[key]: each for each in patch}
            kept = [merge(each, ours.pop(each[key])) if each[key] in ours else each for each in base]
            return [*kept, *ours.values()]
    return patch


@pytest.mark.parametrize("name", NAMES)
def test_a_patched_deployment_satisfies_the_schema_and_runs_without_rights(name: str) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    deployment = patched(name)
    deployment["metadata"]["name"] = name
    validate.validate(deployment, validate.latest_version(), strict=True)
    pod = deployment["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["serviceAccountName"] == name
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert pod["terminationGracePeriodSeconds"] > 20
    for probe in ("readinessProbe", "livenessProbe"):
        assert probe in container, probe
    assert container["resources"]["requests"]
    assert container["resources"]["limits"]["memory"]
    if name != "sandbox":
        # The sandbox alone needs more: it makes user namespaces for foreign code.
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["allowPrivilegeEscalation"] is False


@pytest.mark.parametrize("name", NAMES)
def test_every_volume_is_mounted_from_something_that_is_made(name: str) -> None:
    pod = patched(name)["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    certificates = {doc["spec"]["secretName"] for doc in kind("Certificate").values()}
    assert volumes["tls"]["secret"]["secretName"] in certificates
    claims = {doc["metadata"]["name"] for doc in documents() if doc["kind"] == "PersistentVolumeClaim"}
    used = {v["persistentVolumeClaim"]["claimName"] for v in volumes.values() if "persistentVolumeClaim" in v}
    assert used <= claims


@pytest.mark.parametrize("name", NAMES)
def test_a_service_selects_its_pods_and_its_certificate_bears_its_name(name: str) -> None:
    service, deployment = kind("Service")[name], kind("Deployment")[name]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    opened = {port["name"]: port["containerPort"] for port in container["ports"]}
    for port in service["spec"]["ports"]:
        target = port.get("targetPort", port["port"])
        assert target in opened or target in opened.values()
    bears = kind("Certificate")[name]["spec"]["dnsNames"]
    assert any(dns.split(".")[0] == name for dns in bears)
    if name != "gateway":
        # Clients see every replica by name and spread their calls themselves.
        assert service["spec"]["clusterIP"] == "None"


def test_targets_are_services_that_listen_on_that_port() -> None:
    services = kind("Service")
    for deployment in kind("Deployment").values():
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            for variable in container["env"]:
                if variable["name"].endswith("_TARGET"):
                    host, _, port = variable["value"].removeprefix("dns:///").rpartition(":")
                    ports = {each["port"] for each in services[host.split(".")[0]]["spec"]["ports"]}
                    assert int(port) in ports, variable


def test_network_policies_let_in_what_services_listen_on_and_nothing_else() -> None:
    policies = kind("NetworkPolicy")
    assert policies["deny-all"]["spec"]["podSelector"] == {}
    for name in NAMES:
        listens = {port["port"] for port in kind("Service")[name]["spec"]["ports"]}
        let_in = {port["port"] for rule in policies[name]["spec"]["ingress"] for port in rule["ports"]}
        (container,) = kind("Deployment")[name]["spec"]["template"]["spec"]["containers"]
        assert let_in <= listens | {port["containerPort"] for port in container["ports"]}, name


def test_scaling_and_budgets_refer_to_deployments_and_leave_one_standing() -> None:
    deployments = kind("Deployment")
    for name, scaler in kind("HorizontalPodAutoscaler").items():
        assert scaler["spec"]["scaleTargetRef"]["name"] in deployments, name
        for metric in scaler["spec"]["metrics"]:
            if metric["type"] == "Pods":
                assert metric["pods"]["metric"]["name"] == names.RUNS_ACTIVE.name.replace(".", "_")
    for name, budget in kind("PodDisruptionBudget").items():
        selector = budget["spec"]["selector"]["matchLabels"]
        labels = deployments[name]["spec"]["template"]["metadata"]["labels"]
        assert selector.items() <= labels.items(), name
        assert "maxUnavailable" in budget["spec"] or "minAvailable" in budget["spec"]


def test_the_ingress_leads_to_the_gateway_and_leaves_streams_alone() -> None:
    ingress = kind("Ingress")["gateway"]
    annotations = ingress["metadata"]["annotations"]
    assert annotations["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    assert int(annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"]) >= 3600
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    backend = path["backend"]["service"]
    assert backend["port"]["name"] in {port["name"] for port in kind("Service")[backend["name"]]["spec"]["ports"]}


def test_certificates_are_for_both_sides_and_signed_by_an_issuer_that_is_there() -> None:
    issuers = {**kind("Issuer"), **kind("ClusterIssuer")}
    for name, certificate in kind("Certificate").items():
        issuer = certificate["spec"]["issuerRef"]["name"]
        assert issuer in issuers, f"{name}: {issuer}"
        if name in NAMES:
            assert {"server auth", "client auth"} <= set(certificate["spec"]["usages"]), name


def test_composed_services_depend_on_mount_and_address_what_is_there() -> None:
    composed = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
    services, volumes = composed["services"], composed["volumes"]
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= set(services), name
        for dependency, wanted in dict(service.get("depends_on") or {}).items():
            if isinstance(wanted, dict) and wanted["condition"] == "service_healthy":
                assert "healthcheck" in services[dependency], dependency
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (ROOT / "deploy" / source).exists(), mount
            else:
                assert source in volumes, mount
        for published in service.get("ports", ()):
            assert published.startswith("127.0.0.1:"), f"{name} would be open to the network"
        for key, value in service.get("environment", {}).items():
            if key.endswith("_TARGET"):
                assert value.split(":")[0] in services, key
