"""What a pod counts as: to a filter, to the scores of others once it runs, and to its own before."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.events.events import Resource
from agent_scheduler.engine.plugins.node_resources_fit import NodeResourcesFit
from agent_scheduler.engine.queueing.entry import pod_change_events
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.requests import DEFAULTS
from tests.support.engine import World, node, pod_json, read_pod, wakes

GI = 2**30
_classes = PodClasses()


def asking(**amounts: str) -> dict[str, Any]:
    return {"requests": amounts}


def waiting(**more: Any) -> PodInfo:
    return read_pod(pod_json(**more), _classes)


def running(spec: dict[str, Any], status: dict[str, Any], *, pending: str = "") -> PodInfo:
    """A pod on a node, and what its kubelet says of it; `pending`: why the resize has not been done."""
    body = pod_json("runs", uid="runs", nodeName="n", **spec)
    conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
    return read_pod({**body, "status": {**status, "conditions": conditions}}, _classes)


WHOLE = {
    "containers": [{"name": "c", "resources": asking(cpu="1")}],
    "resources": asking(cpu="2", memory="4Gi"),
}


@pytest.mark.parametrize(
    ("status", "pending", "cpu", "memory"),
    [
        ({}, "", 2000, 4 * GI),
        ({"resources": asking(cpu="3", memory="4Gi")}, "", 3000, 4 * GI),
        ({"resources": asking(cpu="1"), "allocatedResources": {"cpu": "5"}}, "", 5000, 4 * GI),
        ({"resources": asking(cpu="1", memory="1Gi")}, "Deferred", 2000, 4 * GI),
        ({"resources": asking(cpu="1", memory="1Gi")}, "Infeasible", 1000, GI),
        ({"resources": asking(cpu="1")}, "Infeasible", 1000, 0),
        # What is set aside says nothing by itself, nor does a refusal to give more.
        ({"allocatedResources": {"cpu": "5"}}, "", 2000, 4 * GI),
        ({"allocatedResources": {"cpu": "1"}}, "Infeasible", 2000, 4 * GI),
    ],
)
def test_a_pod_that_is_resized_as_a_whole_takes_the_most_of_what_it_asks_for_and_has(
    status: dict[str, Any], pending: str, cpu: int, memory: int
) -> None:
    requests = running(WHOLE, status, pending=pending).requests
    assert (requests.get("cpu", 0), requests.get("memory", 0)) == (cpu, memory)


def test_overhead_comes_on_top_of_what_a_pod_has_as_a_whole() -> None:
    pod = running({**WHOLE, "overhead": {"cpu": "100m"}}, {"resources": asking(cpu="3", memory="4Gi")})
    assert pod.requests["cpu"] == 3100


def test_what_a_pod_that_asks_for_nothing_as_a_whole_has_does_not_count() -> None:
    spec = {"containers": [{"name": "c", "resources": asking(cpu="1")}]}
    assert running(spec, {"resources": asking(cpu="7")}).requests["cpu"] == 1000


def test_what_an_ordinary_init_container_was_given_does_not_count_and_a_sidecars_does() -> None:
    def cpu(**init: str) -> int:
        spec = {
            "containers": [{"name": "c", "resources": asking(cpu="1")}],
            "initContainers": [{"name": "i", "resources": asking(cpu="1"), **init}],
        }
        given = {"name": "i", "resources": asking(cpu="4"), "allocatedResources": {"cpu": "4"}}
        return running(spec, {"initContainerStatuses": [given]}).requests["cpu"]

    assert cpu() == 1000
    assert cpu(restartPolicy="Always") == 5000


def test_a_container_that_was_given_none_of_a_resource_gets_no_default_for_it() -> None:
    spec = {"containers": [{"name": "c", "resources": asking(cpu="1")}]}
    given = {"name": "c", "resources": asking(cpu="1", memory="0")}
    before, after = running(spec, {}), running(spec, {"containerStatuses": [given]})
    assert before.cls.nonzero == (1000, DEFAULTS["memory"])
    assert after.cls.nonzero == (1000, 0) and after.requests == before.requests
    assert not before.cls.takes_the_same(after.cls)
    world = World(node("n"))
    for pod in (before, after):
        world.ledger.set_pod(pod, "n")
    assert world.ledger.columns.scored[:, 0].tolist()[:2] == [1000, 0]


@pytest.mark.parametrize(
    ("resources", "containers", "runs_as", "ranked_as"),
    [
        # Defaults are for what nobody names, and until the pod runs for every container.
        (asking(cpu="2"), [{}, {}], (2000, 2 * DEFAULTS["memory"]), (200, 2 * DEFAULTS["memory"])),
        (
            asking(cpu="2"),
            [asking(memory="1Gi"), {}],
            (2000, GI),
            (200, GI + DEFAULTS["memory"]),
        ),
        (
            asking(cpu="2", memory="4Gi"),
            [asking(cpu="1"), {}],
            (2000, 4 * GI),
            (1100, 2 * DEFAULTS["memory"]),
        ),
    ],
)
def test_a_pod_with_requests_as_a_whole_ranks_nodes_by_its_containers(
    resources: dict[str, Any],
    containers: list[dict[str, Any]],
    runs_as: tuple[int, int],
    ranked_as: tuple[int, int],
) -> None:
    named = [{"name": f"c{index}", "resources": each} for index, each in enumerate(containers)]
    cls = waiting(containers=named, resources=resources).cls
    assert cls.by_containers is not None
    assert cls.nonzero == runs_as
    assert (cls.by_containers["cpu"], cls.by_containers["memory"]) == ranked_as


def test_pods_that_differ_in_what_ranks_nodes_for_them_are_two_classes() -> None:
    def of(cpu: str) -> PodInfo:
        return waiting(
            containers=[{"name": "c", "resources": asking(cpu=cpu, memory="1Gi")}],
            resources=asking(cpu="2", memory="4Gi"),
        )

    assert of("1").cls is of("1000m").cls
    assert of("1").cls is not of("2").cls


def test_a_pod_that_has_less_as_a_whole_than_before_wakes_who_waits_for_that() -> None:
    before, after = (running(WHOLE, {"resources": asking(cpu=cpu, memory="4Gi")}) for cpu in ("6", "2"))
    (event,) = pod_change_events(after, before, assigned=True)
    assert event.resource is Resource.ASSIGNED_POD
    fit = NodeResourcesFit()
    assert wakes(fit, waiting(requests={"cpu": "4"}), event, before, after)
    assert not wakes(fit, waiting(requests={"example.com/gpu": "1"}), event, before, after)
