"""On which GPUs a pod is counted, as the API server says or as it was chosen here."""

from __future__ import annotations

from msgspec.structs import replace

from agent_scheduler.engine.state.gpus import RESOURCE
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.recount import contradictions
from tests.unit.engine.world import World, node


def _world() -> tuple[World, PodInfo]:
    """A pod that was given one of two devices, and whose bind is under way."""
    world = World(node("a", extended={RESOURCE: "2000"}))
    pod = world.pod(requests={RESOURCE: "700"})
    world.ledger.assume(pod, 0)
    assert world.ledger.columns.gpus[0] == (300, 1000)
    return world, pod


def test_devices_of_a_pod_that_others_have_bound_to_the_same_node_are_given_back() -> None:
    """They named none, and no later process would count it on any."""
    world, pod = _world()
    assert world.ledger.set_pod(replace(pod, node_name="a"), "a")
    assert world.ledger.columns.gpus[0] == (1000, 1000)
    assert contradictions(world.ledger) == []


def test_devices_that_others_have_given_a_pod_take_the_place_of_those_chosen_here() -> None:
    world, pod = _world()
    assert world.ledger.set_pod(replace(pod, node_name="a", gpus=(1,)), "a")
    assert world.ledger.columns.gpus[0] == (1000, 300)


def test_an_annotation_that_goes_takes_no_device_from_a_pod() -> None:
    """Its containers have it for as long as they run."""
    world, pod = _world()
    assert not world.ledger.set_pod(replace(pod, node_name="a", gpus=(0,)), "a")
    assert not world.ledger.set_pod(replace(pod, node_name="a"), "a")
    assert world.ledger.columns.gpus[0] == (300, 1000)
