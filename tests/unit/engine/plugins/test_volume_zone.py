"""VolumeZone: labelled volumes are mounted in their zones."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.plugins.volume_zone import VolumeZone, plan
from agent_scheduler.engine.volumes.claims import Unresolvable
from agent_scheduler.engine.volumes.hints import topologies
from tests.support.engine import World as Storage
from tests.support.engine import node, wakes
from tests.support.storage import Json, claim, pod, storage_class, volume

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA = "failure-domain.beta.kubernetes.io/zone"

NODES: dict[str, dict[str, str]] = {
    "one": {ZONE: "z1", REGION: "r1"},
    "two": {ZONE: "z2", REGION: "r1"},
    "beta": {BETA: "z1"},
    "bare": {},
}


def fits(labels: dict[str, str]) -> list[str]:
    storage = Storage(*(node(name, labels=each) for name, each in NODES.items()))
    storage.add(claim("c", volume="v", bound=True), volume("v", meta={"labels": labels}))
    found = plan(pod("c"), storage.catalogue)
    if found is None:
        return list(NODES)
    assert not isinstance(found, Unresolvable)
    return storage.names(VolumeZone().feasible(found, storage.columns, storage.rows))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, ["one", "two", "beta", "bare"]),
        ({ZONE: "z1"}, ["one", "bare"]),
        ({ZONE: "z1__z2"}, ["one", "two", "bare"]),
        ({ZONE: "z1__ z2"}, ["one", "two", "bare"]),
        ({ZONE: "z9"}, ["bare"]),
        ({ZONE: "z2", REGION: "r1"}, ["two", "bare"]),
        ({ZONE: "z1", REGION: "r2"}, ["bare"]),
        ({BETA: "z1"}, ["one", "beta", "bare"]),
        ({ZONE: "z1__"}, ["one", "two", "beta", "bare"]),
    ],
)
def test_a_volume_is_mounted_in_the_zones_of_its_labels(labels: dict[str, str], expected: list[str]) -> None:
    assert fits(labels) == expected


def test_the_nodes_that_are_refused_are_counted_with_the_reason() -> None:
    storage = Storage(node("one"), node("two"))
    found = topologies(volume("v", meta={"labels": {ZONE: "z1"}}))
    found = VolumeZone().reasons(found, storage.columns, storage.rows)
    assert found == {"node(s) had no available volume zone": 2}


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([], 'persistentvolumeclaim "c" not found'),
        ([claim("c", volume="v")], 'persistentvolume "v" not found'),
        ([claim("c", class_name=None)], "PersistentVolumeClaim had no pv name and storageClass name"),
        ([claim("c")], 'storageclass.storage.k8s.io "slow" not found'),
        ([claim("c"), storage_class(mode=None)], 'VolumeBindingMode not set for StorageClass "slow"'),
        ([claim("c"), storage_class(mode="Immediate")], "PersistentVolume had no name"),
    ],
)
def test_a_claim_whose_volume_cannot_be_known_refuses_every_node(objects: list[Any], message: str) -> None:
    assert plan(pod("c"), Storage().add(*objects).catalogue) == Unresolvable(message)


def test_a_claim_that_waits_for_its_consumer_has_no_zone_yet() -> None:
    assert plan(pod("c"), Storage().add(claim("c"), storage_class()).catalogue) is None


def test_ephemeral_claims_are_left_out() -> None:
    inline: Json = {"awsElasticBlockStore": {"volumeID": "d"}}
    assert plan(pod(ephemeral=("tmp",), d=inline), Storage().catalogue) is None


def test_a_node_of_another_zone_wakes_whom_volume_zone_refused_and_one_of_another_rack_does_not() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    pod = Storage().pod(volumes=volumes)
    zone = "topology.kubernetes.io/zone"
    was, moved, renamed = (
        node("n", labels=labels) for labels in ({zone: "a"}, {zone: "b"}, {zone: "a", "rack": "7"})
    )
    bare = node("n")
    assert wakes(VolumeZone(), pod, ev.NODE_ADD, None, was)
    assert wakes(VolumeZone(), pod, ev.NODE_UPDATE_LABEL, was, moved)
    assert wakes(VolumeZone(), pod, ev.NODE_UPDATE_LABEL, was, bare), (
        "a node without zones takes every volume"
    )
    assert not wakes(VolumeZone(), pod, ev.NODE_UPDATE_LABEL, was, renamed)
