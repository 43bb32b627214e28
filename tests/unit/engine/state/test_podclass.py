"""Classes of pods: what they share, what they ask for, and what is wrong with them."""

from __future__ import annotations

import gc
from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodReader
from agent_scheduler.engine.state.podspec import parse_int
from agent_scheduler.engine.state.requests import DEFAULTS
from tests.support.engine import pod_json, read_pod

GI = 2**30


def container(cpu: str = "0", memory: str = "0", **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


def requests_of(**spec: Any) -> dict[str, int]:
    pod = read_pod(pod_json(**spec), PodClasses())
    assert pod.cls.error == ""
    return pod.cls.requests


def test_pods_that_ask_for_the_same_are_one_class_whatever_else_they_say() -> None:
    classes = PodClasses()
    first = read_pod(pod_json("a", containers=[container("1", image="x", env=[{"name": "A"}])]), classes)
    second = read_pod(pod_json("b", containers=[container("1000m", image="y")], priority=7), classes)
    other = read_pod(pod_json("c", containers=[container("1")], nodeSelector={"a": "b"}), classes)
    assert first.cls is second.cls
    assert other.cls is not first.cls


def test_a_pod_has_one_class_before_and_after_it_runs() -> None:
    classes = PodClasses()
    waiting = pod_json("a", containers=[container("1")])
    status = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "0"}}}]}
    assert read_pod(waiting, classes).cls is read_pod({**waiting, "status": status}, classes).cls


@pytest.mark.parametrize(
    "more",
    [
        {"overhead": {"cpu": "1"}},
        {"resources": {"requests": {"cpu": "3"}}},
        {"initContainers": [container("5")]},
        {"containers": [container("1", ports=[{"hostPort": 80}])]},
        {"containers": [container("1"), container("1")]},
        {"containers": [container("x")]},
        {"tolerations": [{"operator": "Exists"}]},
        {"affinity": {"nodeAffinity": {}}},
        {"nodeSelector": {"a": "b"}},
    ],
    ids=lambda more: next(iter(more)),
)
def test_whatever_a_decision_reads_makes_another_class(more: dict[str, Any]) -> None:
    classes = PodClasses()
    plain = read_pod(pod_json(containers=[container("1")]), classes)
    other = read_pod(pod_json(**{"containers": [container("1")], **more}), classes)
    assert other.cls is not plain.cls
    assert read_pod(pod_json(containers=[container("1")]), classes).cls is plain.cls


def test_a_class_lives_as_long_as_a_pod_of_it() -> None:
    classes = PodClasses()
    pod = read_pod(pod_json(requests={"cpu": "1"}), classes)
    assert len(classes) == 1
    del pod
    gc.collect()
    assert len(classes) == 0


def test_containers_add_up_and_a_pod_counts_as_one() -> None:
    assert requests_of(containers=[container("1", "1Gi"), container("500m", "1Gi")]) == {
        "cpu": 1500,
        "memory": 2 * GI,
        "pods": 1,
    }


def test_an_init_container_counts_where_it_asks_for_more_than_all_containers() -> None:
    got = requests_of(containers=[container("1", "2Gi")], initContainers=[container("3", "1Gi")])
    assert got == {"cpu": 3000, "memory": 2 * GI, "pods": 1}


def test_sidecars_run_beside_the_containers_and_beside_later_init_containers() -> None:
    sidecar = container("1", restartPolicy="Always")
    assert requests_of(containers=[container("1")], initContainers=[sidecar])["cpu"] == 2000
    assert requests_of(containers=[container("1")], initContainers=[sidecar, container("3")])["cpu"] == 4000
    assert requests_of(containers=[container("1")], initContainers=[container("3"), sidecar])["cpu"] == 3000


def test_overhead_comes_on_top() -> None:
    assert requests_of(containers=[container("1")], overhead={"cpu": "250m", "memory": "1Gi"}) == {
        "cpu": 1250,
        "memory": GI,
        "pods": 1,
    }


def test_pod_level_requests_replace_the_sum_for_the_resources_they_may_name() -> None:
    got = requests_of(
        containers=[{"name": "c", "resources": {"requests": {"cpu": "1", "x.io/gpu": "1"}}}],
        resources={"requests": {"cpu": "4", "x.io/gpu": "9"}},
        overhead={"cpu": "1"},
    )
    assert got == {"cpu": 5000, "x.io/gpu": 1, "pods": 1}


def test_a_container_without_requests_counts_in_scores_alone() -> None:
    pod = read_pod(pod_json(containers=[{"name": "c"}, container("1", "1Gi")]), PodClasses())
    assert pod.cls.requests == {"cpu": 1000, "memory": GI, "pods": 1}
    assert pod.cls.nonzero == (1000 + DEFAULTS["cpu"], GI + DEFAULTS["memory"])


def test_limits_alone_are_no_request() -> None:
    # The API server turns limits into requests before anyone sees the pod.
    assert requests_of(containers=[{"name": "c", "resources": {"limits": {"cpu": "1"}}}]) == {"pods": 1}


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        (
            {"containers": [container("ten")]},
            "spec.containers[0].resources.requests[cpu]: invalid quantity 'ten'",
        ),
        ({"containers": [container("-1")]}, "is negative"),
        ({"overhead": {"cpu": "x"}}, "spec.overhead[cpu]"),
        (
            {"tolerations": [{"operator": "Sometimes"}]},
            "spec.tolerations[0].operator: 'Sometimes' is unknown",
        ),
        ({"tolerations": [{"effect": "Never"}]}, "spec.tolerations[0].effect"),
        ({"nodeSelector": {"a": 1}}, "spec.nodeSelector"),
    ],
)
def test_a_spec_that_cannot_be_read_names_the_place(spec: dict[str, Any], place: str) -> None:
    assert place in read_pod(pod_json(**spec), PodClasses()).cls.error


def test_host_ports_are_held_by_all_that_runs_on_and_by_no_ordinary_init_container() -> None:
    init = [
        container(ports=[{"hostPort": 81}], restartPolicy="Always"),
        container(ports=[{"hostPort": 82}]),
    ]
    body = pod_json(containers=[container(ports=[{"hostPort": 80}])], initContainers=init)
    ports = read_pod(body, PodClasses()).cls.host_ports
    assert sorted(port for _, _, port in ports) == [80, 81]


def test_what_can_be_read_of_a_pod_counts_whatever_else_is_wrong_with_it() -> None:
    body = pod_json(
        "a",
        nodeName="n1",
        containers=[
            container("1", "1Gi", ports=[{"hostPort": "http"}, {"hostPort": 80}]),
            {"name": "d", "resources": {"requests": {"cpu": "ten", "memory": "1Gi", "example.com/x": []}}},
            "nothing",
        ],
        overhead={"cpu": "500m", "memory": "?"},
        resources=7,
        tolerations=7,
        priority="high",
    )
    body["metadata"]["labels"] = {"good": "x", "bad": 7}
    body["status"] = {"phase": "Running", "conditions": {}}
    pod = read_pod(body, PodClasses())
    assert (pod.node_name, pod.name, pod.labels) == ("n1", "a", {"good": "x"})
    assert pod.cls.requests == {"cpu": 1500, "memory": 2 * GI, "pods": 1}
    assert pod.cls.host_ports == (("0.0.0.0", "TCP", 80),)
    assert "Expected" in pod.cls.error
    assert "$." in pod.cls.error


@pytest.mark.parametrize(
    "raw", [b"{", b"[]", b"7", b'{"metadata":{"uid":7}}', b'{"spec":7}', b'{"metadata":{}} x']
)
def test_what_is_no_pod_is_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        PodReader(PodClasses())(raw)


def resized(status: dict[str, Any], *, infeasible: bool = False, **spec: Any) -> dict[str, int]:
    body = pod_json(containers=[container("2", "1Gi")], nodeName="n1", **spec)
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    body["status"] = {
        "containerStatuses": [{"name": "c", **status}],
        "conditions": [pending] if infeasible else [],
    }
    pod = read_pod(body, PodClasses())
    assert pod.cls.error == ""
    return pod.cls.requests


def given(cpu: str) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}


def test_a_pod_that_shrinks_takes_its_room_until_the_kubelet_has_shrunk_it() -> None:
    assert resized(given("3"))["cpu"] == 3000
    assert resized(given("2") | {"allocatedResources": {"cpu": "3", "memory": "1Gi"}})["cpu"] == 3000
    assert resized(given("2"))["cpu"] == 2000


def test_a_pod_that_grows_takes_the_room_it_asks_for_unless_its_node_said_never() -> None:
    assert resized(given("1"))["cpu"] == 2000
    assert resized(given("1"), infeasible=True)["cpu"] == 1000


def test_a_status_that_says_nothing_of_resources_changes_nothing() -> None:
    assert resized({"allocatedResources": {"cpu": "9"}})["cpu"] == 2000


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("0" * 5000 + "7", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", None),
        ("9" * 5000, None),
        ("-" + "9" * 5000, None),
        ("", None),
        ("-", None),
        ("1_0", None),
        (" 1", None),
        ("\u0661", None),
    ],
)
def test_integers_are_read_as_go_reads_them(text: str, number: int | None) -> None:
    assert parse_int(text) == number


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        (
            {"key": "a", "operator": "Near", "values": ["x"]},
            "operator: 'Near' is unknown; allowed: In, NotIn",
        ),
        ({"key": "a", "operator": "In"}, "values: at least one value"),
        ({"key": "a", "operator": "Exists", "values": ["x"]}, "values: must be empty"),
        ({"key": "a", "operator": "Gt", "values": ["1", "2"]}, "values: exactly one value"),
    ],
)
def test_a_requirement_without_meaning_is_named(requirement: dict[str, Any], problem: str) -> None:
    for kind in (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    ):
        term = {"matchExpressions": [requirement]}
        affinity = (
            {"nodeSelectorTerms": [term]}
            if kind.startswith("required")
            else [{"weight": 1, "preference": term}]
        )
        pod = read_pod(pod_json(affinity={"nodeAffinity": {kind: affinity}}), PodClasses())
        assert problem in pod.cls.error
        assert "matchExpressions[0]" in pod.cls.error
