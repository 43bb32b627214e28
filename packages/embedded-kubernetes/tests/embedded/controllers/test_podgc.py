"""Pods of deleted nodes are failed and removed after a while."""

from __future__ import annotations

import pytest

from embedded.support import NODES, PODS, World, named
from embedded_kubernetes.podgc import PodCollector

NODE = "/api/v1/nodes/n1"


@pytest.fixture
def world() -> World:
    world = World(nodes="n1")
    world.controllers = [PodCollector(world.api.registry)]
    return world


def test_pods_of_a_deleted_node_go_after_the_quarantine_and_others_stay(world: World) -> None:
    world.post(NODES, named("n2"))
    for number in range(5):
        world.ready_pod(f"p{number}")
    world.ready_pod("elsewhere", node="n2")
    world.pod("nowhere")
    watch = world.watch(f"{PODS}?watch=true")
    watch.events()
    world.delete(NODE)
    world.settle(4, most=2)
    assert len(world.names(PODS)) == 7
    world.settle(2, most=2)
    assert world.names(PODS) == ["elsewhere", "nowhere"]
    failed = next(event for event in watch.events() if event["type"] == "MODIFIED")["object"]["status"]
    assert failed["phase"] == "Failed"
    assert failed["conditions"][-1]["type"] == "DisruptionTarget"
    assert failed["conditions"][-1]["reason"] == "DeletionByPodGC"


def test_a_node_that_returns_in_time_keeps_its_pods(world: World) -> None:
    world.ready_pod("p")
    world.delete(NODE)
    world.settle(4)
    world.post(NODES, named("n1"))
    world.settle(20)
    assert world.names(PODS) == ["p"]


def test_finalizers_hold_a_collected_pod_until_they_are_removed(world: World) -> None:
    world.pod("p", spec={"nodeName": "n1"}, finalizers=["example.com/mine"])
    world.delete(NODE)
    world.settle(30)
    found = world.get(f"{PODS}/p")
    assert found["status"]["phase"] == "Failed"
    assert "deletionTimestamp" in found["metadata"]
    world.patch(f"{PODS}/p", {"metadata": {"finalizers": None}})
    assert not world.names(PODS)


def test_pods_that_lost_their_node_before_the_controller_came_go() -> None:
    world = World(nodes="n1")
    world.ready_pod("p")
    world.delete(NODE)
    world.controllers = [PodCollector(world.api.registry)]
    world.settle(6)
    assert not world.names(PODS)
