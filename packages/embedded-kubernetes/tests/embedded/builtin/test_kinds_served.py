"""Kinds that are only stored, and the effects of classes on pods and claims.

Not served, and so not tested: Ingress, IPAddress and ServiceCIDR, HorizontalPodAutoscaler, CertificateSigningRequest,
APIService, webhook and admission policy configurations, ComponentStatus; exec, attach, log, portforward and proxy.
"""

from __future__ import annotations

from typing import Any

import pytest

from embedded_kubernetes.builtin.runtime import covers, merge_tolerations

from ..support import DEPLOYMENTS, JOBS, MERGE, PODS, PVCS, TABLE, World, cases, container, named, pod, volume_claim

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
STORAGE = "/apis/storage.k8s.io/v1/storageclasses"
CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
INGRESSES = "/apis/networking.k8s.io/v1/ingressclasses"
SCHEMAS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
LEVELS = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
REVISIONS = "/apis/apps/v1/namespaces/default/controllerrevisions"

OVERHEAD = {"cpu": "250m", "memory": "120Mi"}
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [container()]}}
NAMED: dict[str, Any] = named("x")


def _runtime_class(world: World, **more: Any) -> None:
    world.post(CLASSES, {"metadata": {"name": "kata"}, "handler": "kata", **more})


def _sandboxed(name: str = "p", **spec: Any) -> Any:
    return pod(name, spec={"runtimeClassName": "kata", **spec})


def test_a_pod_goes_where_its_runtime_class_says(world: World) -> None:
    given = {"key": "sandbox", "operator": "Exists"}
    _runtime_class(world, scheduling={"nodeSelector": {"sandbox": "yes"}, "tolerations": [given]})
    own = {"key": "mine", "operator": "Exists", "effect": "NoSchedule"}
    spec = world.post(PODS, _sandboxed(nodeSelector={"disk": "fast"}, tolerations=[own]))["spec"]
    assert spec["nodeSelector"] == {"disk": "fast", "sandbox": "yes"}
    assert (spec["tolerations"][0], spec["tolerations"][-1]) == (own, given)


@cases("""
    spec | why
    {runtimeClassName: none} | 'pod rejected: RuntimeClass "none" not found'
    {overhead: {cpu: '1'}} | 'pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead'
    {runtimeClassName: kata, overhead: {cpu: '1'}} | "pod rejected: Pod's Overhead doesn't match RuntimeClass's
        defined Overhead"
    {runtimeClassName: plain, overhead: {cpu: '1'}} | 'pod rejected: Pod Overhead set without corresponding
        RuntimeClass defined Overhead'
    {runtimeClassName: kata, nodeSelector: {sandbox: 'no'}} | 'conflict:
        runtimeClass.scheduling.nodeSelector[sandbox] = yes; pod.spec.nodeSelector[sandbox] = no'
    """)
def test_a_pod_that_contradicts_its_runtime_class_is_forbidden(world: World, spec: dict[str, Any], why: str) -> None:
    _runtime_class(world, overhead={"podFixed": OVERHEAD}, scheduling={"nodeSelector": {"sandbox": "yes"}})
    world.post(CLASSES, named("plain", handler="plain"))
    status, answer = world.call("POST", PODS, pod("p", spec=spec))
    assert (status, answer["message"]) == (403, f'pods "p" is forbidden: {why}')


def test_a_burst_of_pods_sees_its_runtime_class_change(world: World) -> None:
    _runtime_class(world, overhead={"podFixed": OVERHEAD})
    for number in range(4):
        world.post(PODS, _sandboxed(f"before-{number}"))
    world.delete(f"{CLASSES}/kata")
    assert world.refused("POST", PODS, _sandboxed("after"))[0] == 403
    _runtime_class(world)
    assert "overhead" not in world.post(PODS, _sandboxed("later"))["spec"]


@cases("""
    wide | narrow | expected
    {operator: Exists} | {key: a, operator: Equal, value: b} | true
    {key: a, operator: Exists} | {key: a, value: b, effect: NoSchedule} | true
    {key: a, operator: Exists} | {key: b, operator: Exists} | false
    {key: a, operator: Exists, effect: NoSchedule} | {key: a, operator: Exists} | false
    {key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 5} | {key: a, operator: Exists, effect:
        NoExecute} | false
    {key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 5} | {key: a, operator: Exists, effect:
        NoExecute, tolerationSeconds: 3} | true
    {key: a, value: b} | {key: a, operator: Equal, value: b} | true
    {key: a, value: b} | {key: a, operator: Exists} | false
    """)
def test_a_toleration_covers_what_it_tolerates_as_long(
    wide: dict[str, Any], narrow: dict[str, Any], expected: bool
) -> None:
    assert covers(wide, narrow) is expected


def test_merged_tolerations_are_in_order_without_those_that_others_cover() -> None:
    narrow = {"key": "a", "operator": "Equal", "value": "b"}
    wide = {"key": "a", "operator": "Exists"}
    other = {"key": "c", "operator": "Exists"}
    assert merge_tolerations([narrow, other], [wide, other]) == [other, wide]
    assert merge_tolerations([wide], [narrow]) == [wide]


def _storage_class(world: World, name: str, *, default: bool) -> None:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    body = named(name, annotations=annotations, provisioner="example.com/p")
    world.post(STORAGE, body)


def _class_of(world: World, name: str, *, annotations: dict[str, str] | None = None, **spec: Any) -> Any:
    body = volume_claim(name, annotations=annotations, **spec)
    return world.post(PVCS, body)["spec"].get("storageClassName")


def test_a_claim_without_a_class_gets_the_newest_default_one(world: World) -> None:
    _storage_class(world, "plain", default=False)
    assert _class_of(world, "early") is None
    _storage_class(world, "old", default=True)
    assert _class_of(world, "first") == "old"
    world.now += 1
    _storage_class(world, "new-b", default=True)
    _storage_class(world, "new-a", default=True)
    assert _class_of(world, "second") == "new-a"


def test_a_claim_that_names_a_class_or_none_is_left_alone(world: World) -> None:
    _storage_class(world, "usual", default=True)
    assert _class_of(world, "named", storageClassName="other") == "other"
    assert _class_of(world, "none", storageClassName="") == ""
    assert _class_of(world, "old", annotations={"volume.beta.kubernetes.io/storage-class": "x"}) is None


def test_a_job_may_be_suspended_and_widened_but_not_given_another_template(world: World) -> None:
    world.post(JOBS, {**NAMED, "spec": {"template": TEMPLATE}})
    changed = world.patch(f"{JOBS}/x", {"spec": {"suspend": True, "parallelism": 5}})
    assert changed["metadata"]["generation"] == 2
    world.patch(f"{JOBS}/x", {"spec": {"suspend": False}})
    for spec in ({"completions": 9}, {"template": {"spec": {"priority": 9}}}):
        assert world.refused("PATCH", f"{JOBS}/x", {"spec": spec}, kind=MERGE) == (422, "Invalid")


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (SLICES, {"addressType": "IPv4", "endpoints": [], "ports": [{"port": 1}]},
         {"ports": [{"name": "", "protocol": "TCP", "port": 1}]}),
        (POLICIES, {"spec": {"podSelector": {}, "egress": [{}]}},
         {"spec": {"podSelector": {}, "egress": [{}], "policyTypes": ["Ingress", "Egress"]}}),
        (SCHEMAS, {"spec": {"priorityLevelConfiguration": {"name": "p"}}},
         {"spec": {"priorityLevelConfiguration": {"name": "p"}, "matchingPrecedence": 1000}}),
        (LEVELS, {"spec": {"type": "Exempt", "exempt": {}}}, {"spec": {"type": "Exempt", "exempt": {}}}),
        (REVISIONS, {"revision": 0, "data": {"a": [1]}}, {"revision": 0, "data": {"a": [1]}}),
    ],
)  # fmt: skip
def test_an_object_is_stored_with_its_defaults(
    world: World, path: str, body: dict[str, Any], expected: dict[str, Any]
) -> None:
    world.post(path, {**NAMED, **body})
    found = world.get(f"{path}/x")
    assert {field: found[field] for field in expected} == expected


@pytest.mark.parametrize(
    ("path", "body", "cells"),
    [
        (CLASSES, {"handler": "h"}, ["x", "h", "0s"]),
        (JOBS, {"spec": {"template": TEMPLATE}}, ["x", "Running", "0/1", "", "0s", "c", "i"]),
        (CRON_JOBS, {"spec": {"schedule": "@hourly", "jobTemplate": {"spec": {"template": TEMPLATE}}}},
         ["x", "@hourly", "<none>", "False", 0, "<none>", "0s", "c", "i", "<none>"]),
        (SLICES, {"addressType": "IPv4", "endpoints": [{"addresses": [f"10.0.0.{n}"]} for n in range(4)]},
         ["x", "IPv4", "<unset>", "10.0.0.0,10.0.0.1,10.0.0.2 + 1 more...", "0s"]),
        (INGRESSES, {"spec": {"controller": "a.b/c", "parameters": {"kind": "K", "name": "n"}}},
         ["x", "a.b/c", "K/n", "0s"]),
        (POLICIES, {"spec": {"podSelector": {"matchLabels": {"a": "b"}}}}, ["x", "a=b", "0s"]),
        (SCHEMAS, {"spec": {"priorityLevelConfiguration": {"name": "p"}}}, ["x", "p", 1000, "<none>", "0s", "?"]),
        (LEVELS, {"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}},
         ["x", "Limited", 30, 64, 8, 50, "0s"]),
        (REVISIONS, {"revision": 3, "data": {}}, ["x", "<none>", 3, "0s"]),
    ],
)  # fmt: skip
def test_kubectl_gets_the_columns_of_a_real_server(
    world: World, path: str, body: dict[str, Any], cells: list[Any]
) -> None:
    world.post(path, {**NAMED, **body})
    table = world.get(path, accept=TABLE)
    # A Job's selector has its uid.
    assert table["rows"][0]["cells"][: len(cells)] == cells


def test_a_workload_that_says_nothing_is_told_all_that_it_lacks(world: World) -> None:
    containers = "spec.template.spec.containers: Required value"
    deployment = (
        "spec.selector: Required value, spec.template.metadata.labels: Invalid value: null: `selector` does not match "
        f"template `labels`, {containers}"
    )
    policy = f'{containers}, spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    for path, lacks in ((DEPLOYMENTS, deployment), (JOBS, policy)):
        status, answer = world.call("POST", path, NAMED)
        assert (status, answer["message"].partition("is invalid: ")[2]) == (422, f"[{lacks}]")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container()]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    made = world.post(DEPLOYMENTS.replace("deployments", "statefulsets"), {**NAMED, "spec": spec})
    assert made["spec"]["serviceName"] == ""
