"""NodeVolumeLimits: how many volumes of a driver a node can have attached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from agent_scheduler.engine.plugins.node_volume_limits import NodeVolumeLimits, State, plan
from agent_scheduler.engine.state.podvolumes import PodVolumes
from agent_scheduler.engine.state.volumeusage import VolumeUse
from agent_scheduler.engine.volumes.attached import Attached
from agent_scheduler.engine.volumes.claims import Unresolvable
from tests.support.engine import World as Storage
from tests.support.engine import node
from tests.support.storage import Json, attachment, claim, csi_node, pod, storage_class, volume

EBS = "ebs.csi.aws.com"


class World:
    """Node a, which can have two volumes of driver ebs, and b, whose drivers set no limit."""

    def __init__(self, *objects: Any, limit: int = 2, migrated: str = "", driver: str = "ebs") -> None:
        self.storage = Storage(node("a"), node("b")).add(storage_class("made", provisioner=driver), *objects)
        self.storage.add(csi_node("a", migrated=migrated, **{driver: limit}), csi_node("b", ebs=None))
        self.use = VolumeUse()
        self.attached = Attached(self.storage.catalogue, self.use)

    def bound(self, *names: str) -> World:
        """Claims bound to volumes of the driver, with handles of their names."""
        for name in names:
            source = {"driver": "ebs", "volumeHandle": f"vol-{name}"}
            self.storage.add(claim(name, volume=f"v-{name}", bound=True), volume(f"v-{name}", csi=source))
        return self

    def fits(
        self,
        volumes: PodVolumes,
        *,
        without: Iterable[str] = (),
        hypothetical_pods: Mapping[str, PodVolumes] | None = None,
    ) -> list[str]:
        found = plan(volumes, self.storage.catalogue)
        if found is None:
            return ["a", "b"]
        assert not isinstance(found, Unresolvable)
        columns, rows = self.storage.columns, self.storage.rows
        columns.absent = set(without)
        columns.hypothetical_pods = {row: dict(hypothetical_pods or {}) for row in rows.tolist()}
        return self.storage.names(NodeVolumeLimits().feasible(State(found, self.attached), columns, rows))


def test_a_node_takes_volumes_up_to_its_limit() -> None:
    world = World().bound("c", "d", "e")
    assert world.fits(pod("c", "d")) == ["a", "b"]
    assert world.fits(pod("c", "d", "e")) == ["b"]


def test_volumes_of_pods_on_the_node_count() -> None:
    world = World().bound("c", "d", "e")
    world.use.set("1", "a", pod("c", "d"))
    assert world.fits(pod("e")) == ["b"]


def test_a_volume_that_the_node_has_already_costs_nothing() -> None:
    world = World().bound("c", "d")
    world.use.set("1", "a", pod("c", "d"))
    assert world.fits(pod("d")) == ["a", "b"]


def test_a_volume_that_two_pods_share_counts_once() -> None:
    world = World().bound("c", "d")
    world.use.set("1", "a", pod("c"))
    world.use.set("2", "a", pod("c"))
    assert world.fits(pod("d")) == ["a", "b"]


def test_a_node_over_its_limit_takes_a_pod_that_brings_no_new_volume() -> None:
    world = World(limit=1).bound("c", "d")
    world.use.set("1", "a", pod("c", "d"))
    assert world.fits(pod("c")) == ["a", "b"]


def test_pods_to_be_evicted_are_thought_away() -> None:
    world = World().bound("c", "d", "e")
    world.use.set("1", "a", pod("c", "d"))
    assert world.fits(pod("e"), without={"1"}) == ["a", "b"]


def test_volumes_of_pods_that_are_to_come_count_and_what_they_share_counts_once() -> None:
    world = World().bound("c", "d", "e")
    world.use.set("1", "a", pod("c"))
    assert world.fits(pod("e"), hypothetical_pods={"2": pod("c")}) == ["a", "b"]
    assert world.fits(pod("e"), hypothetical_pods={"2": pod("d")}) == ["b"]
    assert world.fits(pod("e"), hypothetical_pods={"2": pod("d")}, without={"1"}) == ["a", "b"]


def test_volumes_still_attached_after_their_pods_count() -> None:
    world = World(limit=1).bound("c", "d")
    world.storage.add(attachment("x", "a", "v-d"))
    assert world.fits(pod("c")) == ["b"]
    assert world.fits(pod("d")) == ["a", "b"]


def test_an_attachment_of_a_pods_volume_is_not_counted_twice() -> None:
    world = World().bound("c", "d")
    world.use.set("1", "a", pod("c"))
    world.storage.add(attachment("x", "a", "v-c"))
    assert world.fits(pod("d")) == ["a", "b"]


def test_an_attachment_of_a_volume_that_is_unknown_counts_for_nobody() -> None:
    world = World(attachment("x", "a", "gone"), limit=1).bound("c")
    assert world.fits(pod("c")) == ["a", "b"]


def test_an_attachment_of_an_in_tree_volume_is_counted_with_its_pod() -> None:
    disk = volume("v", awsElasticBlockStore={"volumeID": "vol-2"})
    world = World(disk, attachment("x", "a", "v", driver=EBS), limit=1, driver=EBS)
    assert world.fits(pod(x=INLINE)) == ["a", "b"]


def test_attachments_elsewhere_and_of_other_drivers_do_not_count() -> None:
    world = World(attachment("x", "b", "v"), attachment("y", "a", "w", driver="efs"), limit=1).bound("c")
    assert world.fits(pod("c")) == ["a", "b"]


def test_claims_that_are_still_to_be_made_count_for_their_class() -> None:
    world = World(*(claim(name, class_name="made") for name in "cde"))
    world.use.set("1", "a", pod("c", "d"))
    assert world.fits(pod("e")) == ["b"]


def test_a_claim_without_class_or_volume_counts_for_nobody() -> None:
    assert plan(pod("c"), World(claim("c", class_name=None)).storage.catalogue) is None


def test_a_volume_that_is_not_csi_counts_for_nobody() -> None:
    world = World(claim("c", volume="v", bound=True), volume("v"))
    assert plan(pod("c"), world.storage.catalogue) is None


def test_a_node_without_a_csi_node_has_no_limit() -> None:
    world = World(limit=0).bound("c")
    world.storage.catalogue.delete_csi_node("a")
    assert world.fits(pod("c")) == ["a", "b"]


INLINE: Json = {"awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}}


@pytest.mark.parametrize("migrated", ["kubernetes.io/aws-ebs", ""])
def test_in_tree_volumes_count_for_the_driver_that_took_over_whatever_the_node_says(migrated: str) -> None:
    world = World(
        claim("c", volume="v", bound=True),
        volume("v", awsElasticBlockStore={"volumeID": "vol-2"}),
        limit=1,
        migrated=migrated,
        driver=EBS,
    )
    world.use.set("1", "a", pod(x=INLINE))
    assert world.fits(pod("c")) == ["b"]
    assert world.fits(pod(x=INLINE)) == ["a", "b"]


def test_volumes_that_a_pod_describes_inline_for_a_driver_count_for_nobody() -> None:
    world = World(limit=1).bound("c", "d")
    inline: Json = {"csi": {"driver": "ebs"}}
    world.use.set("1", "a", pod("c", x=inline))
    assert world.fits(pod("c", x=inline, y=inline)) == ["a", "b"]
    assert world.fits(pod("d", x=inline)) == ["b"]


def test_a_disk_named_with_its_zone_is_the_disk_named_without() -> None:
    world = World(limit=1, migrated="kubernetes.io/aws-ebs", driver=EBS)
    world.use.set("1", "a", pod(x=INLINE))
    assert world.fits(pod(x={"awsElasticBlockStore": {"volumeID": "vol-1"}})) == ["a", "b"]


def test_the_attachment_of_an_inline_volume_is_counted_with_its_pod() -> None:
    world = World(attachment("x", "a", None, driver=EBS), migrated="kubernetes.io/aws-ebs", driver=EBS)
    world.use.set("1", "a", pod(x=INLINE))
    assert world.fits(pod(x={"awsElasticBlockStore": {"volumeID": "vol-2"}})) == ["a", "b"]


def test_claims_of_an_in_tree_class_count_for_the_driver_that_took_over() -> None:
    world = World(claim("c", class_name="old"), limit=0, driver=EBS)
    world.storage.add(storage_class("old", provisioner="kubernetes.io/aws-ebs"))
    assert world.fits(pod("c")) == ["b"]


def test_a_claim_that_does_not_exist_refuses_every_node() -> None:
    expected = 'looking up PVC default/c: persistentvolumeclaim "c" not found'
    world = World()
    found = plan(pod("c"), world.storage.catalogue)
    assert found == Unresolvable(expected)
    columns, rows = world.storage.columns, world.storage.rows
    plugin, state = NodeVolumeLimits(), State(found, world.attached)
    assert not plugin.feasible(state, columns, rows).any()
    assert plugin.reasons(state, columns, rows) == {expected: 2}


def test_an_ephemeral_claim_of_somebody_else_refuses_every_node() -> None:
    found = plan(pod(ephemeral=("tmp",)), Storage().add(claim("p-tmp")).catalogue)
    assert found == Unresolvable("PVC default/p-tmp was not created for pod default/p (pod is not owner)")


def test_the_nodes_that_are_refused_are_counted_with_the_reason() -> None:
    storage = World().storage
    state = State(frozenset(), World().attached)
    found = NodeVolumeLimits().reasons(state, storage.columns, storage.rows)
    assert found == {"node(s) exceed max volume count": 2}
