"""Classes of pods: what they share, what they ask for, and what is wrong with them."""

from __future__ import annotations

import gc
from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodReader
from agent_scheduler.engine.state.podspec import parse_int
from tests.support.engine import pod_json, read_pod
from tests.support.terms import preferring, requiring

GI = 2**30


def container(cpu: str = "0", memory: str = "0", **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


def test_pods_that_ask_for_the_same_are_one_class_whatever_else_they_say() -> None:
    classes = PodClasses()
    first = read_pod(pod_json("a", containers=[container("1", image="x", env=[{"name": "A"}])]), classes)
    second = read_pod(pod_json("b", containers=[container("1000m", image="y")], priority=7), classes)
    other = read_pod(pod_json("c", containers=[container("1")], nodeSelector={"a": "b"}), classes)
    assert first.cls is second.cls
    assert other.cls is not first.cls


def test_a_pod_that_asks_for_all_as_a_whole_may_have_containers_that_ask_for_nothing_or_none() -> None:
    whole = {"resources": {"requests": {"cpu": "1"}}}
    for containers in ([], [{"name": "c"}]):
        pod = read_pod(pod_json(containers=containers, **whole), PodClasses())
        assert pod.cls.requests["cpu"] == 1000


def test_a_class_lives_as_long_as_a_pod_of_it() -> None:
    classes = PodClasses()
    pod = read_pod(pod_json(requests={"cpu": "1"}), classes)
    assert len(classes) == 1
    del pod
    gc.collect()
    assert len(classes) == 0


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"containers": [container("ten")]}, "spec.containers[0].resources.requests[cpu]: invalid quantity 'ten'"),
        ({"containers": [container("-1")]}, "is negative"),
        ({"overhead": {"cpu": "x"}}, "spec.overhead[cpu]"),
        ({"tolerations": [{"operator": "Sometimes"}]}, "spec.tolerations[0].operator: 'Sometimes' is unknown"),
        ({"tolerations": [{"effect": "Never"}]}, "spec.tolerations[0].effect"),
        ({"nodeSelector": {"a": 1}}, "spec.nodeSelector"),
    ],
)
def test_a_spec_that_cannot_be_read_names_the_place(spec: dict[str, Any], place: str) -> None:
    assert place in read_pod(pod_json(**spec), PodClasses()).cls.error


def test_host_ports_are_held_by_all_that_runs_on_and_by_no_ordinary_init_container() -> None:
    init = [container(ports=[{"hostPort": 81}], restartPolicy="Always"), container(ports=[{"hostPort": 82}])]
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


MANY = range(1_001)


@pytest.mark.parametrize(
    ("where", "given", "problem"),
    [
        ("metadata", {"labels": {f"l{n}": "" for n in MANY}}, "of length <= 1000 - at `$.metadata.labels`"),
        ("metadata", {"ownerReferences": [{"uid": "u"} for _ in MANY]}, "<= 1000 - at `$.metadata.ownerReferences`"),
        ("spec", {"resourceClaims": [{"name": f"c{n}"} for n in MANY]}, "<= 1000 - at `$.spec.resourceClaims`"),
        (
            "spec",
            {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", **{f"a.b/{n}": "1" for n in MANY}}}}]},
            "spec.containers: 1002 of the pod's 1002 scheduling constraints",
        ),
    ],
)
def test_a_pod_with_thousands_of_labels_owners_claims_or_resources_keeps_none_of_them(
    where: str, given: dict[str, Any], problem: str
) -> None:
    body = pod_json("a", nodeName="n1", containers=[container("1", "1Gi")])
    body[where] |= given
    pod = read_pod(body, PodClasses())
    assert problem in pod.cls.error
    assert (pod.node_name, len(pod.labels), len(pod.claims)) == ("n1", 0, 0)
    assert pod.cls.requests["cpu"] == 1000 and len(pod.cls.requests) <= 3


def test_a_deep_pod_takes_its_room_and_has_an_error() -> None:
    body = pod_json("a", requests={"cpu": "1"}, nodeName="n1")
    body["metadata"]["managedFields"] = [{"manager": "tenant", "fieldsV1": "deep"}]
    plain = msgspec.json.encode(body)
    deep = plain.replace(b'"deep"', b'{"f:a":' * 9_900 + b"1" + b"}" * 9_900)
    read = PodReader(PodClasses())
    assert (read(deep).node_name, read(deep).requests) == ("n1", read(plain).requests)
    assert (read(deep).cls.error, read(plain).cls.error) == ("nested too deeply to be decoded", "")


@pytest.mark.parametrize("raw", [b"{", b"[]", b"7", b'{"metadata":{"uid":7}}', b'{"spec":7}', b'{"metadata":{}} x'])
def test_what_is_no_pod_is_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        PodReader(PodClasses())(raw)


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
        ({"key": "a", "operator": "Near", "values": ["x"]}, "operator: 'Near' is unknown; allowed: In, NotIn"),
        ({"key": "a", "operator": "In"}, "values: at least one value"),
        ({"key": "a", "operator": "Exists", "values": ["x"]}, "values: must be empty"),
        ({"key": "a", "operator": "Gt", "values": ["1", "2"]}, "values: exactly one value"),
    ],
)
def test_a_requirement_without_meaning_is_named(requirement: dict[str, Any], problem: str) -> None:
    term = {"matchExpressions": [requirement]}
    for affinity in (requiring(term), preferring((1, term))):
        pod = read_pod(pod_json(affinity={"nodeAffinity": affinity}), PodClasses())
        assert problem in pod.cls.error
        assert "matchExpressions[0]" in pod.cls.error
