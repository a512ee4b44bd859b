"""deploy/kubernetes: what the manifests say of the server is so, and they fit each other."""

import json
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml
from deployment import COMMANDS, DOCKERFILE, is_known
from doc_snippets import blocks
from running_server import ROOT

from app.api.security import is_open
from app.cli.serve import DEFAULT_PORT

DIRECTORY = ROOT / "deploy" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((DIRECTORY / "kustomization.yaml").read_text())
MANIFESTS: dict[str, dict[str, Any]] = {
    f"{manifest['kind']} {manifest['metadata']['name']}": manifest
    for name in KUSTOMIZATION["resources"]
    for manifest in yaml.safe_load_all((DIRECTORY / name).read_text())
}
VERSIONS = {
    "PersistentVolumeClaim": "v1",
    "Service": "v1",
    "Job": "batch/v1",
    "Deployment": "apps/v1",
    "PodDisruptionBudget": "policy/v1",
}
DEPLOYMENT = MANIFESTS["Deployment opensession"]["spec"]
POD = DEPLOYMENT["template"]["spec"]
(SERVER,) = POD["containers"]
PODS = [POD, MANIFESTS["Job opensession-migrate"]["spec"]["template"]["spec"]]


def test_every_file_is_one_of_the_kustomization() -> None:
    assert {path.name for path in DIRECTORY.iterdir()} == {*KUSTOMIZATION["resources"], "kustomization.yaml"}
    assert {manifest["kind"]: manifest["apiVersion"] for manifest in MANIFESTS.values()} == VERSIONS


def test_what_selects_the_pods_selects_them() -> None:
    labels = DEPLOYMENT["template"]["metadata"]["labels"]
    budget = MANIFESTS["PodDisruptionBudget opensession"]["spec"]
    assert labels == DEPLOYMENT["selector"]["matchLabels"] == budget["selector"]["matchLabels"]
    assert labels == MANIFESTS["Service opensession"]["spec"]["selector"]
    assert labels == POD["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]
    assert budget["maxUnavailable"] < DEPLOYMENT["replicas"] == 3
    job = MANIFESTS["Job opensession-migrate"]["spec"]["template"]
    assert "labels" not in job.get("metadata", {})  # the service must not send requests there


def test_ports_commands_and_variables_are_ones_that_the_server_knows() -> None:
    (port,) = SERVER["ports"]
    (service,) = MANIFESTS["Service opensession"]["spec"]["ports"]
    assert port["containerPort"] == DEFAULT_PORT and service["targetPort"] == port["name"]
    assert json.dumps(SERVER["args"]) in DOCKERFILE.replace("CMD ", "")
    assert {container["args"][0] for pod in PODS for container in pod["containers"]} == {"serve", "migrate"} <= COMMANDS
    assert [variable["name"] for variable in SERVER["env"] if not is_known(variable["name"])] == []
    assert all(isinstance(variable["value"], str) for variable in SERVER["env"])


def test_probes_ask_for_what_needs_no_login() -> None:
    probes = {name: probe["httpGet"] for name, probe in SERVER.items() if name.endswith("Probe")}
    assert probes.keys() == {"readinessProbe", "livenessProbe", "startupProbe"}
    assert all(is_open("GET", probe["path"], b"") and probe["port"] == SERVER["ports"][0]["name"] for probe in probes.values())
    assert probes["readinessProbe"]["path"] == "/global/health" != probes["livenessProbe"]["path"]
    assert (ROOT / "app" / probes["livenessProbe"]["path"].lstrip("/")).is_file()


def test_a_turn_has_its_grace_period() -> None:
    settings = {variable["name"]: variable["value"] for variable in SERVER["env"]}
    pause = int(SERVER["lifecycle"]["preStop"]["exec"]["command"][1])
    assert POD["terminationGracePeriodSeconds"] >= int(settings["OPENSESSION_SHUTDOWN_SECONDS"]) + pause + 10


def test_volumes_are_shared_and_where_the_image_has_them() -> None:
    claims = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in POD["volumes"]}
    for claim in claims.values():
        assert MANIFESTS[f"PersistentVolumeClaim {claim}"]["spec"]["accessModes"] == ["ReadWriteMany"]
    mounts = {mount["mountPath"]: mount["name"] for mount in SERVER["volumeMounts"]}
    assert mounts.keys() == {"/data", "/workspace"} and set(mounts.values()) == claims.keys()
    assert "OPENSESSION_DATA_DIR=/data" in DOCKERFILE and "WORKDIR /workspace" in DOCKERFILE


@pytest.mark.parametrize("pod", PODS, ids=["server", "migrate"])
def test_pods_run_as_the_image_s_user(pod: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"] and f"--uid {pod['securityContext']['runAsUser']}" in DOCKERFILE
    for container in pod["containers"]:
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert container["envFrom"] == [{"secretRef": {"name": "opensession"}}]


def test_the_secret_that_the_documentation_shows() -> None:
    (shown,) = [block.code for block in blocks((ROOT / "docs" / "scaling.md").read_text()) if block.kind == "sh kubernetes"]
    names = re.findall(r"--from-literal=(\w+)=", shown)
    assert names and all(map(is_known, names)) and "secret generic opensession " in shown
    assert (ROOT / shown.split()[-1]) == DIRECTORY


def test_kustomize_renders_them() -> None:
    """kubectl knows the kinds and the fields that it changes; without a cluster it knows no more."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    rendered = subprocess.run([kubectl, "kustomize", str(DIRECTORY)], capture_output=True, text=True, timeout=60)
    assert rendered.returncode == 0, rendered.stderr
    found = list(yaml.safe_load_all(rendered.stdout))
    assert len(found) == len(MANIFESTS)
    pods = [each["spec"]["template"]["spec"] for each in found if "template" in each["spec"]]
    assert {container["image"] for pod in pods for container in pod["containers"]} == {"opensession:latest"}
