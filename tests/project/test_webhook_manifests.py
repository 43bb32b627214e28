"""The manifests for admission: they run as they are written, and their parts name one another."""

from __future__ import annotations

from functools import partial

import pytest
import yaml

from agent_scheduler.process import webhook_flags
from agent_scheduler.process.webhook_flags import WebhookSettings
from tests.project.test_manifests import CONTAINER as SCHEDULERS
from tests.project.test_manifests import POD as SCHEDULERS_POD
from tests.project.test_manifests import named as of_the_scheduler
from tests.project.test_manifests import of_kind as of_any_kind
from tests.support.command_line import Meant
from tests.support.places import CONFIG
from tests.support.reviews import GATE
from tests.support.webhooks import manifest

HOOKS = {
    each["clientConfig"]["service"]["path"]: each
    for file in ("mutating.yaml", "validating.yaml")
    for each in manifest(file)["webhooks"]
}


of_kind = partial(of_any_kind, installed="webhook")
(DEPLOYMENT,) = of_kind("Deployment")
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def deployed() -> WebhookSettings:
    command, *flags = CONTAINER["args"]
    assert command == "webhook"
    found: WebhookSettings = Meant(webhook_flags)(" ".join(flags), namespace=DEPLOYMENT["metadata"]["namespace"])
    return found


def test_the_deployments_command_line_names_what_is_installed_beside_it() -> None:
    settings = deployed()
    own = settings.certificate
    assert own is not None
    (service,) = of_kind("Service")
    (secret,) = of_kind("Secret")
    assert own.hosts[0] == f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert (own.secret, own.namespace) == (secret["metadata"]["name"], secret["metadata"]["namespace"])
    assert "data" not in secret
    assert own.mutating == manifest("mutating.yaml")["metadata"]["name"]
    assert own.validating == manifest("validating.yaml")["metadata"]["name"]
    assert settings.serving.authorize_metrics
    assert settings.shutdown_delay + 10 < POD["terminationGracePeriodSeconds"]


def test_the_roles_allow_these_names_alone() -> None:
    own = deployed().certificate
    assert own is not None
    rules = [rule for kind in ("Role", "ClusterRole") for each in of_kind(kind) for rule in each["rules"]]
    names = {resource: rule.get("resourceNames") for rule in rules for resource in rule["resources"]}
    assert names["secrets"] == [own.secret]
    assert names["mutatingwebhookconfigurations"] == [own.mutating]
    assert names["validatingwebhookconfigurations"] == [own.validating]
    writing = [rule for rule in rules if {"patch", "update", "delete"} & set(rule["verbs"])]
    assert all("resourceNames" in rule for rule in writing)


def test_ports_probes_and_selectors_fit() -> None:
    (port,) = CONTAINER["ports"]
    (service,) = of_kind("Service")
    (budget,) = of_kind("PodDisruptionBudget")
    assert deployed().serving.port == port["containerPort"]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    for probe, path in (("startup", "/livez"), ("liveness", "/livez"), ("readiness", "/readyz")):
        expected = {"path": path, "port": port["name"], "scheme": "HTTPS"}
        assert CONTAINER[f"{probe}Probe"]["httpGet"] == expected
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"] == service["spec"]["selector"] == labels
    assert budget["spec"]["selector"]["matchLabels"] == labels
    assert DEPLOYMENT["spec"]["replicas"] == 2


def test_the_pod_is_as_restricted_as_the_schedulers_and_no_pod_of_ours() -> None:
    assert POD["securityContext"] == SCHEDULERS_POD["securityContext"]
    assert CONTAINER["securityContext"] == SCHEDULERS["securityContext"]
    assert CONTAINER["image"] == SCHEDULERS["image"]
    assert POD["automountServiceAccountToken"] is False
    assert POD["schedulerName"] not in deployed().schedulers
    (ours,) = of_kind("Namespace")
    assert ours == of_the_scheduler("Namespace", "agent-scheduler")


def test_each_path_is_asked_about_what_it_reviews() -> None:
    asked = {
        path: {(rule["resources"][0], *rule["operations"]) for rule in hook["rules"]} for path, hook in HOOKS.items()
    }
    assert asked == {
        "/pods/mutate": {("pods", "CREATE")},
        "/queues/mutate": {("queues", "CREATE")},
        "/queues/validate": {("queues", "CREATE", "UPDATE", "DELETE")},
        "/podgroups/mutate": {("podgroups", "CREATE")},
        "/podgroups/validate": {("podgroups", "CREATE")},
        "/jobs/mutate": {("jobs", "CREATE")},
        "/jobs/validate": {("jobs", "CREATE", "UPDATE")},
    }
    policies = {path: hook["failurePolicy"] for path, hook in HOOKS.items()}
    assert {path for path, policy in policies.items() if policy == "Ignore"} == {"/pods/mutate"}
    for hook in HOOKS.values():
        assert hook["admissionReviewVersions"] == ["v1"]
        assert hook["sideEffects"] == "None"
        assert "caBundle" not in hook["clientConfig"]


@pytest.mark.parametrize("path", [path for path in HOOKS if not path.startswith("/queues")])
def test_what_a_cluster_needs_to_start_does_not_wait_for_the_webhook(path: str) -> None:
    (expression,) = HOOKS[path]["namespaceSelector"]["matchExpressions"]
    namespace = DEPLOYMENT["metadata"]["namespace"]
    assert (expression["operator"], expression["values"]) == ("NotIn", ["kube-system", namespace])


def test_the_policy_gates_the_same_pods_as_the_webhook() -> None:
    policy, binding = yaml.safe_load_all((CONFIG / "gate-policy" / "policy.yaml").read_text())
    hook = HOOKS["/pods/mutate"]
    spec = policy["spec"]
    assert spec["matchConditions"] == hook["matchConditions"]
    constraints = spec["matchConstraints"]
    assert constraints == {"namespaceSelector": hook["namespaceSelector"], "resourceRules": hook["rules"]}
    for key in ("failurePolicy", "reinvocationPolicy"):
        assert spec[key] == hook[key]
    assert binding["spec"] == {"policyName": policy["metadata"]["name"]}
    (mutation,) = spec["mutations"]
    assert f'"{GATE}"' in mutation["applyConfiguration"]["expression"]
    asking, ours = (each["expression"] for each in hook["matchConditions"])
    assert f"'{GATE}'" in asking
    assert ours == f"object.spec.schedulerName in {list(deployed().schedulers)}"
