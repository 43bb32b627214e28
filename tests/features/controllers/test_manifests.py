"""The manifests of the controllers: they run as written, and have exactly the rights that are requested."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_scheduler.config.namespace import OwnNamespace
from agent_scheduler.config.sharding import load_sharding
from agent_scheduler.process.controller_flags import add_arguments, settings_of
from tests.support.kustomize import by_kubectl
from tests.support.needed import kubectl
from tests.support.places import ROOT
from tests.support.sharding import world

FOLDER = ROOT / "config" / "controllers"
DEFAULT = ROOT / "config" / "default"
SHARDING = (FOLDER / "sharding.yaml", ROOT / "config" / "samples" / "sharding.yaml")


def documents(folder: Path = FOLDER) -> list[dict[str, Any]]:
    files = sorted(set(folder.glob("*.yaml")) - {*SHARDING})
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [document for document in documents() if document["kind"] == kind]


(DEPLOYMENT,) = of_kind("Deployment")
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def test_names_in_the_roles_are_those_of_the_deployment() -> None:
    settings = deployed()
    (role,) = of_kind("Role")
    assert role["metadata"]["namespace"] == settings.sharding.namespace == settings.sharding.lease_namespace
    named = {
        resource: rule["resourceNames"]
        for rule in role["rules"]
        for resource in rule["resources"]
        if "resourceNames" in rule
    }
    assert named == {"configmaps": [settings.sharding.config_map], "leases": [settings.election.resource_name]}
    (kustomization,) = of_kind("Kustomization")
    (config_map,) = kustomization["configMapGenerator"]
    assert config_map["name"] == settings.sharding.config_map
    assert config_map["namespace"] == settings.sharding.namespace
    # The controller would not find a ConfigMap of another name.
    assert config_map["options"] == {"disableNameSuffixHash": True}


def deployed() -> Any:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_arguments(parser)
    arguments = list(CONTAINER["args"])
    assert arguments.pop(0) == "controllers"
    own = OwnNamespace(DEPLOYMENT["metadata"]["namespace"], "the pod")
    return settings_of(parser.parse_args(arguments), namespace=lambda: own)


def test_the_deployments_command_line_is_accepted_and_serves_where_it_is_asked() -> None:
    settings = deployed()
    assert settings.election.leader_elect
    assert settings.serving.bind_address == "0.0.0.0"
    assert settings.serving.authorize_metrics
    (port,) = CONTAINER["ports"]
    (service,) = of_kind("Service")
    assert settings.serving.port == port["containerPort"] == service["spec"]["ports"][0]["port"]
    assert CONTAINER["livenessProbe"]["httpGet"] == {"path": "/livez", "port": port["name"], "scheme": "HTTPS"}
    assert CONTAINER["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"], "scheme": "HTTPS"}
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"] == service["spec"]["selector"] == labels


def test_the_pod_is_as_restricted_as_the_schedulers() -> None:
    scheduler = next(each for each in documents(DEFAULT) if each.get("kind") == "Deployment")
    other = scheduler["spec"]["template"]["spec"]
    assert POD["securityContext"] == other["securityContext"]
    assert CONTAINER["securityContext"] == other["containers"][0]["securityContext"]
    assert CONTAINER["image"] == other["containers"][0]["image"]
    assert POD["automountServiceAccountToken"] is False
    # Both kustomizations create the namespace, and must agree on it.
    (ours,) = of_kind("Namespace")
    (theirs,) = (each for each in documents(DEFAULT) if each.get("kind") == "Namespace")
    assert ours == theirs


@pytest.mark.parametrize("path", SHARDING, ids=lambda path: str(path.relative_to(ROOT)))
def test_shipped_configurations_are_read_and_all_of_them_has_an_effect(path: Path) -> None:
    found = load_sharding(path.read_text(), source=path.name)
    assert found.warnings == ()
    assert found.plan.names


async def test_the_shipped_configuration_leaves_no_ready_node_without_a_shard() -> None:
    async with world() as it:
        await it.add_nodes(5)
        for node, cpu in (("n001", "6500m"), ("n002", "9")):
            await it.load(node, cpu)
        await it.configure((FOLDER / "sharding.yaml").read_text())
        it.start()
        specs = await it.until_counts(volcano=3, agent_scheduler=2)
        assert "n002" in specs["agent-scheduler"]


def test_kustomize_builds_it() -> None:
    kubectl()
    found = {(each["kind"], each["metadata"]["name"]) for each in by_kubectl(FOLDER)}
    # The removal of the controller must not remove the shards that schedulers have claimed.
    assert ("CustomResourceDefinition", "nodeshards.shard.volcano.sh") not in found
    assert ("ConfigMap", "agent-scheduler-sharding") in found
