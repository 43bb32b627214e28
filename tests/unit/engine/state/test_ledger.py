"""The ledger: who is where, counted exactly, whatever order the news comes in."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.state.gpus import RESOURCE
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.recount import contradictions
from tests.support.engine import World, node


def test_a_pod_on_a_node_that_is_not_known_yet_counts_once_the_node_appears() -> None:
    world = World()
    world.place("late", requests={"cpu": "1"})
    world.ledger.set_node(node("late"))
    assert world.ledger.columns.requested[0, world.ledger.rows["late"]] == 1000


def test_a_node_that_goes_and_comes_back_has_its_pods_again() -> None:
    world = World(node("a"))
    pod = world.place("a", requests={"cpu": "1"})
    assert world.ledger.remove_node("a")
    assert not world.ledger.remove_node("a")
    world.ledger.set_node(node("a"))
    assert world.ledger.columns.requested[0, 0] == 1000
    world.ledger.remove_pod(pod.uid)
    assert world.ledger.columns.requested[0, 0] == 0
    assert contradictions(world.ledger) == []


def test_an_assumed_pod_that_was_bound_elsewhere_is_counted_there() -> None:
    world = World(node("a"), node("b"))
    pod = world.pod(requests={"cpu": "1"})
    world.ledger.assume(pod, world.ledger.rows["a"])
    assert world.ledger.assumed == 1
    assert world.ledger.set_pod(pod, "b")
    assert world.ledger.columns.requested[0].tolist()[:2] == [0, 1000]
    assert world.ledger.assumed == 0
    assert world.ledger.forget(pod.uid) is None


def test_confirming_an_assumed_pod_changes_no_column() -> None:
    world = World(node("a"))
    pod = world.pod(requests={"cpu": "1"})
    world.ledger.assume(pod, 0)
    sequence = world.ledger.sequence
    assert not world.ledger.set_pod(pod, "a")
    assert world.ledger.sequence == sequence
    assert world.ledger.assumed == 0


def test_a_resized_pod_is_counted_at_its_new_size() -> None:
    world = World(node("a"))
    pod = world.place("a", requests={"cpu": "1"})
    bigger = replace(world.pod(requests={"cpu": "2"}), uid=pod.uid)
    world.ledger.set_pod(bigger, "a")
    assert world.ledger.columns.requested[0, 0] == 2000


def test_a_heartbeat_changes_nothing() -> None:
    world = World(node("a"))
    sequence = world.ledger.sequence
    assert not world.ledger.set_node(node("a"))
    assert world.ledger.sequence == sequence


def test_a_snapshot_does_not_change_until_it_is_refreshed() -> None:
    world = World(node("a"))
    snapshot = Snapshot(world.ledger)
    before = snapshot.columns.requested.copy()
    world.place("a", requests={"cpu": "1"})
    world.ledger.set_node(node("a", unschedulable=True))
    assert np.array_equal(snapshot.columns.requested, before)
    assert not snapshot.columns.unschedulable[0]
    assert snapshot.refresh()
    assert snapshot.columns.requested[0, 0] == 1000
    assert snapshot.columns.unschedulable[0]
    assert not snapshot.refresh()


def test_a_snapshot_that_lags_beyond_the_log_copies_everything() -> None:
    world = World(node("a"), node("b"))
    snapshot = Snapshot(world.ledger)
    pod = world.place("b", requests={"cpu": "1"})
    for _ in range(40_000):
        world.ledger.remove_pod(pod.uid)
        world.ledger.set_pod(pod, "b")
    assert world.ledger.rows_since(0) is None
    snapshot.refresh()
    assert snapshot.columns.requested[0].tolist()[:2] == [0, 1000]


def test_a_pod_that_goes_leaves_no_volumes_behind_though_its_node_is_not_known() -> None:
    """Or its claims would be taken for used for ever."""
    world = World()
    pod = world.pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    world.ledger.set_pod(pod, "nowhere")
    assert world.ledger.volume_use.users(("default", "c"))
    world.ledger.remove_pod(pod.uid)
    assert not world.ledger.volume_use.users(("default", "c"))
    assert contradictions(world.ledger) == []


# ---- room that was assumed for a bind

PORT = [
    {"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}], "resources": {"requests": {"cpu": "1"}}}
]


def test_what_was_assumed_is_given_back_in_full() -> None:
    world = World(node("a"))
    pod = world.pod(containers=PORT)
    world.ledger.assume(pod, 0)
    assert world.ledger.columns.requested[0, 0] == 1000
    assert world.ledger.columns.ports
    assert world.ledger.forget(pod.uid) == "a"
    assert world.ledger.columns.requested[:, 0].tolist() == [0, 0, 0, 0]
    assert not world.ledger.columns.ports
    assert (world.ledger.placements, world.ledger.assumed) == ({}, 0)


def test_a_confirmed_pod_is_not_given_back() -> None:
    world = World(node("a"))
    pod = world.pod(containers=PORT)
    world.ledger.assume(pod, 0)
    world.ledger.confirm(pod.uid)
    assert world.ledger.assumed == 0
    assert world.ledger.forget(pod.uid) is None
    assert world.ledger.columns.requested[0, 0] == 1000


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
