"""Pods: defaults, checks, and allowed updates."""

from __future__ import annotations

from copy import deepcopy

import pytest

from embedded_kubernetes.builtin.pod_defaults import pull_policy
from embedded_kubernetes.builtin.pod_resources import container_requests

from ..support import asking, cases, container, named, pod
from . import POD, created, places, refused, updated
from .pod_faults import of_containers, of_pods


@cases("""
    image | policy
    nginx | Always
    nginx:latest | Always
    nginx:1.27 | IfNotPresent
    registry.example.com:5000/team/app | Always
    registry.example.com:5000/team/app:v1 | IfNotPresent
    nginx@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa | IfNotPresent
    nginx:latest@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa | Always
    Not A Reference | IfNotPresent
    '' | IfNotPresent
    """)
def test_an_image_is_pulled_always_only_if_its_tag_is_latest(image, policy):
    assert pull_policy(image) == policy


def test_a_pod_that_tolerates_one_lost_node_taint_gets_the_other_toleration():
    about = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}
    own = {**about, "effect": "NoExecute", "tolerationSeconds": 5}
    keys = [entry["key"] for entry in created(POD, pod(spec={"tolerations": [own]}))["spec"]["tolerations"]]
    assert keys == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


def test_default_tolerations_are_not_shared_between_pods():
    first, second = created(POD, pod()), created(POD, pod())
    first["spec"]["tolerations"][0]["tolerationSeconds"] = 1
    assert second["spec"]["tolerations"][0]["tolerationSeconds"] == 300


def test_the_status_that_a_client_sends_with_a_new_pod_is_dropped():
    body = pod()
    body["status"] = {"phase": "Running", "podIP": "10.0.0.1"}
    assert created(POD, body)["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def spread(key, **more):
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", **more}


def test_match_label_keys_become_label_selector_expressions_at_creation():
    term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "zone"}
    term |= {"matchLabelKeys": ["rev"], "mismatchLabelKeys": ["tenant"]}
    spec = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        "topologySpreadConstraints": [spread("zone", labelSelector={}, matchLabelKeys=["rev", "absent"])],
    }
    stored = created(POD, pod(spec=spec, labels={"rev": "7", "tenant": "t1"}))["spec"]
    affinity = stored["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    assert affinity["labelSelector"]["matchExpressions"] == [
        {"key": "rev", "operator": "In", "values": ["7"]},
        {"key": "tenant", "operator": "NotIn", "values": ["t1"]},
    ]
    constraint = stored["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"]
    assert constraint == [{"key": "rev", "operator": "In", "values": ["7"]}]


def test_a_pods_requests_are_the_larger_of_what_runs_and_what_starts():
    sidecar = {**asking(cpu="100m"), "restartPolicy": "Always"}
    spec = {
        "containers": [asking(cpu="1"), asking(cpu="500m", memory="1Gi")],
        "initContainers": [sidecar, asking(memory="2Gi")],
    }
    assert container_requests(spec) == {"cpu": "1600m", "memory": str(2 * 2**30)}


@of_containers
def test_a_container_is_refused_for_what_is_wrong_with_it(fields, causes):
    found = refused(POD, pod(spec={"containers": [container(**fields)]}))
    assert found.replace("spec.containers[0].", "") == causes


@of_pods
def test_a_pod_is_refused_for_what_is_wrong_with_it(spec, causes):
    assert refused(POD, pod(spec=spec)) == causes


def _stored(spec: dict[str, object] | None = None) -> dict[str, object]:
    stored = created(POD, pod(spec=spec))
    stored["spec"] |= {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
    return stored


@cases("""
    before | change | causes
    {} | {containers: [{name: c, image: other}]} | ''
    {} | {activeDeadlineSeconds: 5} | ''
    {activeDeadlineSeconds: 5} | {activeDeadlineSeconds: 6} | Invalid spec.activeDeadlineSeconds
    {activeDeadlineSeconds: 5} | {activeDeadlineSeconds: null} | Invalid spec.activeDeadlineSeconds
    {} | {nodeSelector: {a: b}} | Forbidden spec
    {} | {nodeName: n} | Forbidden spec
    {} | {schedulingGates: [{name: g}]} | Forbidden spec.schedulingGates[0].name
    {schedulingGates: [{name: g}]} | {schedulingGates: []} | ''
    {schedulingGates: [{name: g}]} | {nodeSelector: {a: b}} | ''
    {schedulingGates: [{name: g}]} | {affinity: {podAffinity: {any: thing}}} | Forbidden spec
    {schedulingGates: [{name: g}], nodeSelector: {a: b}} | {nodeSelector: {a: c}} | Invalid spec.nodeSelector
    {schedulingGates: [{name: g}], nodeSelector: {a: b}} | {nodeSelector: {a: b, c: d}} | ''
    {schedulingGates: [{name: g}], nodeSelector: {a: b}} | {nodeSelector: {c: d}} | Invalid spec.nodeSelector
    {tolerations: [{key: k, operator: Exists}]} | {tolerations: []} | Forbidden spec.tolerations
    {} | {tolerations: [{key: k, operator: Exists}]} | ''
    {terminationGracePeriodSeconds: -1} | {terminationGracePeriodSeconds: 1} | ''
    {} | {terminationGracePeriodSeconds: 1} | Forbidden spec
    {} | {containers: [{name: c, image: i}, {name: d, image: i}]} | Forbidden spec.containers
    """)
def test_an_update_of_a_pod_may_change_only_a_few_fields(before, change, causes):
    old = _stored(before)
    new = deepcopy(old)
    for field, value in change.items():
        if value is None:
            del new["spec"][field]
        else:
            new["spec"][field] = value
    assert updated(POD, old, new)[1] == causes


def _affinity(*expressions: dict[str, object]) -> dict[str, object]:
    required = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


_ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
_DISK = {"key": "disk", "operator": "Exists"}


def test_a_gated_pods_required_node_affinity_can_be_narrowed_but_not_widened():
    gates = {"schedulingGates": [{"name": "g"}]}
    for before, after, allowed in (
        (_affinity(_ZONE), _affinity(_ZONE, _DISK), True),
        (_affinity(_ZONE, _DISK), _affinity(_ZONE), False),
        (_affinity(_ZONE), _affinity(_DISK), False),
        ({}, _affinity(_ZONE), True),
        (_affinity(_ZONE), {}, False),
    ):
        old = _stored({**gates, "affinity": before})
        new = deepcopy(old)
        new["spec"]["affinity"] = after
        assert (updated(POD, old, new)[1] == "") is allowed, (before, after)


def test_a_status_write_keeps_spec_owners_and_quality_of_service():
    old = _stored()
    new = deepcopy(old)
    new["metadata"] |= {"labels": {"a": "b"}, "ownerReferences": [{"uid": "x"}]}
    new["spec"]["nodeName"] = "n"
    new["status"] = {"phase": "Running"}
    stored, causes = updated(POD, old, new, "status")
    assert causes == ""
    assert stored["spec"] == old["spec"]
    assert stored["metadata"]["labels"] == {"a": "b"}
    assert "ownerReferences" not in stored["metadata"]
    assert stored["status"] == {"phase": "Running", "qosClass": "BestEffort"}


def test_a_container_that_ended_for_good_cannot_run_again():
    old = _stored({"restartPolicy": "Never"})
    old["status"]["containerStatuses"] = [{"name": "c", "state": {"terminated": {"exitCode": 0}}}]
    new = deepcopy(old)
    new["status"]["containerStatuses"] = [{"name": "c", "state": {"running": {}}}]
    assert updated(POD, old, new, "status")[1] == "Forbidden status.containerStatuses[0].state"


def test_ephemeral_containers_are_added_through_their_subresource_only():
    old = _stored()
    new = deepcopy(old)
    new["spec"]["ephemeralContainers"] = [{"name": "debug", "image": "i"}]
    new["spec"]["nodeName"] = "ignored"
    stored, causes = updated(POD, old, new, "ephemeralcontainers")
    assert causes == ""
    assert "nodeName" not in stored["spec"]
    del new["spec"]["nodeName"]
    assert updated(POD, old, new)[1] == "Forbidden spec"
    gone = deepcopy(stored)
    gone["spec"]["ephemeralContainers"] = []
    assert updated(POD, stored, gone, "ephemeralcontainers")[1] == "Forbidden spec.ephemeralContainers"


@pytest.mark.parametrize(
    ("node", "phase", "seconds", "grace"),
    [("n", "Running", 30, 30), ("", "Pending", 30, 0), ("n", "Succeeded", 30, 0), ("n", "Running", -5, 1)],
)
def test_a_delete_waits_only_for_a_pod_that_runs(node, phase, seconds, grace):
    stored = _stored({"terminationGracePeriodSeconds": seconds})
    if node:
        stored["spec"]["nodeName"] = node
    stored["status"]["phase"] = phase
    assert POD.grace is not None
    assert POD.grace(stored) == grace


def test_causes_come_in_the_order_in_which_a_real_server_looks():
    spec = {
        "containers": [{"name": "C", "image": " i", "ports": [{}], "resources": {"requests": {"cpu": "-1"}}}],
        "restartPolicy": "Sometimes",
        "tolerations": [{"key": "k", "effect": "No"}],
        "nodeSelector": {"a b": "c"},
        "topologySpreadConstraints": [spread("z", maxSkew=0)],
        "priorityClassName": "A",
    }
    assert places(refused(POD, named("p", spec=spec))) == [
        "spec.containers[0].name",
        "spec.containers[0].ports[0].containerPort",
        "spec.containers[0].resources.requests[cpu]",
        "spec.restartPolicy",
        "spec.nodeSelector",
        "spec.topologySpreadConstraints[0].maxSkew",
        "spec.tolerations[0].effect",
        "spec.priorityClassName",
        "spec.containers[0].image",
    ]
