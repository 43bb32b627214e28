"""Rules of the plain reading that no recorded case puts to the test, as kube-scheduler's documents have them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.decisions.plain import Obj, World, decide
from tests.decisions.plain.balanced_allocation import evenness
from tests.decisions.plain.filters import refuse
from tests.decisions.plain.inter_pod_affinity import AFFINITY, ANTI_AFFINITY, PREFERRED, REQUIRED, score
from tests.decisions.plain.pod_topology_spread import SKEWED
from tests.decisions.plain.pod_topology_spread import score as spread_score
from tests.decisions.plain.requests import pod_request

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def node(called: str, zone: str | None = None, **spec: Any) -> dict[str, Any]:
    labels = {HOST: called, **({ZONE: zone} if zone else {})}
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    return {
        "metadata": {"name": called, "labels": labels},
        "spec": spec,
        "status": {"allocatable": allocatable},
    }


def pod(called: str, on: str | None = None, *, namespace: str = "ns", **spec: Any) -> dict[str, Any]:
    """A pod with the label `app` equal to the first letter of its name."""
    metadata: dict[str, Any] = {"name": called, "namespace": namespace, "labels": {"app": called[0]}}
    containers = [{"name": "c", "image": "i"}]
    at = {"nodeName": on} if on else {}
    return {"metadata": metadata, "spec": {"containers": containers, **at, **spec}}


def term(app: str, key: str = HOST, /, **more: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def requiring(kind: str, *terms: Obj) -> dict[str, Any]:
    return {"affinity": {kind: {REQUIRED: list(terms)}}}


def reasons(pending: Obj, world: World) -> list[str | None]:
    """Why each node is refused, None where it is not."""
    refusals = [refuse(pending, node, world) for node in world.nodes]
    return [refusal.reasons[0] if refusal else None for refusal in refusals]


def container(cpu: str | None, **more: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu} if cpu else {}}, **more}


def test_a_required_affinity_term_of_a_placed_pod_draws_with_weight_one() -> None:
    nodes = (node("n1"), node("n2"), node("n3"))
    preferring = {"weight": 3, "podAffinityTerm": term("a")}
    preferred: dict[str, Any] = {"affinity": {"podAffinity": {PREFERRED: [preferring]}}}
    world = World(nodes, (pod("b", "n1", **requiring("podAffinity", term("a"))), pod("c", "n2", **preferred)))
    assert score(pod("a"), nodes, world) == {"n1": 33, "n2": 100, "n3": 0}


def test_terms_that_cancel_out_still_count_as_scored() -> None:
    nodes = (node("n1"), node("n2"))
    weighted = [{"weight": 5, "podAffinityTerm": term("b")}]
    both: dict[str, Any] = {kind: {PREFERRED: weighted} for kind in ("podAffinity", "podAntiAffinity")}
    world = World(nodes, (pod("b", "n1"),))
    assert score(pod("a", affinity=both), nodes, world) == {"n1": 0, "n2": 0}
    assert score(pod("a"), nodes, world) is None


def test_affinity_wants_one_pod_that_matches_all_terms() -> None:
    """A pod for each term, side by side, is not enough."""
    tier = {"labelSelector": {"matchLabels": {"tier": "x"}}, "topologyKey": HOST}
    one, other, whole = pod("b1", "n1"), pod("c1", "n1"), pod("b2", "n2")
    other["metadata"]["labels"]["tier"] = whole["metadata"]["labels"]["tier"] = "x"
    world = World((node("n1"), node("n2")), (one, other, whole))
    assert reasons(pod("a", **requiring("podAffinity", term("b"), tier)), world) == [AFFINITY, None]


def test_the_first_of_pods_that_want_one_another_needs_only_the_keys() -> None:
    pending = pod("a", **requiring("podAffinity", term("a", ZONE)))
    nodes = (node("n1", "z1"), node("n2"))
    assert reasons(pending, World(nodes, ())) == [None, AFFINITY]
    assert reasons(pod("a", **requiring("podAffinity", term("b", ZONE))), World(nodes, ())) == [AFFINITY] * 2
    elsewhere = World((*nodes, node("n3", "z3")), (pod("a1", "n3"),))
    assert reasons(pending, elsewhere) == [AFFINITY, AFFINITY, None]


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ({}, ["own"]),
        ({"namespaces": ["other"]}, ["other"]),
        ({"namespaceSelector": {"matchLabels": {"team": "t"}}}, ["labelled"]),
        ({"namespaceSelector": {}}, ["own", "other", "labelled"]),
        (
            {"namespaces": ["other"], "namespaceSelector": {"matchLabels": {"team": "t"}}},
            ["other", "labelled"],
        ),
    ],
)
def test_a_term_looks_into_its_namespaces(more: dict[str, Any], refused: list[str]) -> None:
    namespaces = ("own", "other", "labelled")
    placed = tuple(pod("b", name, namespace=name) for name in namespaces)
    world = World(tuple(map(node, namespaces)), placed, {"labelled": {"team": "t"}})
    pending = pod("a", namespace="own", **requiring("podAntiAffinity", term("b", **more)))
    assert reasons(pending, world) == [ANTI_AFFINITY if name in refused else None for name in namespaces]


def test_a_term_takes_values_of_its_label_keys_from_its_own_pod() -> None:
    same, different = pod("b1", "n1"), pod("b2", "n2")
    same["metadata"]["labels"]["version"], different["metadata"]["labels"]["version"] = "1", "2"
    world = World((node("n1"), node("n2")), (same, different))
    for keys, expected in (
        ("matchLabelKeys", [ANTI_AFFINITY, None]),
        ("mismatchLabelKeys", [None, ANTI_AFFINITY]),
    ):
        pending = pod("a", **requiring("podAntiAffinity", {**term("b"), keys: ["version", "missing"]}))
        pending["metadata"]["labels"]["version"] = "1"
        assert reasons(pending, world) == expected


def spread(**more: Any) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    return {
        "topologySpreadConstraints": [{**constraint, "labelSelector": {"matchLabels": {"app": "a"}}, **more}]
    }


def test_too_few_domains_make_the_least_count_zero() -> None:
    world = World((node("n1", "z1"), node("n2", "z2")), (pod("a1", "n1"), pod("a2", "n2")))
    assert reasons(pod("a", **spread()), world) == [None, None]
    assert reasons(pod("a", **spread(minDomains=2)), world) == [None, None]
    assert reasons(pod("a", **spread(minDomains=3)), world) == [SKEWED, SKEWED]


def test_pods_that_are_being_deleted_or_in_other_namespaces_are_not_spread() -> None:
    going = pod("a1", "n1")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    nodes = (node("n1", "z1"), node("n2", "z2"))
    assert reasons(pod("a", **spread()), World(nodes, (going,))) == [None, None]
    assert reasons(pod("a", **spread()), World(nodes, (pod("a1", "n1", namespace="other"),))) == [None, None]
    assert reasons(pod("a", **spread()), World(nodes, (pod("a1", "n1"),))) == [SKEWED, None]


def test_label_keys_spread_each_version_by_itself() -> None:
    older = pod("a1", "n1")
    older["metadata"]["labels"]["version"] = "1"
    world = World((node("n1", "z1"), node("n2", "z2")), (older,))
    for version, expected in (("1", [SKEWED, None]), ("2", [None, None])):
        pending = pod("a", **spread(matchLabelKeys=["version"]))
        pending["metadata"]["labels"]["version"] = version
        assert reasons(pending, world) == expected


def test_policies_leave_nodes_out_of_soft_counts_but_not_of_a_hostname() -> None:
    tainted = node("n1", "z1", taints=[{"key": "k", "effect": "NoSchedule"}])
    nodes = (tainted, node("n2", "z1"), node("n3", "z2"))
    world = World(nodes, (pod("a1", "n1"), pod("a2", "n3")))
    soft = {"whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1}
    feasible = nodes[1:]
    counted = pod("a", **spread(**soft))
    left_out = pod("a", **spread(**soft, nodeTaintsPolicy="Honor"))
    assert spread_score(counted, feasible, world) == {"n2": 100, "n3": 100}
    assert spread_score(left_out, feasible, world) == {"n2": 100, "n3": 0}
    on_hosts = pod("a", **spread(**soft, nodeTaintsPolicy="Honor", topologyKey=HOST))
    assert spread_score(on_hosts, nodes, world) == {"n1": 0, "n2": 100, "n3": 0}


@pytest.mark.parametrize(
    ("spec", "millicores"),
    [
        ({"containers": [container("100m"), container("200m")]}, 300),
        ({"containers": [container("100m")], "initContainers": [container("250m"), container("150m")]}, 250),
        (
            {"containers": [container("100m")], "initContainers": [container("50m", restartPolicy="Always")]},
            150,
        ),
        (
            {
                "containers": [container("100m")],
                "initContainers": [container("50m", restartPolicy="Always"), container("300m")],
            },
            350,
        ),
        (
            {
                "containers": [container("100m")],
                "initContainers": [container("300m"), container("50m", restartPolicy="Always")],
            },
            300,
        ),
        ({"containers": [container("100m")], "overhead": {"cpu": "30m"}}, 130),
        (
            {
                "containers": [container("100m")],
                "resources": {"requests": {"cpu": "1"}},
                "overhead": {"cpu": "1m"},
            },
            1001,
        ),
        ({"containers": [{"name": "c", "resources": {"limits": {"cpu": "400m"}}}]}, 400),
    ],
)
def test_a_pod_requests_what_its_start_or_its_run_needs_at_most(
    spec: dict[str, Any], millicores: int
) -> None:
    assert pod_request({"metadata": {"name": "p"}, "spec": spec}, "cpu") == millicores


def test_the_default_request_is_for_each_container_that_names_none_but_not_for_a_pod_that_does() -> None:
    spec: dict[str, Any] = {"containers": [container("50m"), container(None), container("0")]}
    assert pod_request(pod("a", **spec), "cpu", non_zero=True) == 150
    assert pod_request(pod("a", **spec), "cpu") == 50
    assert pod_request(pod("a", **spec, resources={"requests": {"cpu": "10m"}}), "cpu", non_zero=True) == 10


@pytest.mark.parametrize(
    ("held", "wanted", "free"),
    [
        ({}, {}, False),
        ({"hostIP": "127.0.0.1"}, {}, False),
        ({}, {"hostIP": "127.0.0.1"}, False),
        ({"hostIP": "10.0.0.1"}, {"hostIP": "127.0.0.1"}, True),
        ({"protocol": "UDP"}, {}, True),
        ({"hostPort": 81}, {}, True),
    ],
)
def test_host_ports_conflict_by_number_protocol_and_address(held: Obj, wanted: Obj, free: bool) -> None:
    port = {"containerPort": 80, "hostPort": 80}
    placed = pod("b", "n1", containers=[{"name": "c", "ports": [{**port, **held}]}])
    pending = pod("a", containers=[{"name": "c", "ports": [{**port, **wanted}]}])
    verdict = reasons(pending, World((node("n1"),), (placed,)))
    assert verdict == [None if free else "node(s) didn't have free ports for the requested pod ports"]


def test_a_node_is_at_most_full_when_its_evenness_is_measured() -> None:
    assert evenness([9000, 0], [4000, 100]) == 50
    assert evenness([0, 0], [0, 100]) == 100


def test_a_pod_that_fits_nowhere_even_alone_is_not_helped() -> None:
    pending = pod("a", containers=[container("5")], priority=1)
    world = World((node("n1"),), (pod("b", "n1", priority=0),))
    message = decide(pending, world).message
    assert message is not None
    assert message.endswith(
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
