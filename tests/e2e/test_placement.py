"""Which node a pod gets, or what it is told: as its user sees it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .plane import AFFINITY, CORDONED, PORTS, TAINTED, ControlPlane, container, without_preemption
from .processes import Scheduler

pytestmark = pytest.mark.usefixtures("scheduler")


def required(**term: Any) -> dict[str, Any]:
    """A required node affinity of one term."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


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


async def test_taints_repel_all_but_those_who_tolerate_them(plane: ControlPlane) -> None:
    await plane.add_node("tainted", taints=[{"key": "e2e/gpu", "value": "a100", "effect": "NoSchedule"}])
    tolerating = {"key": "e2e/gpu", "operator": "Equal", "value": "a100", "effect": "NoSchedule"}
    await plane.add_pod("plain")
    await plane.add_pod("mistaken", tolerations=[{**tolerating, "value": "h100"}])
    await plane.add_pod("welcome", tolerations=[tolerating])
    await plane.add_pod("at-home", tolerations=[{"key": "e2e/gpu", "operator": "Exists"}])
    await plane.bound("welcome", "at-home")
    message = await plane.fit_error({TAINTED: 1})
    await plane.refused("plain", message=message)
    await plane.refused("mistaken", message=message)


async def test_a_node_with_an_untolerated_soft_taint_comes_last(plane: ControlPlane) -> None:
    await plane.add_node("soft", taints=[{"key": "e2e/soft", "effect": "PreferNoSchedule"}])
    await plane.add_node("plain")
    await plane.add_pods(["a", "b"], cpu="2")
    assert set((await plane.bound("a", "b")).values()) == {"plain"}
    await plane.add_pod("c", cpu="2")
    assert (await plane.bound("c"))["c"] == "soft"


async def test_required_node_affinity_is_obeyed(plane: ControlPlane) -> None:
    await plane.add_node("old", labels={"e2e/disk": "hdd", "e2e/cores": "8"})
    await plane.add_node("new", labels={"e2e/disk": "ssd", "e2e/cores": "64"})
    await plane.add_pod(
        "in", affinity=required(matchExpressions=[expression("e2e/disk", "In", "ssd", "nvme")])
    )
    await plane.add_pod(
        "not-in", affinity=required(matchExpressions=[expression("e2e/disk", "NotIn", "hdd")])
    )
    await plane.add_pod("gt", affinity=required(matchExpressions=[expression("e2e/cores", "Gt", "32")]))
    await plane.add_pod("lt", affinity=required(matchExpressions=[expression("e2e/cores", "Lt", "32")]))
    await plane.add_pod(
        "named", affinity=required(matchFields=[expression("metadata.name", "In", plane.full("old"))])
    )
    await plane.add_pod(
        "unnamed", affinity=required(matchFields=[expression("metadata.name", "NotIn", plane.full("old"))])
    )
    both = {
        "matchExpressions": [expression("e2e/disk", "Exists")],
        "matchFields": [expression("metadata.name", "In", "no-such-node")],
    }
    await plane.add_pod("nowhere", affinity=required(**both))
    placed = await plane.bound("in", "not-in", "gt", "lt", "named", "unnamed")
    assert placed == {
        "in": "new", "not-in": "new", "gt": "new", "lt": "old", "named": "old", "unnamed": "new",
    }  # fmt: skip
    # Terms that name nodes narrow the choice before any filter is asked, whatever else is wrong with a node.
    said = await plane.refused("nowhere")
    narrowed = r"0/(\d+) nodes are available: \1 node\(s\) didn't satisfy plugin\(s\) \[NodeAffinity\]\."
    assert re.fullmatch(narrowed, said), said


async def test_preferred_node_affinity_outweighs_packing(plane: ControlPlane) -> None:
    await plane.add_node("full", cpu="4")
    await plane.add_node("liked", labels={"e2e/liked": "yes"})
    await plane.add_pod("filler", cpu="3", nodeName=plane.full("full"))
    preferred = {"weight": 100, "preference": {"matchExpressions": [expression("e2e/liked", "Exists")]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}
    await plane.add_pod("choosy", affinity=affinity)
    assert (await plane.bound("choosy"))["choosy"] == "liked"


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


async def test_a_host_port_is_given_once_a_node_address_and_protocol(plane: ControlPlane) -> None:
    def serving(port: int, **more: str) -> dict[str, Any]:
        ports = [{"containerPort": 80, "hostPort": port, **more}]
        return {"containers": [container(cpu="100m", ports=ports)]}

    await plane.add_node("n")
    await plane.add_pod("first", **serving(8080))
    await plane.bound("first")
    await plane.add_pod("second", **serving(8080, hostIP="127.0.0.1"))
    await plane.refused("second", message=await plane.fit_error({PORTS: 1}))
    await plane.add_pod("udp", **serving(8080, protocol="UDP"))
    await plane.add_pod("left", **serving(9090, hostIP="127.0.0.1"))
    await plane.add_pod("right", **serving(9090, hostIP="127.0.0.2"))
    await plane.bound("udp", "left", "right")


async def test_extended_resources_are_counted(plane: ControlPlane) -> None:
    gpu = f"e2e.example/{plane.test}"
    await plane.add_node("plain")
    await plane.add_node("gpus", more={gpu: "4"})
    await plane.add_pod("three", containers=[container(cpu="1", more={gpu: "3"})])
    assert (await plane.bound("three"))["three"] == "gpus"
    await plane.add_pod("two", containers=[container(cpu="1", more={gpu: "2"})])
    await plane.refused("two", message=await plane.fit_error({f"Insufficient {gpu}": 2}))
    await plane.add_pod("one", containers=[container(cpu="1", more={gpu: "1"})])
    assert (await plane.bound("one"))["one"] == "gpus"


async def test_init_containers_count_by_their_peak_and_sidecars_for_good(plane: ControlPlane) -> None:
    def steps(init: str, main: str, *, sidecar: str | None = None) -> dict[str, Any]:
        inits = [container(name="step", cpu=init)]
        if sidecar is not None:
            inits.insert(0, {**container(name="side", cpu=sidecar), "restartPolicy": "Always"})
        return {"initContainers": inits, "containers": [container(cpu=main)]}

    for name in ("peak", "sum", "beyond"):
        await plane.add_node(name, cpu="4", labels={"e2e/node": name})
    # max(4, 1) = 4 fills the node, though only 1 stays in use.
    await plane.add_pod("peak", select={"e2e/node": "peak"}, **steps("4", "1"))
    assert (await plane.bound("peak"))["peak"] == "peak"
    await plane.add_pod("after-peak", cpu="100m", select={"e2e/node": "peak"})
    await plane.refused("after-peak", message=await plane.fit_error({AFFINITY: 2, "Insufficient cpu": 1}))
    # max(1 + 1, 1 + 3) = 4 fits exactly; max(1 + 1, 1 + 3.1) does not.
    await plane.add_pod("sum", select={"e2e/node": "sum"}, **steps("1", "3", sidecar="1"))
    assert (await plane.bound("sum"))["sum"] == "sum"
    await plane.add_pod("beyond", select={"e2e/node": "beyond"}, **steps("1", "3100m", sidecar="1"))
    await plane.refused("beyond")


async def test_a_runtime_classs_overhead_is_part_of_the_pod(plane: ControlPlane) -> None:
    answer = await plane.add_cluster_object(
        "/apis/node.k8s.io/v1/runtimeclasses",
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "heavy"},
            "handler": "heavy",
            "overhead": {"podFixed": {"cpu": "1"}},
        },
    )
    if answer.status == 404:
        # This control plane has no runtime classes, and takes the pod's word for its overhead.
        with_overhead: dict[str, Any] = {"overhead": {"cpu": "1"}}
    else:
        assert answer.status == 201, answer.body
        with_overhead = {"runtimeClassName": plane.full("heavy")}
    await plane.add_node("n", cpu="4")
    await plane.add_pod("too-much", cpu="3500m", **with_overhead)
    await plane.refused("too-much", message=await plane.fit_error({"Insufficient cpu": 1}))
    await plane.add_pod("fits", cpu="3", **with_overhead)
    assert await plane.bound("fits") == {"fits": "n"}


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
