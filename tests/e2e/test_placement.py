"""Which node a pod gets, or what it is told: as its user sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from .plane import CORDONED, PORTS, TAINTED, ControlPlane, Object, container, without_preemption
from .processes import Scheduler

pytestmark = pytest.mark.usefixtures("scheduler")


async def test_a_bound_pod_has_its_condition_and_one_scheduled_event(plane: ControlPlane) -> None:
    await plane.add_node("n")
    await plane.add_pod("a")
    assert await plane.bound("a") == {"a": "n"}
    condition = await plane.pods.until(lambda: plane.condition("a"), "PodScheduled")
    assert condition["status"] == "True"
    event = await plane.event("a", "Scheduled")
    assert event["type"] == "Normal"
    assert event["message"] == (
        f"Successfully assigned {plane.namespace}/{plane.full('a')} to {plane.full('n')}"
    )
    assert event["reportingComponent"] == plane.scheduler_name
    assert event["involvedObject"]["uid"] == next(iter(plane.pods.objects))
    assert len(plane.told("a", "Scheduled")) == 1


async def test_a_pod_that_fits_nowhere_is_told_every_nodes_reason_in_kube_schedulers_words(
    plane: ControlPlane,
) -> None:
    await plane.add_node("cordoned", unschedulable=True)
    await plane.add_node("tainted", taints=[{"key": "e2e/only", "value": "x", "effect": "NoSchedule"}])
    await plane.add_node("draining", taints=[{"key": "e2e/out", "effect": "NoExecute"}])
    await plane.add_node("slow", cpu="1")
    await plane.add_node("small", cpu="1", memory="1Gi")
    await plane.add_node("full", pods="0")
    await plane.add_pod("a", cpu="2", memory="2Gi")
    message = await plane.fit_error(
        {CORDONED: 1, TAINTED: 2, "Insufficient cpu": 2, "Insufficient memory": 1, "Too many pods": 1}
    )
    await plane.refused("a", message=message)
    event = await plane.event("a", "FailedScheduling")
    assert (event["type"], event["reportingComponent"]) == ("Warning", plane.scheduler_name)
    assert message in [without_preemption(event["message"]) for event in plane.told("a", "FailedScheduling")]
    assert plane.placed() == {}


@pytest.mark.promise("S3")
async def test_pods_of_other_schedulers_are_left_alone(plane: ControlPlane, scheduler: Scheduler) -> None:
    await plane.add_node("n")
    await plane.add_pod("theirs", scheduler_name=f"other-{plane.test}")
    await plane.add_pod("ours")
    assert await plane.bound("ours") == {"ours": "n"}
    theirs = plane.pods.named(plane.full("theirs"))
    assert theirs is not None
    assert not theirs["status"].get("conditions")
    assert plane.full("theirs") not in scheduler.waiting(plane.namespace)


async def test_pods_that_others_placed_take_room(plane: ControlPlane) -> None:
    await plane.add_node("n", cpu="4")
    await plane.add_pod("static", cpu="1", nodeName=plane.full("n"))
    await plane.add_pod("theirs", cpu="2", scheduler_name=f"other-{plane.test}")
    await plane.bind("theirs", "n")
    await plane.add_pod("large", cpu="1500m")
    await plane.refused("large", message=await plane.fit_error({"Insufficient cpu": 1}))
    await plane.add_pod("fitting", cpu="1")
    assert (await plane.bound("fitting"))["fitting"] == "n"


def serving(port: int, **more: str) -> Object:
    return {"containers": [container(ports=[{"containerPort": 80, "hostPort": port, **more}])]}


def asking(device: str, number: str) -> Object:
    return {"containers": [container(more={device: number})]}


GPU = "e2e.example/gpu"
TOLERATING = {"key": "e2e/gpu", "operator": "Equal", "value": "a100", "effect": "NoSchedule"}

#: Nodes, then pods in their order, each with its node, or the reasons of a refusal at so many of these nodes.
PLACEMENTS: Mapping[
    str, tuple[Mapping[str, Object], Sequence[tuple[str, Object, str | Mapping[str, int]]]]
] = {
    "taints repel all but those who tolerate them": (
        {"tainted": {"taints": [{"key": "e2e/gpu", "value": "a100", "effect": "NoSchedule"}]}},
        [
            ("plain", {}, {TAINTED: 1}),
            ("mistaken", {"tolerations": [{**TOLERATING, "value": "h100"}]}, {TAINTED: 1}),
            ("welcome", {"tolerations": [TOLERATING]}, "tainted"),
        ],
    ),
    "a host port is given once an address and protocol": (
        {"n": {}},
        [
            ("first", serving(8080), "n"),
            ("second", serving(8080, hostIP="127.0.0.1"), {PORTS: 1}),
            ("udp", serving(8080, protocol="UDP"), "n"),
        ],
    ),
    "extended resources are counted": (
        {"plain": {}, "gpus": {"more": {GPU: "4"}}},
        [
            ("three", asking(GPU, "3"), "gpus"),
            ("two", asking(GPU, "2"), {f"Insufficient {GPU}": 2}),
            ("one", asking(GPU, "1"), "gpus"),
        ],
    ),
}


@pytest.mark.parametrize("what", PLACEMENTS)
async def test_pods_go_where_they_fit_and_are_refused_elsewhere(plane: ControlPlane, what: str) -> None:
    nodes, pods = PLACEMENTS[what]
    for name, node in nodes.items():
        await plane.add_node(name, **node)
    for name, spec, expected in pods:
        await plane.add_pod(name, **spec)
        if isinstance(expected, str):
            assert (await plane.bound(name))[name] == expected
        else:
            await plane.refused(name, message=await plane.fit_error(expected))


async def test_each_profile_places_its_own_pods_by_its_own_scores(plane: ControlPlane) -> None:
    for name in ("a", "b", "c"):
        await plane.add_node(name, labels={"e2e/for": "packing"})
        await plane.add_node(f"{name}{name}", labels={"e2e/for": "spreading"})
    # One after the other, so that each is decided with those before it in sight.
    for number in range(3):
        await plane.add_pod(f"pack-{number}", cpu="1", select={"e2e/for": "packing"})
        await plane.bound(f"pack-{number}")
        spread = f"{plane.scheduler_name}-spread"
        await plane.add_pod(
            f"spread-{number}", cpu="1", select={"e2e/for": "spreading"}, scheduler_name=spread
        )
        await plane.bound(f"spread-{number}")
    placed = plane.placed()
    assert len({placed[f"pack-{number}"] for number in range(3)}) == 1
    assert len({placed[f"spread-{number}"] for number in range(3)}) == 3


async def test_a_pod_near_the_size_limit_is_scheduled_like_any_other(plane: ControlPlane) -> None:
    await plane.add_node("n")
    environment = [{"name": f"V{number}", "value": "x" * 10_000} for number in range(100)]
    await plane.add_pod("large", containers=[{**container(cpu="1"), "env": environment}])
    assert await plane.bound("large") == {"large": "n"}


async def test_a_pod_that_is_deleted_while_it_waits_is_forgotten(
    plane: ControlPlane, scheduler: Scheduler
) -> None:
    await plane.add_pod("hopeless")
    await plane.refused("hopeless")
    assert plane.full("hopeless") in scheduler.waiting(plane.namespace)
    await plane.delete_pod("hopeless")
    await scheduler.until(
        lambda: plane.full("hopeless") not in scheduler.waiting(plane.namespace), "empty queue"
    )
    # The name may be used again; the new pod has nothing of the old one's.
    await plane.add_node("n")
    await plane.add_pod("hopeless")
    assert await plane.bound("hopeless") == {"hopeless": "n"}
