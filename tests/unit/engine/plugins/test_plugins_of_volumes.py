"""What volumes demand of nodes: disks, claims for one pod, limits of drivers and zones; and which events wake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.events.hints import HintMap, QueueingHint
from agent_scheduler.engine.framework.plugin import PodRejected
from agent_scheduler.engine.plugins.node_volume_limits import REASON, NodeVolumeLimits
from agent_scheduler.engine.plugins.volume_binding import VolumeBinding
from agent_scheduler.engine.plugins.volume_restrictions import CLAIM_IN_USE, DISK_CONFLICT, VolumeRestrictions
from agent_scheduler.engine.plugins.volume_zone import VolumeZone, plan
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.podvolumes import PodVolumes
from agent_scheduler.engine.volumes.claims import Unresolvable
from agent_scheduler.engine.volumes.hints import binding_events, topologies
from tests.support.engine import World, node, wakes
from tests.support.engine import wakes as any_wakes
from tests.support.storage import (
    Json,
    attachment,
    capacity,
    claim,
    class_of,
    csi_node,
    driver,
    pod,
    ref,
    spec,
    storage_class,
    volume,
)
from tests.support.terms import ZONE

ALONE = claim("c", accessModes=["ReadWriteOncePod"])


def disk(name: str = "d", **more: Any) -> PodVolumes:
    return pod(v={"gcePersistentDisk": {"pdName": name, **more}})


#: Pods by UID, with the nodes that they are on.
Users = Mapping[str, tuple[str, PodVolumes]]


class VolumeWorld(World):
    def __init__(self, plugin: Any, *objects: Any, used: Users | None = None) -> None:
        super().__init__(node("a"), node("b"))
        self.add(*objects)
        self.plugin = plugin
        self.use = self.ledger.volume_use
        for uid, (name, volumes) in (used or {}).items():
            self.use.set(uid, name, volumes)

    def verdict(
        self, volumes: PodVolumes, *, without: Iterable[str] = (), coming: Mapping[str, PodVolumes] | None = None
    ) -> list[str] | dict[str, int] | str:
        """The nodes that will do; or the reasons of each, if there are none; or why the pod is rejected.

        `without`: pods that are thought away; `coming`: pods that are thought of on every node.
        """
        self.columns.absent = set(without)
        self.columns.hypothetical_pods = {row: dict(coming or {}) for row in self.rows.tolist()}
        try:
            state = self.plugin.prepare(class_of(volumes), self.handle)
        except PodRejected as why:
            return str(why)
        if state is None:
            return list(self.ledger.rows)
        fits = self.names(self.plugin.feasible(state, self.columns, self.rows))
        return fits or dict(self.plugin.reasons(state, self.columns, self.rows))


def world(*objects: Any, used: Users | None = None) -> VolumeWorld:
    return VolumeWorld(VolumeRestrictions(), *(objects or (ALONE,)), used=used)


ANYWHERE = ["a", "b"]
CLAIM_AND_DISK = pod("c", v={"gcePersistentDisk": {"pdName": "d"}})


@pytest.mark.parametrize(
    ("used", "asked", "more", "expected"),
    [
        ({"1": ("a", disk())}, disk(), {}, ["b"]),
        ({"1": ("a", disk())}, disk(), {"without": {"1"}}, ANYWHERE),
        ({"1": ("a", disk()), "2": ("b", disk())}, disk(), {}, {DISK_CONFLICT: 2}),
        ({"1": ("a", disk()), "2": ("b", disk())}, disk(), {"without": {"2"}}, ["b"]),
        # A disk that all only read is shared.
        ({"1": ("a", disk(readOnly=True))}, disk(readOnly=True), {}, ANYWHERE),
        # A claim for one pod keeps others from every node, until that one goes or its node does.
        ({"1": ("a", pod("c"))}, pod("c"), {}, {CLAIM_IN_USE: 2}),
        ({"1": ("a", pod("c"))}, pod("c"), {"without": {"1"}}, ANYWHERE),
        ({"1": ("a", pod("c")), "2": ("b", pod("c"))}, pod("c"), {"without": {"1"}}, {CLAIM_IN_USE: 2}),
        ({"1": ("never", pod("c"))}, pod("c"), {}, ANYWHERE),
        # Pods that are to come have their disks and claims already.
        ({}, CLAIM_AND_DISK, {"coming": {"1": disk("other")}}, ANYWHERE),
        ({}, CLAIM_AND_DISK, {"coming": {"1": disk()}}, {DISK_CONFLICT: 2}),
        ({}, CLAIM_AND_DISK, {"coming": {"1": pod("c")}}, {CLAIM_IN_USE: 2}),
        # The disk is named first, where both hold.
        ({"1": ("a", disk()), "2": ("b", pod("c"))}, CLAIM_AND_DISK, {}, {DISK_CONFLICT: 1, CLAIM_IN_USE: 1}),
        # An ephemeral claim may be missing, and no other.
        ({}, pod(ephemeral=("tmp",)), {}, ANYWHERE),
        ({}, pod("x"), {}, 'persistentvolumeclaim "x" not found'),
    ],
)
def test_a_disk_is_on_a_node_once_and_a_claim_for_one_pod_in_the_cluster(
    used: Users, asked: PodVolumes, more: Any, expected: object
) -> None:
    assert world(used=used).verdict(asked, **more) == expected


def test_the_reasons_are_kube_schedulers() -> None:
    assert DISK_CONFLICT == "node(s) had no available disk"
    assert CLAIM_IN_USE == (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    )


def test_a_claim_for_one_pod_is_there_for_the_next_once_that_one_or_its_node_is_gone() -> None:
    here = world(used={"1": ("a", pod("c")), "2": ("b", pod("c"))})
    here.use.remove("1")
    assert here.verdict(pod("c")) == {CLAIM_IN_USE: 2}
    here.ledger.remove_node("b")
    assert here.verdict(pod("c")) == ["a"]


def test_a_claim_that_several_pods_may_have_keeps_nobody_away() -> None:
    shared = world(claim("c"), used={"1": ("a", pod("c"))})
    assert shared.verdict(pod("c")) == ANYWHERE


def test_a_node_that_goes_wakes_whom_its_pods_claim_was_kept_from() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    assert wakes(VolumeRestrictions(), World().pod(volumes=volumes), ev.NODE_DELETE, node("n"), None)


EBS = "ebs.csi.aws.com"
MIGRATED = "kubernetes.io/aws-ebs"
INLINE: Json = {"awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}}
DISK: Json = {"awsElasticBlockStore": {"volumeID": "vol-2"}}
CSI: Json = {"csi": {"driver": "ebs"}}


def limited(
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


ON_B = ["b"]


@pytest.mark.parametrize(
    ("limit", "used", "asked", "more", "expected"),
    [
        (2, {}, pod("c", "d"), {}, ANYWHERE),
        (2, {}, pod("c", "d", "e"), {}, ON_B),
        # Volumes of pods on the node count, those that it has already cost nothing, and shared ones count once.
        (2, {"1": ("a", pod("c", "d"))}, pod("e"), {}, ON_B),
        (2, {"1": ("a", pod("c", "d"))}, pod("d"), {}, ANYWHERE),
        (2, {"1": ("a", pod("c")), "2": ("a", pod("c"))}, pod("d"), {}, ANYWHERE),
        (2, {"1": ("a", pod("c")), "2": ("a", pod("d")), "3": ("a", pod("c"))}, pod("e"), {}, ON_B),
        (1, {"1": ("a", pod("c", "d"))}, pod("c"), {}, ANYWHERE),
        # Pods that are thought away, and those that are to come.
        (2, {"1": ("a", pod("c", "d"))}, pod("e"), {"without": {"1"}}, ANYWHERE),
        (2, {"1": ("a", pod("c"))}, pod("e"), {"coming": {"2": pod("c")}}, ANYWHERE),
        (2, {"1": ("a", pod("c"))}, pod("e"), {"coming": {"2": pod("d")}}, ON_B),
        (2, {"1": ("a", pod("c"))}, pod("e"), {"coming": {"2": pod("d")}, "without": {"1"}}, ANYWHERE),
        # Volumes that a pod describes inline for a driver count for no driver.
        (1, {"1": ("a", pod("c", x=CSI))}, pod("c", x=CSI, y=CSI), {}, ANYWHERE),
        (1, {"1": ("a", pod("c", x=CSI))}, pod("d", x=CSI), {}, ON_B),
    ],
)
def test_a_node_takes_volumes_up_to_its_limit(
    limit: int, used: Users, asked: PodVolumes, more: Any, expected: list[str]
) -> None:
    assert limited(limit=limit, used=used).verdict(asked, **more) == expected


@pytest.mark.parametrize(
    ("objects", "used", "asked", "expected"),
    [
        # What is still attached after its pod counts, and not twice where the pod is there.
        ([attachment("x", "a", "v-d")], {}, pod("c"), ON_B),
        ([attachment("x", "a", "v-d")], {}, pod("d"), ANYWHERE),
        ([attachment("x", "a", "v-c")], {"1": ("a", pod("c"))}, pod("c"), ANYWHERE),
        # Of unknown volumes, elsewhere, and of other drivers it does not.
        ([attachment("x", "a", "gone")], {}, pod("c"), ANYWHERE),
        ([attachment("x", "b", "v"), attachment("y", "a", "w", driver="efs")], {}, pod("c"), ANYWHERE),
        # Claims that are still to be made count for their class, and others for no driver.
        ([claim(name, class_name="made") for name in "cde"], {"1": ("a", pod("c"))}, pod("e"), ON_B),
        ([claim("c", class_name=None)], {"1": ("a", pod("d"))}, pod("c"), ANYWHERE),
        ([volume("v-c")], {"1": ("a", pod("d"))}, pod("c"), ANYWHERE),
    ],
)
def test_what_counts_of_a_node_with_room_for_one_volume(
    objects: list[Any], used: Users, asked: PodVolumes, expected: list[str]
) -> None:
    assert limited(*objects, limit=1, used=used).verdict(asked) == expected


def test_a_node_without_a_csi_node_has_no_limit() -> None:
    without = limited(limit=0)
    assert without.verdict(pod("c")) == ON_B
    without.catalogue.delete_csi_node("a")
    assert without.verdict(pod("c")) == ANYWHERE


@pytest.mark.parametrize("migrated", [MIGRATED, ""])
@pytest.mark.parametrize(
    ("objects", "asked", "expected"),
    [
        ([volume("v-c", **DISK)], pod("c"), ON_B),
        ([], pod(x=INLINE), ANYWHERE),
        # A disk that is named with its zone is the one that is named without.
        ([], pod(x={"awsElasticBlockStore": {"volumeID": "vol-1"}}), ANYWHERE),
        ([attachment("x", "a", "v", driver=EBS)], pod(x=INLINE), ANYWHERE),
        ([claim("c", class_name="old"), storage_class("old", provisioner=MIGRATED)], pod("c"), ON_B),
    ],
)
def test_in_tree_volumes_count_for_the_driver_that_took_over_whatever_the_node_says(
    migrated: str, objects: list[Any], asked: PodVolumes, expected: list[str]
) -> None:
    used = {"1": ("a", pod(x=INLINE))}
    assert limited(*objects, limit=1, migrated=migrated, driver=EBS, used=used).verdict(asked) == expected


def test_the_attachment_of_an_in_tree_volume_is_counted_with_its_pod() -> None:
    described = limited(attachment("x", "a", None, driver=EBS), migrated=MIGRATED, driver=EBS)
    described.use.set("1", "a", pod(x=INLINE))
    assert described.verdict(pod(x=DISK)) == ANYWHERE
    named = limited(volume("v", **DISK), attachment("x", "a", "v", driver=EBS), limit=1, driver=EBS)
    assert named.verdict(pod(x=INLINE)) == ANYWHERE


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
def test_a_claim_that_cannot_be_looked_up_refuses_every_node(objects: list[Any], asked: PodVolumes, why: str) -> None:
    assert limited(*objects).verdict(asked) == {why: 2}


def test_the_nodes_that_are_refused_are_counted_with_the_reason() -> None:
    full = limited(csi_node("b", ebs=0), limit=0)
    assert full.verdict(pod("c")) == {REASON: 2}
    assert REASON == "node(s) exceed max volume count"


REGION = "topology.kubernetes.io/region"
BETA = "failure-domain.beta.kubernetes.io/zone"

PLACES: dict[str, dict[str, str]] = {
    "one": {ZONE: "z1", REGION: "r1"},
    "two": {ZONE: "z2", REGION: "r1"},
    "beta": {BETA: "z1"},
    "bare": {},
}


def fits(labels: dict[str, str]) -> list[str]:
    storage = World(*(node(name, labels=each) for name, each in PLACES.items()))
    storage.add(claim("c", volume="v", bound=True), volume("v", meta={"labels": labels}))
    found = plan(pod("c"), storage.catalogue)
    if found is None:
        return list(PLACES)
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


def test_nodes_of_other_zones_are_counted_with_the_reason() -> None:
    storage = World(node("one"), node("two"))
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
    assert plan(pod("c"), World().add(*objects).catalogue) == Unresolvable(message)


def test_a_claim_that_waits_for_its_consumer_has_no_zone_yet() -> None:
    assert plan(pod("c"), World().add(claim("c"), storage_class()).catalogue) is None


def test_ephemeral_claims_are_left_out() -> None:
    inline: Json = {"awsElasticBlockStore": {"volumeID": "d"}}
    assert plan(pod(ephemeral=("tmp",), d=inline), World().catalogue) is None


def test_a_node_of_another_zone_wakes_whom_volume_zone_refused_and_one_of_another_rack_does_not() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    pod = World().pod(volumes=volumes)
    zone = "topology.kubernetes.io/zone"
    was, moved, renamed = (node("n", labels=labels) for labels in ({zone: "a"}, {zone: "b"}, {zone: "a", "rack": "7"}))
    bare = node("n")
    assert wakes(VolumeZone(), pod, ev.NODE_ADD, None, was)
    assert wakes(VolumeZone(), pod, ev.NODE_UPDATE_LABEL, was, moved)
    assert wakes(VolumeZone(), pod, ev.NODE_UPDATE_LABEL, was, bare), "a node without zones takes every volume"
    assert not wakes(VolumeZone(), pod, ev.NODE_UPDATE_LABEL, was, renamed)


ADD, UPDATE, DELETE = ActionType.ADD, ActionType.UPDATE, ActionType.DELETE
CLASS, CLAIM, PV = Resource.STORAGE_CLASS, Resource.PERSISTENT_VOLUME_CLAIM, Resource.PERSISTENT_VOLUME
DRIVER, POOL, CSI_NODE = Resource.CSI_DRIVER, Resource.CSI_STORAGE_CAPACITY, Resource.CSI_NODE
ATTACHMENT, ASSIGNED, NODE = Resource.VOLUME_ATTACHMENT, Resource.ASSIGNED_POD, Resource.NODE

PLUGINS: dict[str, Any] = {
    "binding": VolumeBinding(),
    "zone": VolumeZone(),
    "restriction": VolumeRestrictions(),
    "limit": NodeVolumeLimits(),
}
WORLD = World()


def using(*claims: str, disk: str = "") -> PodInfo:
    """A pod with these claims, and a disk that it names itself."""
    volumes = msgspec.json.decode(spec(*claims, **({"d": {"iscsi": {"iqn": disk}}} if disk else {})))
    return WORLD.pod(volumes=volumes)


def wakes_by(rule: str, kind: Resource, action: ActionType, old: object, new: object, waits: Any = None) -> bool:
    """Whether a pod, by default one with claim c, that `rule` refused is worth another try after the event."""
    return any_wakes(PLUGINS[rule], waits or using("c"), ClusterEvent(kind, action), old, new)


DISK_USER = using(disk="d")
GONE = using()
DETACHED = attachment("x", "n", "v")


def pool(size: str | None) -> Any:
    return capacity("p", size, topology={})


@pytest.mark.parametrize(
    ("rule", "kind", "action", "old", "new", "expected"),
    [
        # VolumeBinding
        ("binding", CLASS, ADD, None, storage_class(), True),
        ("binding", CLASS, UPDATE, storage_class(), storage_class(zones=["z"]), True),
        ("binding", CLASS, UPDATE, storage_class(), storage_class(), False),
        ("binding", CLASS, DELETE, storage_class(), None, False),
        ("binding", CLAIM, ADD, None, claim("c"), True),
        ("binding", CLAIM, ADD, None, claim("d"), False),
        ("binding", CLAIM, ADD, None, claim("c", meta={"namespace": "other"}), False),
        ("binding", CLAIM, UPDATE, claim("c"), claim("c", volume="v", bound=True), True),
        ("binding", CLAIM, UPDATE, claim("c"), claim("c"), False),
        ("binding", PV, ADD, None, volume("v"), True),
        ("binding", PV, ADD, None, volume("v", claim=ref("c")), True),
        ("binding", PV, ADD, None, volume("v", claim=ref("d")), False),
        ("binding", PV, UPDATE, volume("v"), volume("v"), False),
        ("binding", PV, UPDATE, volume("v", phase="Released"), volume("v"), True),
        ("binding", PV, UPDATE, volume("v", claim=ref("d")), volume("v"), True),
        ("binding", NODE, ADD, None, node("n"), True),
        ("binding", NODE, ActionType.UPDATE_NODE_LABEL, node("n"), node("n"), True),
        ("binding", NODE, ActionType.UPDATE_NODE_TAINT, node("n"), node("n"), False),
        ("binding", CSI_NODE, ADD, None, csi_node("n", migrated="kubernetes.io/cinder"), True),
        ("binding", CSI_NODE, ADD, None, csi_node("n", ebs=1), False),
        ("binding", CSI_NODE, UPDATE, csi_node("n"), csi_node("n", migrated="kubernetes.io/cinder"), True),
        ("binding", CSI_NODE, UPDATE, csi_node("n", ebs=1), csi_node("n", ebs=2), False),
        ("binding", CSI_NODE, DELETE, csi_node("n", migrated="kubernetes.io/cinder"), None, True),
        ("binding", DRIVER, UPDATE, driver("d"), driver("d", tells_capacity=False), True),
        ("binding", DRIVER, UPDATE, driver("d", tells_capacity=False), driver("d"), False),
        ("binding", DRIVER, DELETE, driver("d"), None, True),
        ("binding", POOL, ADD, None, pool("1Gi"), True),
        ("binding", POOL, UPDATE, pool("1Gi"), pool("2Gi"), True),
        ("binding", POOL, UPDATE, pool(None), pool("1Gi"), True),
        ("binding", POOL, UPDATE, pool("2Gi"), pool("1Gi"), False),
        ("binding", POOL, UPDATE, pool("1Gi"), pool("1Gi"), False),
        ("binding", ASSIGNED, DELETE, GONE, None, False),
        # VolumeZone
        ("zone", CLASS, ADD, None, storage_class(), True),
        ("zone", CLASS, ADD, None, storage_class(mode="Immediate"), False),
        ("zone", CLAIM, UPDATE, claim("c"), claim("c", volume="v"), True),
        ("zone", CLAIM, UPDATE, claim("d"), claim("d", volume="v"), False),
        ("zone", PV, ADD, None, volume("v"), True),
        ("zone", PV, UPDATE, volume("v"), volume("v", size="9Gi"), False),
        ("zone", PV, UPDATE, volume("v"), volume("v", meta={"labels": {ZONE: "z"}}), True),
        ("zone", NODE, ADD, None, node("n"), True),
        # VolumeRestrictions
        ("restriction", NODE, ADD, None, node("n"), True),
        ("restriction", NODE, ActionType.UPDATE_NODE_LABEL, node("n"), node("n"), False),
        ("restriction", CLAIM, ADD, None, claim("c"), True),
        ("restriction", CLAIM, ADD, None, claim("d"), False),
        # NodeVolumeLimits
        ("limit", CSI_NODE, ADD, None, csi_node("n", ebs=1), True),
        ("limit", CSI_NODE, UPDATE, csi_node("n", ebs=1), csi_node("n", ebs=2), True),
        ("limit", CSI_NODE, UPDATE, csi_node("n", ebs=1), csi_node("n", ebs=None), True),
        ("limit", CSI_NODE, UPDATE, csi_node("n", ebs=2), csi_node("n", ebs=1), False),
        ("limit", CSI_NODE, UPDATE, csi_node("n", ebs=1), csi_node("n", ebs=1, efs=1), False),
        ("limit", CSI_NODE, DELETE, csi_node("n", ebs=1), None, True),
        ("limit", NODE, ADD, None, node("n"), True),
        ("limit", CLAIM, ADD, None, claim("c"), True),
        ("limit", ATTACHMENT, DELETE, DETACHED, None, True),
    ],
)
def test_an_event_wakes_the_pods_that_it_may_help(
    rule: str, kind: Resource, action: ActionType, old: object, new: object, expected: bool
) -> None:
    assert wakes_by(rule, kind, action, old, new) is expected


@pytest.mark.parametrize(
    ("rule", "waiting", "gone", "expected"),
    [
        ("restriction", DISK_USER, DISK_USER, True),
        ("restriction", DISK_USER, using(disk="e"), False),
        ("restriction", using("c"), using("c"), True),
        ("restriction", using("c"), using("d"), False),
        ("restriction", using("c"), GONE, False),
        ("limit", using("c"), using("d"), True),
        ("limit", using("c"), DISK_USER, False),
        ("limit", using("c"), GONE, False),
    ],
)
def test_a_pod_that_goes_wakes_those_that_its_volumes_kept_away(
    rule: str, waiting: PodInfo, gone: PodInfo, expected: bool
) -> None:
    assert wakes_by(rule, ASSIGNED, DELETE, gone, None, waiting) is expected


def test_a_detached_volume_wakes_nobody_without_claims() -> None:
    assert not wakes_by("limit", ATTACHMENT, DELETE, DETACHED, None, DISK_USER)


def test_what_was_given_back_wakes_as_if_it_were_new() -> None:
    assert wakes_by("binding", PV, UPDATE, None, volume("v"))


def test_a_pod_whose_volumes_are_not_known_is_woken() -> None:
    (each,) = HintMap({"binding": binding_events(lambda pod: None)}).lookup(ClusterEvent(CLAIM, ADD))["binding"]
    assert each.hint_fn is not None
    assert each.hint_fn(GONE, None, claim("d")) is QueueingHint.QUEUE
