"""Classes are recognised by the fingerprints of specs: a pod gets the class that it would get alone, and what that one
asks for is what the pod does."""

from __future__ import annotations

import gc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.requests import DEFAULTS
from tests.decisions.plain.requests import containers_request, pod_request, whole_request
from tests.support.engine import pod_json, read_pod
from tests.support.examples import examples
from tests.support.terms import beside, pod_term

_FACTS = tuple(name for name in PodClass.__slots__ if not name.startswith("_"))

RESOURCES: list[Any] = [
    {},
    {"requests": {"cpu": "1"}},
    {"requests": {"cpu": "2", "memory": "1Gi"}},
    {"requests": {"memory": "0", "x.io/gpu": "1"}},
    {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}},
    {"requests": {"cpu": "ten"}},
    None,
]
PORTS: list[Any] = [
    None,
    [{"containerPort": 80}],
    [{"hostPort": 80}],
    [{"hostPort": 80, "protocol": "UDP"}],
    [{"hostPort": "x"}],
]
TOKEN = {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
VOLUMES: list[Any] = [
    None,
    [{"name": "kube-api-access-abcde", **TOKEN}],
    [{"name": "kube-api-access-fghij", **TOKEN}],
    [{"name": "kube-api-access-abcde", **TOKEN}, {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    [{"name": "kube-api-access-fghij", **TOKEN}, {"name": "v", "persistentVolumeClaim": {"claimName": "d"}}],
    [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    [{"name": "e", "ephemeral": {"volumeClaimTemplate": {}}}],
    [{"name": "r", "rbd": {"image": "i", "monitors": ["m"]}}],
]
_SPREAD = {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["app"]}
_INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}

#: What a pod may say, by what it says it about: None is nothing.
CHOICES: dict[str, list[Any]] = {
    "name": ["p", "q"],
    "namespace": ["default", "other"],
    "labels": [{}, {"app": "a"}, {"app": "b"}],
    "schedulerName": ["agent-scheduler", "other"],
    "volumes": VOLUMES,
    "affinity": [None, {"nodeAffinity": {}}, beside("podAntiAffinity", pod_term("a", "zone"))],
    "topologySpreadConstraints": [None, [_SPREAD], [{**_SPREAD, "maxSkew": 2}]],
    "overhead": [None, {"cpu": "1"}, {"memory": "1Mi", "x.io/gpu": "1"}],
    "resources": [None, {"requests": {"cpu": "5"}}, {"requests": {"memory": "4Gi", "x.io/gpu": "9"}}],
    "nodeSelector": [None, {"a": "b"}, {"a": "c"}],
    "tolerations": [None, [{"operator": "Exists"}]],
    "conditions": [None, [_INFEASIBLE]],
    "whole given": [None, {}, {"requests": {"cpu": "4"}}, {"requests": {"cpu": "6", "memory": "2Gi"}}],
    "whole allocated": [None, {"cpu": "7"}],
    **{
        f"{container} {what}": choices
        for container in ("first", "second", "init", "later init")
        for what, choices in (
            # Without a name it is not there; there is no other that is called so.
            ("name", [None, f"{container} a", f"{container} b"]),
            ("image", ["x", "y"]),
            ("resources", RESOURCES),
            ("ports", PORTS),
            ("restartPolicy", [None, "Always"]),
            ("given", [None, *RESOURCES]),
            ("allocated", [None, {"cpu": "3"}, {"cpu": "4"}]),
        )
    },
}


def pod_of(said: dict[str, Any]) -> dict[str, Any]:
    spec = {
        field: value
        for field, value in said.items()
        if " " not in field and field != "conditions" and value is not None
    }
    statuses: dict[str, list[Any]] = {"containers": [], "initContainers": []}
    for place in ("first", "second", "init", "later init"):
        among = "initContainers" if "init" in place else "containers"
        container = {
            what: said[f"{place} {what}"]
            for what in ("name", "image", "resources", "ports", "restartPolicy")
            if said[f"{place} {what}"] is not None
        }
        if "name" in container:
            spec.setdefault(among, []).append(container)
        if said[f"{place} given"] is not None or said[f"{place} allocated"] is not None:
            status = {"name": said[f"{place} name"] or "a", "resources": said[f"{place} given"]}
            statuses[among].append(status | {"allocatedResources": said[f"{place} allocated"]})
    status = {
        "conditions": said["conditions"],
        "resources": said["whole given"],
        "allocatedResources": said["whole allocated"],
        "containerStatuses": statuses["containers"],
        "initContainerStatuses": statuses["initContainers"],
    }
    return pod_json(spec.pop("name"), **spec) | {
        "status": {key: said for key, said in status.items() if said is not None}
    }


def facts(pod: PodInfo) -> dict[str, Any]:
    return {name: getattr(pod.cls, name) for name in _FACTS}


def asks_for_what_the_rule_says(cls: PodClass, body: dict[str, Any]) -> bool:
    """As it is read plainly."""
    asked = {each: pod_request(body, each) for each in (*DEFAULTS, "x.io/gpu")}
    has_whole = any(whole_request(body, each) is not None for each in DEFAULTS)
    alone = cls.by_containers and tuple(cls.by_containers.get(each, 0) for each in DEFAULTS)
    return (
        cls.requests == {each: amount for each, amount in asked.items() if amount} | {"pods": 1}
        and cls.nonzero == tuple(pod_request(body, each, non_zero=True) for each in DEFAULTS)
        and alone == (tuple(containers_request(body, each) for each in DEFAULTS) if has_whole else None)
    )


@examples(400)
@given(
    st.fixed_dictionaries({field: st.sampled_from(choices) for field, choices in CHOICES.items()}),
    st.lists(st.sampled_from(sorted(CHOICES)), min_size=1, max_size=6),
    st.data(),
)
def test_a_pod_has_the_class_that_it_would_have_alone_and_that_asks_for_what_it_does(
    said: dict[str, Any], changes: list[str], data: st.DataObject
) -> None:
    """Each pod differs from the one before it in one thing, and from those before that in a few."""
    classes = PodClasses(images_for=("agent-scheduler",))
    kept = []
    for field in ("", *changes):
        if field:
            said = {**said, field: data.draw(st.sampled_from(CHOICES[field]))}
        body = pod_of(said)
        pod = read_pod(body, classes)
        assert facts(pod) == facts(read_pod(body, PodClasses(images_for=("agent-scheduler",))))
        assert pod.cls.error or asks_for_what_the_rule_says(pod.cls, body)
        kept.append((body, pod))
    for body, pod in kept:
        assert read_pod(body, classes).cls is pod.cls


def test_a_running_pod_is_recognised_and_not_compiled_for_each_report_of_its_kubelet() -> None:
    classes = PodClasses()
    body = pod_json("a", requests={"cpu": "1"}, nodeName="n")
    waiting = read_pod(body, classes)
    status = {"name": "c", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}}
    body["status"] = {"phase": "Running", "containerStatuses": [status]}
    assert read_pod(body, classes).cls is waiting.cls
    fingerprints = len(classes._by_fingerprint)
    for uid in "bcd":
        body["metadata"]["uid"] = uid
        assert read_pod(body, classes).cls is waiting.cls
    assert len(classes._by_fingerprint) == fingerprints


def test_pods_that_are_spelled_each_in_its_own_way_do_not_fill_the_memory() -> None:
    classes = PodClasses()
    first = read_pod(pod_json("a", requests={"cpu": "1"}), classes)
    for number in range(5000):
        resources = {"limits": {"cpu": str(number + 1)}, "requests": {"cpu": "1"}}
        pod = read_pod(pod_json("a", containers=[{"name": "c", "resources": resources}]), classes)
        assert pod.cls is first.cls
    assert len(classes._by_fingerprint) < 2000
    del first, pod
    gc.collect()
    assert not classes._by_fingerprint


def test_a_claim_is_another_one_in_another_namespace() -> None:
    classes = PodClasses()
    body = pod_json("a", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    here = read_pod(body, classes)
    body["metadata"]["namespace"] = "other"
    assert read_pod(body, classes).cls is not here.cls
