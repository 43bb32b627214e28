"""Simulated kubelets, their pods and nodes."""

from __future__ import annotations

import pytest

from embedded.support import NODES, PODS, World, asking, cases, named
from embedded_kubernetes.kubelet import LEASES, Kubelets

from . import kubelets, run


def phases(world: World, *names: str) -> str:
    return " ".join(map(world.phase, names))


def test_a_bound_pod_runs_and_is_ready_by_one_write(world: World) -> None:
    run(world, "a")
    before = world.store.rv
    world.settle()
    assert world.store.rv == before + 1
    status = world.status("a")
    assert status["phase"] == "Running"
    wanted = {"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"}
    assert {each["type"] for each in status["conditions"] if each["status"] == "True"} == wanted
    assert status["containerStatuses"][0]["ready"]
    assert status["podIP"] == status["podIPs"][0]["ip"]
    assert status["startTime"].endswith("Z")


def test_a_pod_without_a_node_or_whose_node_is_yet_to_come_is_left_alone(world: World) -> None:
    run(world, "a", node="")
    run(world, "b", node="late")
    world.settle(60)
    assert phases(world, "a", "b") == "Pending Pending"
    world.node("late")
    world.settle()
    assert phases(world, "a", "b") == "Pending Running"


@cases("""
    amounts | requests | reason
    {} | {cpu: 4001m} | OutOfcpu
    {} | {memory: 9Gi} | OutOfmemory
    {pods: '0'} | {cpu: '1'} | OutOfpods
    {nvidia.com/gpu: '1'} | {nvidia.com/gpu: '2'} | OutOfnvidia.com/gpu
    {} | {nvidia.com/gpu: '1'} | OutOfnvidia.com/gpu
    """)
def test_what_does_not_fit_fails_with_the_kubelets_reason(
    amounts: dict[str, str], requests: dict[str, str], reason: str
) -> None:
    world = kubelets()
    world.node(**amounts)
    extended = {name: amount for name, amount in requests.items() if "/" in name}
    run(world, "a", spec={"containers": [asking(limits=extended, **requests)]})
    world.settle()
    assert (world.phase("a"), world.status("a")["reason"]) == ("Failed", reason)


def test_of_pods_that_overcommit_a_node_the_one_bound_later_fails_and_takes_nothing(world: World) -> None:
    for name, cpu in (("first", "3"), ("second", "2"), ("third", "1")):
        run(world, name, cpu=cpu)
    world.settle()
    assert phases(world, "first", "second", "third") == "Running Failed Running"
    assert world.status("second")["message"] == (
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000"
    )


def test_sidecars_init_steps_and_overhead_count(world: World) -> None:
    world.post("/apis/node.k8s.io/v1/runtimeclasses", named("r", handler="h", overhead={"podFixed": {"cpu": "500m"}}))
    # The step of 3 runs beside the sidecar of 500m, and 500m of overhead: 4 in all, which just fits.
    init = [{**asking("s", cpu="500m"), "restartPolicy": "Always"}, asking("i", cpu="3")]
    run(world, "a", spec={"initContainers": init, "containers": [asking(cpu="1")], "runtimeClassName": "r"})
    run(world, "b", cpu="1m")
    world.settle()
    assert (phases(world, "a", "b"), world.status("b")["reason"]) == ("Running Failed", "OutOfcpu")


def test_two_pods_cannot_hold_one_host_port(world: World) -> None:
    spec = {"containers": [{**asking(), "ports": [{"hostPort": 80, "containerPort": 80}]}]}
    for name in "ab":
        run(world, name, spec=spec)
    world.settle()
    assert (phases(world, "a", "b"), world.status("b")["reason"]) == ("Running Failed", "NodePorts")


def test_a_pod_succeeds_after_its_seconds_and_makes_room(world: World) -> None:
    run(world, "a", cpu="4", life="2.5")
    world.settle(2.4)
    assert world.phase("a") == "Running"
    world.settle(0.2)
    assert world.phase("a") == "Succeeded"
    assert world.status("a")["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    run(world, "b", cpu="4")
    world.settle()
    assert world.phase("b") == "Running"


def test_containers_that_stop_slowly_are_given_no_more_than_the_grace() -> None:
    world = kubelets("n1", stop_seconds=60)
    run(world, "a")
    world.settle()
    world.delete(f"{PODS}/a", gracePeriodSeconds=3)
    world.settle(2.9)
    assert world.is_there(f"{PODS}/a")
    world.settle(0.2)
    assert not world.is_there(f"{PODS}/a")


def test_a_stopping_pod_keeps_its_share_until_it_is_gone() -> None:
    world = kubelets("n1", stop_seconds=10)
    run(world, "a", cpu="4")
    world.settle()
    world.delete(f"{PODS}/a")
    run(world, "b", cpu="1")
    world.settle()
    assert world.phase("b") == "Failed"
    world.settle(11)
    run(world, "c", cpu="4")
    world.settle()
    assert world.phase("c") == "Running"


def test_finalizers_hold_the_object_but_not_the_share(world: World) -> None:
    run(world, "a", cpu="4", finalizers=["example.com/hold"])
    world.settle()
    world.delete(f"{PODS}/a")
    world.settle(1)
    found = world.get(f"{PODS}/a")
    assert (found["status"]["phase"], found["metadata"]["deletionGracePeriodSeconds"]) == ("Succeeded", 0)
    run(world, "b", cpu="4")
    world.settle()
    assert world.phase("b") == "Running"


@pytest.mark.parametrize("how", ["failed by a client", "replaced by a namesake"])
def test_a_pod_that_clients_end_makes_room(world: World, how: str) -> None:
    run(world, "a", cpu="4", life="5")
    world.settle()
    if how == "failed by a client":
        world.set_status("a", phase="Failed")
    else:
        world.delete(f"{PODS}/a", gracePeriodSeconds=0)
        run(world, "a", cpu="4")
    name = "b" if how == "failed by a client" else "a"
    if name == "b":
        run(world, name, cpu="4")
    world.settle(20)
    assert world.phase(name) == "Running"


def test_a_node_becomes_ready_and_loses_the_not_ready_taint() -> None:
    world = kubelets()
    keys = ("node.kubernetes.io/not-ready", "x")
    world.post(NODES, named("n", spec={"taints": [{"key": key, "effect": "NoSchedule"} for key in keys]}))
    world.settle()
    node = world.get(f"{NODES}/n")
    assert [each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready"] == ["True"]
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["x"]


def test_every_node_renews_its_lease_within_ten_seconds_and_not_all_at_once() -> None:
    world = kubelets(*(f"n{number}" for number in range(100)))
    world.settle(1)
    assert 0 < len(world.store.tables[LEASES].records) < 50
    renewed = []
    for seconds in (9.1, 10.1):
        world.settle(seconds)
        leases = world.get("/apis/coordination.k8s.io/v1/leases")["items"]
        renewed.append({each["metadata"]["name"]: each["spec"]["renewTime"] for each in leases})
    before, after = renewed
    assert len(before) == 100
    assert all(after[name] > before[name] for name in before)


def test_a_deleted_nodes_lease_goes_with_it(world: World) -> None:
    world.settle(11)
    assert world.store.tables[LEASES].records
    world.delete(f"{NODES}/n1")
    world.settle(1)
    assert not world.store.tables[LEASES].records


def test_a_node_that_returns_in_time_keeps_its_pods_and_counts_them(world: World) -> None:
    run(world, "a", cpu="3")
    world.settle()
    world.delete(f"{NODES}/n1")
    world.settle(1)
    world.node()
    run(world, "b", cpu="2")
    world.settle(20)
    assert phases(world, "a", "b") == "Running Failed"


def test_a_shrunk_node_takes_no_more_but_keeps_what_it_has(world: World) -> None:
    run(world, "a", cpu="3")
    world.settle()
    world.patch(f"{NODES}/n1/status", {"status": {"allocatable": {"cpu": "2"}}})
    run(world, "b", cpu="1m")
    world.settle()
    assert phases(world, "a", "b") == "Running Failed"


def test_pods_that_ran_before_the_kubelets_came_are_counted(world: World) -> None:
    run(world, "a", cpu="3")
    world.settle()
    world.controllers = [Kubelets(world.store)]
    run(world, "b", cpu="2")
    world.settle()
    assert phases(world, "a", "b") == "Running Failed"
