"""The ledger: what test_ledger_model does not draw: volumes, and devices that others have named."""

from __future__ import annotations

from msgspec.structs import replace

from agent_scheduler.engine.state.gpus import RESOURCE
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.recount import contradictions
from tests.support.engine import World, node


def test_a_pod_that_goes_leaves_no_volumes_behind_though_its_node_is_not_known() -> None:
    """Or its claims would be taken for used for ever."""
    world = World()
    pod = world.pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    world.ledger.set_pod(pod, "nowhere")
    assert world.ledger.volume_use.users(("default", "c"))
    world.ledger.remove_pod(pod.uid)
    assert not world.ledger.volume_use.users(("default", "c"))
    assert contradictions(world.ledger) == []


# ---- on which GPUs a pod is counted


def with_gpu() -> tuple[World, PodInfo]:
    """A pod that was given one of two devices, and whose bind is under way."""
    world = World(node("a", extended={RESOURCE: "2000"}))
    pod = world.pod(requests={RESOURCE: "700"})
    world.ledger.assume(pod, 0)
    assert world.ledger.columns.gpus[0] == (300, 1000)
    return world, pod


def test_devices_of_a_pod_that_others_have_bound_to_the_same_node_are_given_back() -> None:
    """They named none, and no later process would count it on any."""
    world, pod = with_gpu()
    assert world.ledger.set_pod(replace(pod, node_name="a"), "a")
    assert world.ledger.columns.gpus[0] == (1000, 1000)
    assert contradictions(world.ledger) == []


def test_devices_that_others_have_given_a_pod_take_the_place_of_those_chosen_here() -> None:
    world, pod = with_gpu()
    assert world.ledger.set_pod(replace(pod, node_name="a", gpus=(1,)), "a")
    assert world.ledger.columns.gpus[0] == (1000, 300)


def test_an_annotation_that_goes_takes_no_device_from_a_pod() -> None:
    """Its containers have it for as long as they run."""
    world, pod = with_gpu()
    assert not world.ledger.set_pod(replace(pod, node_name="a", gpus=(0,)), "a")
    assert not world.ledger.set_pod(replace(pod, node_name="a"), "a")
    assert world.ledger.columns.gpus[0] == (300, 1000)
