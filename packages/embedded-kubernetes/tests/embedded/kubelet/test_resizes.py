"""Pods that are resized in place: the kubelet's actions and reports."""

from __future__ import annotations

import pytest

from embedded.support import NODES, PODS, STRATEGIC, World, asking, container
from embedded_kubernetes.kubelet import Kubelets

from . import kubelets, run

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
ON_START = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]


def resize(world: World, name: str, *, settle: float = 1, **amounts: str) -> str:
    containers = [{"name": "c", "resources": {"requests": amounts}}]
    world.patch(f"{PODS}/{name}/resize", {"spec": {"containers": containers}}, kind=STRATEGIC)
    return told(world, name, settle)


def told(world: World, name: str, settle: float = 1) -> str:
    """Return the allocated CPU and that of the container; then conditions of a resize with their messages."""
    world.settle(settle)
    status = world.status(name)
    (report,) = status["containerStatuses"]
    words = [each["cpu"] for each in (report["allocatedResources"], report["resources"]["requests"])]
    for each in status["conditions"]:
        if each["type"].startswith("PodResize"):
            about = (each[key] for key in ("reason", "message") if key in each)
            words += [each["type"], "of", str(each["observedGeneration"]), *about]
    return " ".join(words)


@pytest.fixture
def full(world: World) -> World:
    """Create three pods of one CPU on a node of four; `a` waits for two more."""
    for name in "abc":
        run(world, name, cpu="1")
    world.settle()
    assert resize(world, "a", cpu="3") == (
        "1 1 PodResizePending of 2 Deferred Node didn't have enough resource: cpu, requested: 3000, used: 2000, "
        "capacity: 4000"
    )
    return world


def test_a_resize_for_which_there_is_room_is_in_progress_and_then_done(world: World) -> None:
    run(world, "a", cpu="1")
    assert told(world, "a") == "1 1"
    assert resize(world, "a", settle=0, cpu="3") == "3 1 PodResizeInProgress of 2"
    assert (told(world, "a", 0.2), world.status("a")["observedGeneration"]) == ("3 3", 2)
    run(world, "b", cpu="2")
    world.settle()
    assert world.phase("b") == "Failed"


def test_a_deferred_resize_waits_until_a_pod_goes_shrinks_or_the_node_grows(full: World) -> None:
    full.delete(f"{PODS}/b")
    assert told(full, "a") == "3 3"
    assert "Deferred" in resize(full, "c", cpu="2")
    resize(full, "a", cpu="2")
    assert (told(full, "a"), told(full, "c")) == ("2 2", "2 2")
    assert "Deferred" in resize(full, "c", cpu="3")
    full.patch(f"{NODES}/n1/status", {"status": {"allocatable": {"cpu": "5"}}})
    assert told(full, "c") == "3 3"


def test_an_infeasible_resize_takes_nothing_and_can_be_taken_back(world: World) -> None:
    run(world, "a", cpu="1")
    world.settle()
    assert resize(world, "a", cpu="5") == (
        "1 1 PodResizePending of 2 Infeasible Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000"
    )
    run(world, "b", cpu="3")
    assert (resize(world, "a", cpu="1"), world.phase("b")) == ("1 1", "Running")


def test_of_those_that_wait_the_one_of_the_highest_priority_is_first() -> None:
    world = kubelets("n1")
    for name, value in (("low", 1), ("high", 9)):
        world.post(CLASSES, {"metadata": {"name": name}, "value": value})
        run(world, name, spec={"containers": [asking(cpu="1")], "priorityClassName": name})
    run(world, "other", cpu="2")
    world.settle()
    assert all("Deferred" in resize(world, name, cpu="2") for name in ("low", "high"))
    resize(world, "other", cpu="1")
    assert (told(world, "high"), "Deferred" in told(world, "low")) == ("2 2", True)


@pytest.mark.parametrize(("amounts", "starts"), [({"cpu": "2"}, 0), ({"memory": "128Mi"}, 1)])
def test_a_container_is_started_again_where_its_policy_says_so(
    world: World, amounts: dict[str, str], starts: int
) -> None:
    requests = {"cpu": "1", "memory": "64Mi"}
    sized = container(resources={"requests": requests}, resizePolicy=ON_START)
    run(world, "a", life="10", spec={"containers": [sized]})
    world.settle(5)
    resize(world, "a", **amounts)
    (report,) = world.status("a")["containerStatuses"]
    assert (report["restartCount"], "terminated" in report["lastState"]) == (starts, bool(starts))
    assert report["resources"]["requests"] == {**requests, **amounts}
    world.settle(5)
    assert world.phase("a") == ("Running" if starts else "Succeeded"), "its seconds begin again"


def test_what_a_pod_has_as_a_whole_is_told_of_the_pod(world: World) -> None:
    run(world, "a", spec={"containers": [container()], "resources": {"requests": {"cpu": "1"}}})
    world.settle()
    world.patch(f"{PODS}/a/resize", {"spec": {"resources": {"requests": {"cpu": "2"}}}}, kind=STRATEGIC)
    for seconds, has in ((0, "1"), (1, "2")):
        world.settle(seconds)
        status = world.status("a")
        assert (status["allocatedResources"], status["resources"]) == ({"cpu": "2"}, {"requests": {"cpu": has}})


def test_a_kubelet_that_starts_again_knows_what_it_has_set_aside(full: World) -> None:
    full.controllers = [Kubelets(full.store)]
    run(full, "d", cpu="1")
    assert ("Deferred" in told(full, "a"), full.phase("d")) == (True, "Running")
    for name in ("b", "c"):
        full.delete(f"{PODS}/{name}")
    assert told(full, "a") == "3 3"
