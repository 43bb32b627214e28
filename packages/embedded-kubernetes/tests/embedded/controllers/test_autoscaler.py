"""Nodes are added for pods that are Unschedulable, and removed when they stay empty."""

from __future__ import annotations

from typing import Any

from embedded_kubernetes import kubelet
from embedded_kubernetes.autoscaler import TO_BE_DELETED, Autoscaler
from embedded_kubernetes.node_groups import read_rules

from ..support import EVENTS, NODES, PODS, STRATEGIC, World, asking, pod

GPU = "cpu=8,memory=32Gi,nvidia.com/gpu=1,label:pool=gpu,taint:gpu=yes:NoSchedule,name=gpu,max=2,delay=5,idle=30"
PLAIN = "cpu=4,memory=8Gi,name=plain,max=3,delay=5,idle=30"


class Scaled(World):
    """A server with an autoscaler and kubelets, and a first node that has no room."""

    def __init__(self, *rules: str) -> None:
        super().__init__(nodes="n1")
        self.scaler = Autoscaler(self.api, read_rules(rules))
        self.controllers = [kubelet.Kubelets(self.store), self.scaler]
        self.settle()

    def waiting(self, name: str, *, cpu: str = "1", reason: str = "Unschedulable", **spec: Any) -> None:
        requests = {"cpu": cpu, **spec.pop("requests", {})}
        one = asking(limits=spec.pop("limits", None), **requests)
        self.post(PODS, pod(name, spec={"containers": [one], **spec}))
        self.say(name, reason)

    def say(self, name: str, reason: str, **status: Any) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": reason}
        body = {"status": {"conditions": [condition], **status}}
        self.patch(f"{PODS}/{name}/status", body, kind=STRATEGIC)

    def made(self) -> list[str]:
        return [name for name in self.names(NODES) if "-" in name]

    def events(self) -> list[tuple[str, str]]:
        items = self.get(EVENTS)["items"]
        return sorted(
            (each["involvedObject"]["name"], each["message"]) for each in items if each["reason"] == "TriggeredScaleUp"
        )


def test_a_node_comes_for_an_unschedulable_pod_after_the_delay() -> None:
    world = Scaled(PLAIN)
    world.waiting("p")
    world.settle(5.5)
    assert world.made() == []
    world.settle(1)
    assert world.made() == ["plain-1"]
    node = world.get(f"{NODES}/plain-1")
    assert node["status"]["allocatable"] == {"cpu": "4", "memory": "8Gi", "pods": "110"}
    assert node["metadata"]["labels"]["agent-scheduler.io/node-group"] == "plain"
    assert world.events() == [("p", "pod triggered scale-up: [{plain 0->1 (max: 3)}]")]


def test_no_node_comes_for_a_pod_that_waits_for_something_else() -> None:
    world = Scaled(PLAIN)
    world.waiting("full", reason="QueueFull")
    world.waiting("gated", reason="SchedulingGated")
    world.waiting("nominated")
    world.say("nominated", "Unschedulable", nominatedNodeName="n1")
    world.waiting("deleted", terminationGracePeriodSeconds=30)
    world.patch(f"{PODS}/deleted", {"metadata": {"finalizers": ["example.com/f"]}})
    world.delete(f"{PODS}/deleted")
    world.settle(60)
    assert world.made() == []


def test_several_pods_share_a_node_to_come() -> None:
    world = Scaled(PLAIN)
    for number in range(8):
        world.waiting(f"p{number}", cpu="1")
    world.settle(1)
    for number in range(8, 10):
        world.waiting(f"p{number}", cpu="2")
    world.settle(20)
    assert world.made() == ["plain-1", "plain-2", "plain-3"]
    assert len(world.events()) == 10


def test_a_pod_that_fits_on_a_node_that_is_there_needs_none() -> None:
    world = Scaled(PLAIN)
    world.node("n2", cpu="2")
    world.waiting("fits", cpu="2")
    world.settle(20)
    assert world.made() == []
    world.pod("there", spec={"nodeName": "n2", "containers": [asking(cpu="1")]})
    world.settle(20)
    assert world.made() == ["plain-1"]


def test_a_group_has_no_more_nodes_than_its_rule_says() -> None:
    world = Scaled(PLAIN)
    for number in range(5):
        world.waiting(f"p{number}", cpu="4")
    world.settle(20)
    assert len(world.made()) == 3
    assert len(world.events()) == 3


def test_the_first_group_that_the_pod_fits_is_taken() -> None:
    world = Scaled(GPU, PLAIN)
    tolerates = [{"key": "gpu", "operator": "Exists"}]
    gpu = {"nvidia.com/gpu": "1"}
    world.waiting("plain")
    world.waiting("gpu", requests=gpu, limits=gpu, tolerations=tolerates)
    world.waiting("intolerant", requests=gpu, limits=gpu)
    world.waiting("elsewhere", nodeSelector={"pool": "cpu"})
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["gpu"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    world.waiting("affine", tolerations=tolerates, affinity={"nodeAffinity": required})
    world.settle(20)
    assert world.made() == ["gpu-1", "plain-1"]
    assert [name for name, _ in world.events()] == ["affine", "gpu", "plain"]
    assert world.get(f"{NODES}/gpu-1")["spec"]["taints"] == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]


def test_a_node_without_pods_goes_after_a_while_and_one_with_pods_stays() -> None:
    world = Scaled(PLAIN)
    world.waiting("p", cpu="3")
    world.waiting("q", cpu="3")
    world.settle(10)
    assert world.bind("p", "plain-1")[0] == 201
    assert world.bind("q", "plain-2")[0] == 201
    world.settle(60)
    assert world.made() == ["plain-1", "plain-2"]
    world.delete(f"{PODS}/p", gracePeriodSeconds=0)
    world.settle(29)
    assert world.made() == ["plain-1", "plain-2"]
    world.settle(2)
    (taint,) = world.get(f"{NODES}/plain-1")["spec"]["taints"]
    assert (taint["key"], taint["effect"]) == (TO_BE_DELETED, "NoSchedule")
    world.settle(3)
    assert world.made() == ["plain-2"]
    world.waiting("r", cpu="3")
    world.settle(10)
    assert world.made() == ["plain-2", "plain-3"]


def test_a_node_to_which_a_pod_came_at_the_last_moment_is_kept() -> None:
    world = Scaled(PLAIN)
    world.waiting("p")
    world.settle(10)
    world.delete(f"{PODS}/p", gracePeriodSeconds=0)
    world.settle(31.5)
    assert "taints" in world.get(f"{NODES}/plain-1")["spec"]
    world.waiting("late")
    assert world.bind("late", "plain-1")[0] == 201
    world.settle(60)
    assert world.made() == ["plain-1"]
    assert not world.get(f"{NODES}/plain-1")["spec"].get("taints")


def test_a_node_that_others_delete_is_made_again_for_who_needs_it() -> None:
    world = Scaled(PLAIN)
    world.waiting("p")
    world.settle(10)
    world.delete(f"{NODES}/plain-1")
    world.settle(10)
    assert world.made() == ["plain-2"]


def test_a_watch_that_ends_is_opened_again() -> None:
    world = Scaled(PLAIN)
    world.waiting("p")
    world.settle(2)
    world.scaler.close()
    world.settle(10)
    assert world.made() == ["plain-1"]
