"""Claims get their volumes, and volumes their phases."""

from __future__ import annotations

from typing import Any

import pytest

from embedded_kubernetes.protection import Protection
from embedded_kubernetes.volume_binding import BIND_COMPLETED, SELECTED_NODE, FreeVolumes, VolumeBinding

from ..support import NODES, PVCS, VOLUMES, World, named, volume, volume_claim

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


@pytest.fixture
def world() -> World:
    world = World(nodes="n1")
    world.controllers = [VolumeBinding(world.api), Protection(world.api.registry)]
    return world


def add_class(world: World, name: str, *, waits: bool = False, provisioner: str = "example.com/made") -> None:
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    world.post(CLASSES, named(name, provisioner=provisioner, volumeBindingMode=mode))


def add_claim(world: World, name: str = "c", **spec: Any) -> Any:
    return world.post(PVCS, volume_claim(name, **spec))


def add_volume(world: World, name: str, **spec: Any) -> None:
    world.post(VOLUMES, volume(name, **spec))


def put_down(world: World, *volumes: str, uid: str) -> None:
    """Reserve these volumes for the claim `c`, like a scheduler."""
    for name in volumes:
        metadata = {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}
        ref = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": uid}
        world.patch(f"{VOLUMES}/{name}", {"metadata": metadata, "spec": {"claimRef": ref}})


def phase(world: World, path: str) -> str:
    return world.get(path)["status"]["phase"]


def bound_to(world: World, name: str = "c") -> str | None:
    claim = world.get(f"{PVCS}/{name}")
    if BIND_COMPLETED not in claim["metadata"].get("annotations", {}):
        assert claim["status"]["phase"] == "Pending"
        return None
    assert claim["status"]["phase"] == "Bound"
    volume: str = claim["spec"]["volumeName"]
    held = world.get(f"{VOLUMES}/{volume}")
    assert held["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    assert held["status"]["phase"] == "Bound"
    return volume


@pytest.mark.parametrize("provisioner", ["csi.example.com", "example.com/made"])
def test_a_volume_is_made_for_a_claim_that_does_not_wait(world: World, provisioner: str) -> None:
    add_class(world, "now", provisioner=provisioner)
    uid = add_claim(world, storageClassName="now")["metadata"]["uid"]
    world.settle()
    assert bound_to(world) == f"pvc-{uid}"


def test_a_claim_that_waits_for_its_consumer_is_left_alone_until_a_node_is_selected(world: World) -> None:
    world.post(NODES, named("n2", labels={"topology.kubernetes.io/zone": "east"}))
    add_class(world, "late", waits=True)
    add_volume(world, "free", storageClassName="late")
    add_claim(world, storageClassName="late")
    world.settle()
    assert bound_to(world) is None
    world.patch(f"{PVCS}/c", {"metadata": {"annotations": {SELECTED_NODE: "n2"}}})
    world.settle()
    made = bound_to(world)
    assert made.startswith("pvc-")
    affinity = world.get(f"{VOLUMES}/{made}")["spec"]["nodeAffinity"]["required"]
    assert affinity["nodeSelectorTerms"][0]["matchExpressions"] == [
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["east"]}
    ]


def test_a_volume_that_is_down_for_another_claim_or_an_earlier_namesake_is_not_given_away(world: World) -> None:
    add_volume(world, "v", claimRef={"namespace": "default", "name": "other"})
    add_claim(world, storageClassName="")
    add_claim(world, "wants-it", storageClassName="", volumeName="v")
    add_volume(world, "w", claimRef={"namespace": "default", "name": "namesake", "uid": "earlier"})
    add_claim(world, "namesake", storageClassName="", volumeName="w")
    world.settle()
    assert [bound_to(world, name) for name in ("c", "wants-it", "namesake")] == [None] * 3


@pytest.mark.parametrize(("policy", "there"), [("Retain", True), ("Delete", False)])
def test_a_volume_whose_claim_is_gone_is_released_or_deleted(world: World, policy: str, there: bool) -> None:
    add_volume(world, "v", persistentVolumeReclaimPolicy=policy)
    add_claim(world, storageClassName="")
    world.settle()
    assert bound_to(world) == "v"
    world.delete(f"{PVCS}/c")
    world.settle()
    assert world.is_there(f"{VOLUMES}/v") is there
    if there:
        assert phase(world, f"{VOLUMES}/v") == "Released"
        add_claim(world, storageClassName="")
        world.settle()
        assert bound_to(world) is None


def test_a_claim_whose_volume_is_gone_is_lost(world: World) -> None:
    add_volume(world, "v")
    add_claim(world, storageClassName="")
    world.settle()
    world.delete(f"{VOLUMES}/v")
    world.patch(f"{VOLUMES}/v", {"metadata": {"finalizers": None}})
    add_volume(world, "another")
    world.patch(f"{PVCS}/c", {"metadata": {"labels": {"a": "b"}}})
    world.settle()
    assert phase(world, f"{PVCS}/c") == "Lost"


def test_a_claim_that_names_its_volume_gets_it_when_it_comes_though_its_class_waits(world: World) -> None:
    add_class(world, "late", waits=True)
    add_claim(world, storageClassName="late", volumeName="v")
    add_claim(world, "other", storageClassName="late")
    world.settle()
    add_volume(world, "w", storageClassName="late")
    world.settle()
    assert bound_to(world) is None
    add_volume(world, "v", storageClassName="late")
    world.settle()
    assert bound_to(world) == "v"
    assert bound_to(world, "other") is None


def test_every_volume_that_was_put_down_for_a_claim_that_got_another_is_let_go(world: World) -> None:
    add_class(world, "late", waits=True, provisioner="kubernetes.io/no-provisioner")
    for name in ("v", "w", "x"):
        add_volume(world, name, storageClassName="late")
    uid = add_claim(world, storageClassName="late")["metadata"]["uid"]
    put_down(world, "v", "w", uid=uid)
    world.settle()
    got = bound_to(world)
    assert got in ("v", "w")
    found = {each: phase(world, f"{VOLUMES}/{each}") for each in "vwx"}
    assert found == {**dict.fromkeys("vwx", "Available"), got: "Bound"}
    assert [each for each in "vwx" if "claimRef" in world.get(f"{VOLUMES}/{each}")["spec"]] == [got]


def test_free_volumes_stay_in_step_with_the_table(world: World) -> None:
    table = world.api.registry.stored(("", "persistentvolumes")).table
    free = FreeVolumes(table)
    table.subscribers.append(free.changed)
    wanted = {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "storageClassName": "s"}

    def found(requested: int = 0, **more: Any) -> list[str]:
        anew = FreeVolumes(table)
        for claim in ("default/c", "default/d"):
            assert dict(free.naming(claim)) == dict(anew.naming(claim))
        names = [each.name for each in free.fitting({**wanted, **more}, requested)]
        assert names == [each.name for each in anew.fitting({**wanted, **more}, requested)]
        return names

    for name, size in (("a", "3Gi"), ("b", "1Gi"), ("c", "2Gi")):
        add_volume(world, name, size=size, storageClassName="s")
    add_volume(world, "blocks", storageClassName="s", volumeMode="Block")
    add_volume(world, "elsewhere", storageClassName="t")
    assert found() == ["b", "c", "a"]
    assert found(2 << 30) == ["c", "a"]
    assert found(volumeMode="Block") == ["blocks"]
    assert found(accessModes=["ReadWriteMany"]) == []
    assert found(storageClassName=None) == []
    ref = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "d"}
    world.patch(f"{VOLUMES}/c", {"spec": {"claimRef": ref}})
    assert found() == ["b", "a"] and dict(free.naming("default/d")) == {"c": ""}
    world.patch(f"{VOLUMES}/b", {"metadata": {"labels": {"disk": "ssd"}, "finalizers": ["x/y"]}})
    assert found(selector={"matchLabels": {"disk": "ssd"}}) == ["b"]
    world.delete(f"{VOLUMES}/b")
    assert found() == ["a"]
    for name in ("a", "c", "blocks"):
        world.delete(f"{VOLUMES}/{name}")
    world.settle()
    assert found() == [] and not free.naming("default/d")
