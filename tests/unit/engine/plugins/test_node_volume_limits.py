"""NodeVolumeLimits: how many volumes of a driver a node can have attached."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.plugins.node_volume_limits import REASON, NodeVolumeLimits
from agent_scheduler.engine.state.podvolumes import PodVolumes
from tests.support.storage import Json, attachment, claim, csi_node, pod, storage_class, volume

from .volume_world import Users, VolumeWorld

EBS = "ebs.csi.aws.com"
MIGRATED = "kubernetes.io/aws-ebs"
INLINE: Json = {"awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}}
DISK: Json = {"awsElasticBlockStore": {"volumeID": "vol-2"}}
CSI: Json = {"csi": {"driver": "ebs"}}


def world(
    *objects: Any, limit: int = 2, driver: str = "ebs", migrated: str = "", used: Users | None = None
) -> VolumeWorld:
    """Node a can have two volumes of a driver, and b, whose driver sets no limit, any number.

    Claims c, d and e are bound to volumes of the driver ebs, unless `objects` has others of these names.
    """
    bound = [claim(name, volume=f"v-{name}", bound=True) for name in "cde"]
    sources = [{"driver": "ebs", "volumeHandle": f"vol-{name}"} for name in "cde"]
    volumes = [volume(f"v-{name}", csi=source) for name, source in zip("cde", sources, strict=True)]
    nodes = csi_node("a", migrated=migrated, **{driver: limit}), csi_node("b", ebs=None)
    made = storage_class("made", provisioner=driver)
    given = {(type(each), each.name) for each in objects}
    others = [each for each in (made, *nodes, *bound, *volumes) if (type(each), each.name) not in given]
    return VolumeWorld(NodeVolumeLimits(), *others, *objects, used=used)


BOTH, ON_B = ["a", "b"], ["b"]


@pytest.mark.parametrize(
    ("limit", "used", "asked", "more", "expected"),
    [
        (2, {}, pod("c", "d"), {}, BOTH),
        (2, {}, pod("c", "d", "e"), {}, ON_B),
        # Volumes of pods on the node count, those that it has already cost nothing, and shared ones count once.
        (2, {"1": ("a", pod("c", "d"))}, pod("e"), {}, ON_B),
        (2, {"1": ("a", pod("c", "d"))}, pod("d"), {}, BOTH),
        (2, {"1": ("a", pod("c")), "2": ("a", pod("c"))}, pod("d"), {}, BOTH),
        (2, {"1": ("a", pod("c")), "2": ("a", pod("d")), "3": ("a", pod("c"))}, pod("e"), {}, ON_B),
        (1, {"1": ("a", pod("c", "d"))}, pod("c"), {}, BOTH),
        # Pods that are thought away, and those that are to come.
        (2, {"1": ("a", pod("c", "d"))}, pod("e"), {"without": {"1"}}, BOTH),
        (2, {"1": ("a", pod("c"))}, pod("e"), {"coming": {"2": pod("c")}}, BOTH),
        (2, {"1": ("a", pod("c"))}, pod("e"), {"coming": {"2": pod("d")}}, ON_B),
        (2, {"1": ("a", pod("c"))}, pod("e"), {"coming": {"2": pod("d")}, "without": {"1"}}, BOTH),
        # Volumes that a pod describes inline for a driver count for no driver.
        (1, {"1": ("a", pod("c", x=CSI))}, pod("c", x=CSI, y=CSI), {}, BOTH),
        (1, {"1": ("a", pod("c", x=CSI))}, pod("d", x=CSI), {}, ON_B),
    ],
)
def test_a_node_takes_volumes_up_to_its_limit(
    limit: int, used: Users, asked: PodVolumes, more: Any, expected: list[str]
) -> None:
    assert world(limit=limit, used=used).verdict(asked, **more) == expected


@pytest.mark.parametrize(
    ("objects", "used", "asked", "expected"),
    [
        # What is still attached after its pod counts, and not twice where the pod is there.
        ([attachment("x", "a", "v-d")], {}, pod("c"), ON_B),
        ([attachment("x", "a", "v-d")], {}, pod("d"), BOTH),
        ([attachment("x", "a", "v-c")], {"1": ("a", pod("c"))}, pod("c"), BOTH),
        # Of unknown volumes, elsewhere, and of other drivers it does not.
        ([attachment("x", "a", "gone")], {}, pod("c"), BOTH),
        ([attachment("x", "b", "v"), attachment("y", "a", "w", driver="efs")], {}, pod("c"), BOTH),
        # Claims that are still to be made count for their class, and others for no driver.
        (
            [claim(name, class_name="made") for name in "cde"],
            {"1": ("a", pod("c"))},
            pod("e"),
            ON_B,
        ),
        ([claim("c", class_name=None)], {"1": ("a", pod("d"))}, pod("c"), BOTH),
        ([volume("v-c")], {"1": ("a", pod("d"))}, pod("c"), BOTH),
    ],
)
def test_what_counts_of_a_node_with_room_for_one_volume(
    objects: list[Any], used: Users, asked: PodVolumes, expected: list[str]
) -> None:
    assert world(*objects, limit=1, used=used).verdict(asked) == expected


def test_a_node_without_a_csi_node_has_no_limit() -> None:
    without = world(limit=0)
    assert without.verdict(pod("c")) == ON_B
    without.catalogue.delete_csi_node("a")
    assert without.verdict(pod("c")) == BOTH


@pytest.mark.parametrize("migrated", [MIGRATED, ""])
@pytest.mark.parametrize(
    ("objects", "asked", "expected"),
    [
        ([volume("v-c", **DISK)], pod("c"), ON_B),
        ([], pod(x=INLINE), BOTH),
        # A disk that is named with its zone is the one that is named without.
        ([], pod(x={"awsElasticBlockStore": {"volumeID": "vol-1"}}), BOTH),
        ([attachment("x", "a", "v", driver=EBS)], pod(x=INLINE), BOTH),
        ([claim("c", class_name="old"), storage_class("old", provisioner=MIGRATED)], pod("c"), ON_B),
    ],
)
def test_in_tree_volumes_count_for_the_driver_that_took_over_whatever_the_node_says(
    migrated: str, objects: list[Any], asked: PodVolumes, expected: list[str]
) -> None:
    used = {"1": ("a", pod(x=INLINE))}
    assert world(*objects, limit=1, migrated=migrated, driver=EBS, used=used).verdict(asked) == expected


def test_the_attachment_of_an_in_tree_volume_is_counted_with_its_pod() -> None:
    described = world(attachment("x", "a", None, driver=EBS), migrated=MIGRATED, driver=EBS)
    described.use.set("1", "a", pod(x=INLINE))
    assert described.verdict(pod(x=DISK)) == BOTH
    named = world(volume("v", **DISK), attachment("x", "a", "v", driver=EBS), limit=1, driver=EBS)
    assert named.verdict(pod(x=INLINE)) == BOTH


@pytest.mark.parametrize(
    ("objects", "asked", "why"),
    [
        ([], pod("x"), 'looking up PVC default/x: persistentvolumeclaim "x" not found'),
        (
            [claim("p-tmp")],
            pod(ephemeral=("tmp",)),
            "PVC default/p-tmp was not created for pod default/p (pod is not owner)",
        ),
    ],
)
def test_a_claim_that_cannot_be_looked_up_refuses_every_node(
    objects: list[Any], asked: PodVolumes, why: str
) -> None:
    assert world(*objects).verdict(asked) == {why: 2}


def test_the_nodes_that_are_refused_are_counted_with_the_reason() -> None:
    full = world(csi_node("b", ebs=0), limit=0)
    assert full.verdict(pod("c")) == {REASON: 2}
    assert REASON == "node(s) exceed max volume count"
