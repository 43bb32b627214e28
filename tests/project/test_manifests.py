"""The objects that a user installs: manifests, image and locks agree with the code and with one another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_scheduler.config.load import load, load_text
from agent_scheduler.process.leading import GATES_LEASE
from agent_scheduler.serving.console import STREAM
from agent_scheduler.shards.holders import lease_name
from requirements.locks import read
from tests.support.command_line import run_arguments
from tests.support.kustomize import by_kubectl
from tests.support.needed import kubectl
from tests.support.places import CONFIG, ROOT

#: Configurations of the scheduler, one in each form.
CONFIGURATIONS = tuple(CONFIG / "samples" / f"{name}.yaml" for name in ("scheduler", "batch", "volcano"))
#: Configurations of the sharding controller.
SHARDING = (CONFIG / "samples" / "sharding.yaml", CONFIG / "controllers" / "sharding.yaml")
NO_MANIFESTS = {*CONFIGURATIONS, *SHARDING}
#: The chart is generated from the others, and its templates are not YAML yet; tests/project/test_helm.py reads them.
CHART = {*(CONFIG / "helm").rglob("*.yaml")}
MANIFESTS = sorted({*CONFIG.rglob("*.yaml")} - NO_MANIFESTS - CHART)
SAMPLES = sorted({*(CONFIG / "samples").rglob("*.yaml")} - NO_MANIFESTS)
#: Samples of workloads, without the roles of their users, and without those of other tools' kinds, which
#: tests/features/test_tools.py uses.
WORKLOADS = [path for path in SAMPLES if path.parent.name == "samples" and path.stem != "job-user"]


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document is not None]


def of_kind(kind: str, installed: str = "default") -> list[dict[str, Any]]:
    files = sorted((CONFIG / installed).glob("*.yaml"))
    return [document for path in files for document in documents(path) if document.get("kind") == kind]


def named(kind: str, name: str) -> dict[str, Any]:
    return next(document for document in of_kind(kind) if document["metadata"]["name"] == name)


DEPLOYMENT = named("Deployment", "agent-scheduler")
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def test_every_manifest_is_part_of_a_kustomization_or_a_sample() -> None:
    used = set(SAMPLES)
    for kustomization in CONFIG.rglob("kustomization.yaml"):
        used.add(kustomization)
        (document,) = documents(kustomization)
        files = [kustomization.parent / name for name in document["resources"]]
        used.update(file for file in files if not file.is_dir())
        for generator in document.get("configMapGenerator", ()):
            used.update(kustomization.parent / name for name in generator["files"])
    assert {file for file in used - NO_MANIFESTS if file.suffix == ".yaml"} == set(MANIFESTS)


@pytest.mark.parametrize("installed", ["default", "controllers"])
def test_kustomize_leaves_the_names_in_roles_as_they_are_written(installed: str) -> None:
    """Kustomize appends a hash to a generated ConfigMap's name wherever it occurs, in resourceNames, too."""
    kubectl()

    def names(found: list[Any]) -> list[list[str]]:
        rules = [rule for each in found if each["kind"] in ("Role", "ClusterRole") for rule in each["rules"]]
        return sorted(rule["resourceNames"] for rule in rules if "resourceNames" in rule)

    written = [each for path in (CONFIG / installed).glob("rbac*.yaml") for each in documents(path)]
    assert names(by_kubectl(CONFIG / installed)) == names(written) != []


# ---- the configuration


def test_the_deployments_command_line_and_configuration_are_accepted(tmp_path: Path) -> None:
    arguments = list(CONTAINER["args"])
    assert arguments.pop(0) == "run"
    mounted = "--config=/etc/agent-scheduler/configuration.yaml"
    arguments[arguments.index(mounted)] = f"--config={CONFIG / 'default' / 'configuration.yaml'}"
    here = {"POD_NAMESPACE": "agent-scheduler"}
    configuration = load(run_arguments(*arguments), environ=here, namespace_file=tmp_path / "none")
    election, serving = configuration.leader_election, configuration.serving
    role = named("Role", "agent-scheduler-leader-election")
    assert election.leader_elect
    assert election.resource_namespace == role["metadata"]["namespace"]
    assert serving.bind_address == "0.0.0.0"
    assert serving.port == CONTAINER["ports"][0]["containerPort"]
    assert configuration.shutdown_grace_period < POD["terminationGracePeriodSeconds"]
    leases = [election.resource_name, lease_name(configuration.profiles[0].scheduler_name), GATES_LEASE]
    assert [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule] == [leases]
    # Only then the role for reviews is needed.
    assert serving.authorize_metrics == bool(named("ClusterRole", "agent-scheduler-metrics-auth"))


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.name)
def test_samples_of_configurations_are_read_and_all_of_them_has_an_effect(path: Path) -> None:
    told: list[str] = []
    load_text(path.read_text(), source=path.name, warn=told.append)
    assert told == []


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.name)
def test_samples_ask_for_the_configured_scheduler(path: Path) -> None:
    """Samples may also name the batch scheduler."""
    configured = yaml.safe_load((CONFIG / "default" / "configuration.yaml").read_text())["profiles"]
    names = [profile["schedulerName"] for profile in configured] + ["volcano"]
    for document in documents(path):
        if document["kind"] in ("Queue", "PodGroup"):
            continue
        spec = document["spec"]
        of_pods = [{"template": document}] if document["kind"] == "Pod" else spec.get("tasks", [spec])
        templates = [each["template"]["spec"] for each in of_pods]
        named = [spec["schedulerName"]] if "tasks" in spec else [each["schedulerName"] for each in templates]
        assert set(named) <= set(names)
        for each in templates:
            assert all(container["resources"]["requests"] for container in each["containers"])


# ---- rights


def test_only_its_own_leases_are_written_where_rbac_can_tell_them() -> None:
    leases = ["agent-scheduler", "nodeshard-agent-scheduler", "agent-scheduler-queue-gates"]
    for rule in named("Role", "agent-scheduler-leader-election")["rules"]:
        own = rule.get("resourceNames") == leases
        assert own if "update" in rule["verbs"] else rule["verbs"] in (["create"], ["get"])


def test_every_page_that_needs_a_token_can_be_granted() -> None:
    rules = [rule for role in of_kind("ClusterRole") for rule in role["rules"]]
    urls = {url for rule in rules for url in rule.get("nonResourceURLs", ())}
    source = (ROOT / "src" / "agent_scheduler" / "serving" / "pages.py").read_text()
    assert urls == {*re.findall(r'add_get\("(/[^"{]+)"', source), STREAM}


# ---- the pod


def test_the_pod_meets_the_restricted_standard_of_its_namespace() -> None:
    labels = named("Namespace", "agent-scheduler")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    pod, container = POD["securityContext"], CONTAINER["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["allowPrivilegeEscalation"] is False
    assert container["capabilities"] == {"drop": ["ALL"]}
    assert container["readOnlyRootFilesystem"] is True
    assert not {"hostNetwork", "hostPID", "hostIPC"} & POD.keys()
    assert all(volume.keys() <= {"name", "configMap", "projected", "emptyDir"} for volume in POD["volumes"])
    assert [volume["emptyDir"] for volume in POD["volumes"] if "emptyDir" in volume] == [{"sizeLimit": "1Mi"}]


def test_the_scheduler_does_not_schedule_itself() -> None:
    configured = yaml.safe_load((CONFIG / "default" / "configuration.yaml").read_text())["profiles"]
    assert POD["schedulerName"] not in [profile["schedulerName"] for profile in configured]


def test_selectors_choose_the_pods_of_the_deployment() -> None:
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    policy = documents(CONFIG / "components" / "network-policy" / "network-policy.yaml")[0]
    for selector in (
        DEPLOYMENT["spec"]["selector"]["matchLabels"],
        named("PodDisruptionBudget", "agent-scheduler")["spec"]["selector"]["matchLabels"],
        named("Service", "agent-scheduler-metrics")["spec"]["selector"],
        policy["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()


def test_probes_ask_for_pages_that_are_open() -> None:
    assert CONTAINER["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "https", "scheme": "HTTPS"}
    assert CONTAINER["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "https", "scheme": "HTTPS"}


def test_all_that_names_a_port_of_the_pages_names_one_that_speaks_https() -> None:
    """Read the components, too, whose port names kustomize does not check."""
    installed = [each for part in ("default", "controllers", "webhook") for each in of_kind("Service", part)]
    monitors = documents(CONFIG / "components" / "monitoring" / "service-monitor.yaml")
    policies = documents(CONFIG / "components" / "network-policy" / "network-policy.yaml")
    named = [port["targetPort"] for each in installed for port in each["spec"]["ports"]]
    named += [port["name"] for each in installed for port in each["spec"]["ports"]]
    named += [end["port"] for each in monitors for end in each["spec"]["endpoints"]]
    named += [port["port"] for each in policies for rule in each["spec"]["ingress"] for port in rule["ports"]]
    assert {*named} == {"https"}
    assert {end["scheme"] for each in monitors for end in each["spec"]["endpoints"]} == {"https"}
    for part in ("default", "controllers", "webhook"):
        (deployment,) = of_kind("Deployment", part)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        probes = [each["httpGet"] for name, each in container.items() if name.endswith("Probe")]
        assert {(each["port"], each["scheme"]) for each in probes} == {("https", "HTTPS")}


# ---- the image


def test_the_image_runs_as_the_deployments_user() -> None:
    user = "USER {runAsUser}:{runAsGroup}".format_map(POD["securityContext"])
    assert re.findall(r"^USER .*$", (ROOT / "Dockerfile").read_text(), re.MULTILINE) == [user]


def test_the_image_installs_only_locked_libraries_and_nothing_to_develop_with() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    installs = re.findall(r"pip(?: --python \S+)? install\s+([^&\n]*)", dockerfile)
    assert len(installs) == 3
    assert all("--require-hashes" in install or "--no-index" in install for install in installs)
    run = {pin.name for pin in read(ROOT / "requirements/run.lock")}
    assert "uvloop" in run
    assert not {"pytest", "rich", "matplotlib", "hypothesis", "mypy", "ruff"} & run
