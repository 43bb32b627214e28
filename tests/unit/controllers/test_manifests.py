"""What a user installs for the controllers: it runs as it is written, and may do what is requested and nothing else."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_scheduler.config.sharding import load_sharding
from agent_scheduler.controllers.sharding import retiring
from agent_scheduler.controlling.flags import add_arguments, settings_of
from agent_scheduler.controlling.process import ControllersProcess
from agent_scheduler.kube.transport import OutcomeUnknown, Response, Transport
from tests.needed import kubectl
from tests.sharded import ROOT, limits

from .world import world

FOLDER = ROOT / "config" / "controllers"
DEFAULT = ROOT / "config" / "default"
SHARDING = (FOLDER / "sharding.yaml", ROOT / "config" / "samples" / "sharding.yaml")

Request = tuple[str, str, str]

#: Requests that `test_the_role_allows_...` does not see: (API group, resource, verb) -> whose code makes it.
UNSEEN: dict[Request, str] = {
    ("authentication.k8s.io", "tokenreviews", "create"): "serving.authorization",
    ("authorization.k8s.io", "subjectaccessreviews", "create"): "serving.authorization",
    ("events.k8s.io", "events", "patch"): "kube.recorder, for a series",
}


def documents(folder: Path = FOLDER) -> list[dict[str, Any]]:
    files = sorted(set(folder.glob("*.yaml")) - {*SHARDING})
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [document for document in documents() if document["kind"] == kind]


(DEPLOYMENT,) = of_kind("Deployment")
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def granted() -> list[Request]:
    (account,) = of_kind("ServiceAccount")
    roles = {(role["kind"], role["metadata"]["name"]): role for role in documents() if "rules" in role}
    found: list[Request] = []
    for binding in (*of_kind("ClusterRoleBinding"), *of_kind("RoleBinding")):
        assert [subject["name"] for subject in binding["subjects"]] == [account["metadata"]["name"]]
        for rule in roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]["rules"]:
            found += [
                (group, resource, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            ]
    return found


def request_of(method: str, path: str, *, watches: bool = False) -> Request:
    """What RBAC is asked for a request."""
    steps = path.partition("?")[0].strip("/").split("/")
    group = "" if steps[0] == "api" else steps[1]
    steps = steps[2:] if steps[0] == "api" else steps[3:]
    if steps[0] == "namespaces" and len(steps) > 2:
        steps = steps[2:]
    verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    reading = "watch" if watches else "get" if len(steps) > 1 else "list"
    return group, "/".join([steps[0], *steps[2:]]), verbs.get(method, reading)


class Recording:
    """The cluster's transport, with what RBAC would be asked; of the first patch of a shard the answer is lost."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.seen: set[Request] = set()
        self._lost = False

    async def request(self, method: str, path: str, **more: Any) -> Response:
        asked = request_of(method, path)
        self.seen.add(asked)
        answer = await self._transport.request(method, path, **more)
        if asked[1:] == ("nodeshards", "patch") and not self._lost:
            self._lost = True
            raise OutcomeUnknown("lost")
        return answer

    def stream(
        self, path: str, *, read_timeout: float
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        self.seen.add(request_of("GET", path, watches=True))
        return self._transport.stream(path, read_timeout=read_timeout)

    async def close(self) -> None:
        pass


async def test_the_role_allows_what_is_requested_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retiring, "SETTLED", 0.05)
    async with world() as it:
        recording = Recording(it.cluster.transport)
        await it.add_nodes(3)
        await it.configure(limits(a=1, b=1))
        process = ControllersProcess(it.settings(elect=True), transport=recording)  # type: ignore[arg-type]
        it.take(process)
        await it.until_counts(a=1, b=1)
        await it.change_shard("b", {"status": {"nodesInUse": ["n000"]}}, status=True)
        await it.configure(limits(a=2))
        await it.until_event("ShardingConfigured")
        await it.until_counts(a=2, b=0)
        await it.change_shard("b", {"status": {"nodesInUse": []}}, status=True)
        await it.until_counts(a=2)
    assert not recording.seen & UNSEEN.keys()
    assert sorted(granted()) == sorted(recording.seen | UNSEEN.keys())


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
    assert named == {
        "configmaps": [settings.sharding.config_map],
        "leases": [settings.election.resource_name],
    }
    (kustomization,) = of_kind("Kustomization")
    (config_map,) = kustomization["configMapGenerator"]
    assert config_map["name"] == settings.sharding.config_map
    assert config_map["namespace"] == settings.sharding.namespace
    # Under another name the controller would not find a new one.
    assert config_map["options"] == {"disableNameSuffixHash": True}


def deployed() -> Any:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_arguments(parser)
    arguments = list(CONTAINER["args"])
    assert arguments.pop(0) == "controllers"
    return settings_of(parser.parse_args(arguments), namespace=lambda: DEPLOYMENT["metadata"]["namespace"])


def test_the_deployments_command_line_is_accepted_and_serves_where_it_is_asked() -> None:
    settings = deployed()
    assert settings.election.leader_elect
    assert settings.serving.bind_address == "0.0.0.0"
    assert settings.serving.authorize_metrics
    (port,) = CONTAINER["ports"]
    (service,) = of_kind("Service")
    assert settings.serving.port == port["containerPort"] == service["spec"]["ports"][0]["port"]
    assert CONTAINER["livenessProbe"]["httpGet"] == {"path": "/livez", "port": port["name"]}
    assert CONTAINER["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"]}
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"] == service["spec"]["selector"] == labels


def test_the_pod_is_as_restricted_as_the_schedulers() -> None:
    scheduler = next(each for each in documents(DEFAULT) if each.get("kind") == "Deployment")
    other = scheduler["spec"]["template"]["spec"]
    assert POD["securityContext"] == other["securityContext"]
    assert CONTAINER["securityContext"] == other["containers"][0]["securityContext"]
    assert CONTAINER["image"] == other["containers"][0]["image"]
    assert POD["automountServiceAccountToken"] is False
    # Both kustomizations make the namespace, and are to agree on it.
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
    built = subprocess.run(["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    found = {(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(built.stdout)}
    # To remove the controller must not remove what schedulers have claimed.
    assert ("CustomResourceDefinition", "nodeshards.shard.volcano.sh") not in found
    assert ("ConfigMap", "agent-scheduler-sharding") in found
