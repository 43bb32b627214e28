"""What simulated kubelets do with pods and nodes, on a store with a clock of its own."""

from __future__ import annotations

from itertools import count
from typing import Any

import orjson
import pytest

from embedded_kubernetes.kubelet import LEASES, NODES, PODS, RUN_SECONDS, Kubelets
from embedded_kubernetes.store import Store


def _pod_fields(obj: dict[str, Any]) -> dict[str, str]:
    return {
        "metadata.name": obj["metadata"]["name"],
        "spec.nodeName": obj["spec"].get("nodeName", ""),
        "status.phase": obj.get("status", {}).get("phase", "Pending"),
    }


def _name_field(obj: dict[str, Any]) -> dict[str, str]:
    return {"metadata.name": obj["metadata"]["name"]}


class World:
    """A store, its kubelets, and a clock that moves only when told to."""

    def __init__(self, **settings: float) -> None:
        self.now = 1_000_000.0
        self._ids = count(1)
        self.store = Store(clock=lambda: self.now, uid=lambda: f"uid-{next(self._ids)}")
        self.store.add_table(
            PODS,
            namespaced=True,
            field_names=("metadata.name", "spec.nodeName", "status.phase"),
            extract=_pod_fields,
            indexed=("spec.nodeName",),
        )
        for name, namespaced in ((NODES, False), (LEASES, True)):
            self.store.add_table(
                name, namespaced=namespaced, field_names=("metadata.name",), extract=_name_field
            )
        self.settings = settings
        self.kubelets = Kubelets(self.store, **settings)

    def settle(self, seconds: float = 0.0) -> None:
        """Lets `seconds` pass, timer by timer, and everything that is due happen."""
        end = self.now + seconds
        for _ in range(10_000):
            deadline = self.kubelets.advance()
            if deadline is not None and deadline <= self.now:
                continue
            if deadline is None or deadline > end:
                self.now = end
                return
            self.now = deadline
        raise AssertionError("the kubelets never come to rest")

    def node(self, name: str = "n1", **amounts: str) -> None:
        allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110", **amounts}
        self.store.insert(
            NODES,
            {"metadata": {"name": name, "uid": self.store.uid()}, "status": {"allocatable": allocatable}},
        )

    def pod(
        self,
        name: str,
        *,
        node: str = "n1",
        cpu: str = "1",
        life: str | None = None,
        spec: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
        self.store.insert(
            PODS,
            {
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "uid": self.store.uid(),
                    "annotations": {RUN_SECONDS: life} if life is not None else {},
                    **(metadata or {}),
                },
                "spec": {"containers": [container], "nodeName": node, **(spec or {})},
                "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
            },
        )

    def change(self, name: str, **metadata: Any) -> None:
        record = self.store.tables[PODS].get("default", name)
        assert record is not None
        obj = orjson.loads(record.data)
        obj["metadata"].update(metadata)
        self.store.replace(PODS, record, obj)

    def delete(self, name: str, *, grace: int = 30) -> None:
        """A graceful delete, as the API server begins it."""
        self.change(name, deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=grace)

    def get(self, name: str) -> dict[str, Any] | None:
        record = self.store.tables[PODS].get("default", name)
        return None if record is None else orjson.loads(record.data)

    def status(self, name: str) -> dict[str, Any]:
        obj = self.get(name)
        assert obj is not None
        status: dict[str, Any] = obj["status"]
        return status

    def phase(self, name: str) -> str:
        phase: str = self.status(name)["phase"]
        return phase


@pytest.fixture
def world() -> World:
    made = World()
    made.node()
    made.settle()
    return made


def test_a_bound_pod_runs_and_is_ready(world: World) -> None:
    world.pod("a")
    world.settle()
    status = world.status("a")
    assert status["phase"] == "Running"
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    assert conditions == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
        "PodScheduled": "True",
    }
    assert status["containerStatuses"][0]["ready"]
    assert status["podIP"] == status["podIPs"][0]["ip"]
    assert status["startTime"].endswith("Z")


def test_a_start_is_one_write(world: World) -> None:
    world.pod("a")
    before = world.store.rv
    world.settle()
    assert world.store.rv == before + 1


def test_a_pod_without_a_node_is_left_alone(world: World) -> None:
    world.pod("a", node="")
    world.settle(60)
    assert world.phase("a") == "Pending"


def test_a_pod_bound_to_a_node_that_comes_later_starts_then(world: World) -> None:
    world.pod("a", node="late")
    world.settle(5)
    assert world.phase("a") == "Pending"
    world.node("late")
    world.settle()
    assert world.phase("a") == "Running"


@pytest.mark.parametrize(
    ("amounts", "requests", "reason"),
    [
        ({}, {"cpu": "4001m"}, "OutOfcpu"),
        ({}, {"memory": "9Gi"}, "OutOfmemory"),
        ({"pods": "0"}, {"cpu": "1"}, "OutOfpods"),
        ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "2"}, "OutOfnvidia.com/gpu"),
        ({}, {"nvidia.com/gpu": "1"}, "OutOfnvidia.com/gpu"),
    ],
)
def test_what_does_not_fit_fails_with_the_kubelets_reason(
    amounts: dict[str, str], requests: dict[str, str], reason: str
) -> None:
    world = World()
    world.node(**amounts)
    world.pod("a", spec={"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]})
    world.settle()
    assert (world.phase("a"), world.status("a")["reason"]) == ("Failed", reason)


def test_of_two_pods_that_overcommit_a_node_the_one_bound_later_fails(world: World) -> None:
    world.pod("first", cpu="3")
    world.pod("second", cpu="2")
    world.settle()
    assert (world.phase("first"), world.phase("second")) == ("Running", "Failed")
    assert world.status("second")["message"] == (
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000"
    )


def test_a_refused_pod_takes_nothing_of_its_node(world: World) -> None:
    world.pod("first", cpu="3")
    world.pod("second", cpu="2")
    world.pod("third", cpu="1")
    world.settle()
    assert world.phase("third") == "Running"


def test_sidecars_init_steps_and_overhead_count(world: World) -> None:
    def container(cpu: str, **extra: str) -> dict[str, Any]:
        return {"name": "x", "image": "i", "resources": {"requests": {"cpu": cpu}}, **extra}

    # The step of 3 runs beside the sidecar of 500m, and 500m of overhead: 4 in all, which just fits.
    init = [container("500m", restartPolicy="Always"), container("3")]
    world.pod("a", spec={"initContainers": init, "containers": [container("1")], "overhead": {"cpu": "500m"}})
    world.pod("b", cpu="1m")
    world.settle()
    assert world.phase("a") == "Running"
    assert world.status("b")["reason"] == "OutOfcpu"


def test_two_pods_cannot_hold_one_host_port(world: World) -> None:
    spec = {"containers": [{"name": "c", "image": "i", "ports": [{"hostPort": 80, "containerPort": 80}]}]}
    world.pod("a", spec=spec)
    world.pod("b", spec=spec)
    world.settle()
    assert (world.phase("a"), world.phase("b")) == ("Running", "Failed")
    assert world.status("b")["reason"] == "NodePorts"


def test_a_pod_succeeds_after_its_seconds_and_makes_room(world: World) -> None:
    world.pod("a", cpu="4", life="2.5")
    world.settle(2.4)
    assert world.phase("a") == "Running"
    world.settle(0.2)
    assert world.phase("a") == "Succeeded"
    assert world.status("a")["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    world.pod("b", cpu="4")
    world.settle()
    assert world.phase("b") == "Running"


def test_a_bad_life_is_refused_with_what_is_allowed(world: World) -> None:
    world.pod("a", life="soon")
    world.settle()
    assert world.phase("a") == "Failed"
    assert "expected seconds of at least 0, found 'soon'" in world.status("a")["message"]


def test_a_deleted_pod_is_gone_once_its_containers_stopped(world: World) -> None:
    world.pod("a")
    world.settle()
    world.delete("a")
    world.settle(0.1)
    assert world.get("a") is not None
    world.settle(0.2)
    assert world.get("a") is None


def test_containers_that_stop_slowly_are_given_no_more_than_the_grace() -> None:
    world = World(stop_seconds=60)
    world.node()
    world.pod("a")
    world.settle()
    world.delete("a", grace=3)
    world.settle(2.9)
    assert world.get("a") is not None
    world.settle(0.2)
    assert world.get("a") is None


def test_a_stopping_pod_keeps_its_share_until_it_is_gone() -> None:
    world = World(stop_seconds=10)
    world.node()
    world.pod("a", cpu="4")
    world.settle()
    world.delete("a")
    world.pod("b", cpu="1")
    world.settle()
    assert world.phase("b") == "Failed"
    world.settle(11)
    world.pod("c", cpu="4")
    world.settle()
    assert world.phase("c") == "Running"


def test_finalizers_hold_the_object_but_not_the_share(world: World) -> None:
    world.pod("a", cpu="4", metadata={"finalizers": ["example.com/hold"]})
    world.settle()
    world.delete("a")
    world.settle(1)
    obj = world.get("a")
    assert obj is not None
    assert obj["status"]["phase"] == "Succeeded"
    assert obj["metadata"]["deletionGracePeriodSeconds"] == 0
    world.pod("b", cpu="4")
    world.settle()
    assert world.phase("b") == "Running"


def test_a_pod_that_a_client_fails_makes_room(world: World) -> None:
    world.pod("a", cpu="4")
    world.settle()
    record = world.store.tables[PODS].get("default", "a")
    assert record is not None
    obj = orjson.loads(record.data)
    obj["status"]["phase"] = "Failed"
    world.store.replace(PODS, record, obj)
    world.pod("b", cpu="4")
    world.settle()
    assert world.phase("b") == "Running"


def test_a_namesake_of_a_deleted_pod_is_a_pod_of_its_own(world: World) -> None:
    world.pod("a", cpu="4", life="5")
    world.settle()
    record = world.store.tables[PODS].get("default", "a")
    assert record is not None
    world.store.remove(PODS, record)
    world.pod("a", cpu="4")
    world.settle(20)
    assert world.phase("a") == "Running"


def test_a_node_becomes_ready_and_loses_the_not_ready_taint() -> None:
    world = World()
    taints = [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "x", "effect": "NoSchedule"},
    ]
    world.store.insert(
        NODES, {"metadata": {"name": "n", "uid": "u"}, "spec": {"taints": taints}, "status": {}}
    )
    world.settle()
    record = world.store.tables[NODES].get("", "n")
    assert record is not None
    node = orjson.loads(record.data)
    ready = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
    assert ready["status"] == "True"
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["x"]


def test_every_node_renews_its_lease_within_ten_seconds_and_not_all_at_once() -> None:
    world = World()
    for number in range(100):
        world.node(f"n{number}")
    world.settle(1)
    first = len(world.store.tables[LEASES].records)
    assert 0 < first < 50
    world.settle(9.1)
    leases = world.store.tables[LEASES].records
    assert len(leases) == 100
    before = {key: orjson.loads(record.data)["spec"]["renewTime"] for key, record in leases.items()}
    world.settle(10.1)
    after = {key: orjson.loads(record.data)["spec"]["renewTime"] for key, record in leases.items()}
    assert all(after[key] > before[key] for key in before)


def test_a_deleted_nodes_lease_goes_with_it(world: World) -> None:
    world.settle(11)
    assert world.store.tables[LEASES].records
    record = world.store.tables[NODES].get("", "n1")
    assert record is not None
    world.store.remove(NODES, record)
    world.settle(1)
    assert not world.store.tables[LEASES].records


def test_a_pod_that_is_resized_takes_what_it_has_then(world: World) -> None:
    world.pod("a", cpu="3")
    world.settle()
    record = world.store.tables[PODS].get("default", "a")
    assert record is not None
    pod = orjson.loads(record.data)
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    world.store.replace(PODS, record, pod)
    world.pod("b", cpu="3")
    world.pod("c", cpu="1m")
    world.settle()
    assert (world.phase("b"), world.phase("c")) == ("Running", "Failed")


def test_a_node_that_returns_in_time_keeps_its_pods_and_counts_them(world: World) -> None:
    world.pod("a", cpu="3")
    world.settle()
    record = world.store.tables[NODES].get("", "n1")
    assert record is not None
    world.store.remove(NODES, record)
    world.settle(1)
    world.node()
    world.pod("b", cpu="2")
    world.settle(20)
    assert (world.phase("a"), world.phase("b")) == ("Running", "Failed")


def test_a_shrunk_node_takes_no_more_but_keeps_what_it_has(world: World) -> None:
    world.pod("a", cpu="3")
    world.settle()
    record = world.store.tables[NODES].get("", "n1")
    assert record is not None
    node = orjson.loads(record.data)
    node["status"]["allocatable"]["cpu"] = "2"
    world.store.replace(NODES, record, node)
    world.pod("b", cpu="1m")
    world.settle()
    assert (world.phase("a"), world.phase("b")) == ("Running", "Failed")


def test_pods_that_ran_before_the_kubelets_came_are_counted() -> None:
    world = World()
    world.node()
    world.pod("a", cpu="3")
    world.settle()
    world.kubelets = Kubelets(world.store)
    world.pod("b", cpu="2")
    world.settle()
    assert (world.phase("a"), world.phase("b")) == ("Running", "Failed")
