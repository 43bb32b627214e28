"""Pods that are resized in place: what the kubelet does and says."""

from __future__ import annotations

from typing import Any

import pytest

from embedded_kubernetes.kubelet import Kubelets
from tests.embedded.support import NODES, PODS, STRATEGIC, World, asking, container

from . import kubelets, run

ON_START = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]


def resize(world: World, name: str, **amounts: str) -> None:
    containers = [{"name": "c", "resources": {"requests": amounts}}]
    world.patch(f"{PODS}/{name}/resize", {"spec": {"containers": containers}}, kind=STRATEGIC)


def told(world: World, name: str) -> Any:
    """Conditions about a resize, with what they say; then what is set aside, what the container has, and how often it
    was started again."""
    status = world.status(name)
    resizes = [
        (each["type"].removeprefix("PodResize"), each.get("reason"), each["observedGeneration"])
        for each in status["conditions"]
        if each["type"].startswith("PodResize")
    ]
    (report,) = status["containerStatuses"]
    cpus = [each["cpu"] for each in (report["allocatedResources"], report["resources"]["requests"])]
    return resizes, *cpus, report["restartCount"]


def message(world: World, name: str) -> str:
    return next(each["message"] for each in world.status(name)["conditions"] if "message" in each)


def test_a_resize_for_which_there_is_room_is_in_progress_and_then_done(world: World) -> None:
    run(world, "a", cpu="1")
    world.settle()
    assert told(world, "a") == ([], "1", "1", 0)
    resize(world, "a", cpu="3")
    world.settle()
    assert told(world, "a") == ([("InProgress", None, 2)], "3", "1", 0)
    world.settle(0.2)
    assert told(world, "a") == ([], "3", "3", 0)
    assert world.status("a")["observedGeneration"] == 2
    run(world, "b", cpu="2")
    world.settle()
    assert world.phase("b") == "Failed"


def test_a_deferred_resize_takes_nothing_until_there_is_room(world: World) -> None:
    for name in "abc":
        run(world, name, cpu="1")
    world.settle()
    resize(world, "a", cpu="3")
    world.settle(1)
    assert told(world, "a") == ([("Pending", "Deferred", 2)], "1", "1", 0)
    assert (
        message(world, "a")
        == "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
    )
    world.delete(f"{PODS}/b")
    world.settle(1)
    assert told(world, "a") == ([], "3", "3", 0)
    # So it is where another pod gives some of what it has back, and where the node grows.
    resize(world, "c", cpu="2")
    world.settle(1)
    resize(world, "a", cpu="2")
    world.settle(1)
    assert (told(world, "a"), told(world, "c")) == (([], "2", "2", 0), ([], "2", "2", 0))
    resize(world, "c", cpu="3")
    world.settle(1)
    world.patch(f"{NODES}/n1/status", {"status": {"allocatable": {"cpu": "5"}}})
    world.settle(1)
    assert told(world, "c") == ([], "3", "3", 0)


def test_an_infeasible_resize_takes_nothing_and_can_be_taken_back(world: World) -> None:
    run(world, "a", cpu="1")
    world.settle()
    resize(world, "a", cpu="5")
    world.settle(1)
    assert told(world, "a") == ([("Pending", "Infeasible", 2)], "1", "1", 0)
    assert message(world, "a") == "Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000"
    run(world, "b", cpu="3")
    resize(world, "a", cpu="1")
    world.settle(1)
    assert told(world, "a") == ([], "1", "1", 0)
    assert (world.phase("b"), world.status("a")["observedGeneration"]) == ("Running", 3)


def test_of_those_that_wait_the_one_of_the_highest_priority_is_first() -> None:
    world = kubelets("n1")
    for name, value in (("low", 1), ("high", 9)):
        world.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value})
        spec = {"containers": [asking(cpu="1")], "priorityClassName": name}
        run(world, name, spec=spec)
    run(world, "other", cpu="2")
    world.settle()
    for name in ("low", "high"):
        resize(world, name, cpu="2")
        world.settle(1)
    resize(world, "other", cpu="1")
    world.settle(1)
    assert told(world, "high")[0] == []
    assert told(world, "low")[0] == [("Pending", "Deferred", 2)]


@pytest.mark.parametrize(("amounts", "starts"), [({"cpu": "2"}, 0), ({"memory": "128Mi"}, 1)])
def test_a_container_is_started_again_where_its_policy_says_so(
    world: World, amounts: dict[str, str], starts: int
) -> None:
    requests = {"cpu": "1", "memory": "64Mi"}
    run(world, "a", spec={"containers": [container(resources={"requests": requests}, resizePolicy=ON_START)]})
    world.settle(5)
    resize(world, "a", **amounts)
    world.settle(1)
    (report,) = world.status("a")["containerStatuses"]
    assert (report["restartCount"], "terminated" in report["lastState"]) == (starts, bool(starts))
    assert report["resources"]["requests"] == {**requests, **amounts}


def test_what_a_pod_has_as_a_whole_is_told_of_the_pod(world: World) -> None:
    run(world, "a", spec={"containers": [container()], "resources": {"requests": {"cpu": "1"}}})
    world.settle()
    whole = {"spec": {"resources": {"requests": {"cpu": "2"}}}}
    world.patch(f"{PODS}/a/resize", whole, kind=STRATEGIC)
    world.settle()
    status = world.status("a")
    assert (status["allocatedResources"], status["resources"]) == ({"cpu": "2"}, {"requests": {"cpu": "1"}})
    world.settle(1)
    assert world.status("a")["resources"] == {"requests": {"cpu": "2"}}


def test_a_kubelet_that_starts_again_knows_what_it_has_set_aside(world: World) -> None:
    run(world, "a", cpu="1")
    run(world, "b", cpu="2")
    world.settle()
    resize(world, "a", cpu="3")
    world.settle(1)
    world.controllers = [Kubelets(world.store)]
    run(world, "c", cpu="1")
    world.settle(1)
    assert (told(world, "a"), world.phase("c")) == (([("Pending", "Deferred", 2)], "1", "1", 0), "Running")
    for name in ("b", "c"):
        world.delete(f"{PODS}/{name}")
    world.settle(1)
    assert told(world, "a") == ([], "3", "3", 0)
