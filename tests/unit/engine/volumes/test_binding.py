"""VolumeBinding: which nodes can have all of a pod's claims, and the words for those that cannot."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.state.podvolumes import PodVolumes
from agent_scheduler.engine.volumes.binding import Plan, feasible, plan, reasons
from agent_scheduler.engine.volumes.claims import Unresolvable
from tests.support.engine import World, node
from tests.support.storage import capacity, claim, driver, pod, ref, storage_class, volume
from tests.support.terms import ZONE

CONFLICT = "node(s) had volume node affinity conflict"
NOTHING = "node(s) didn't find available persistent volumes to bind"
ROOM = "node(s) did not have enough free storage"
MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

DELETED: Any = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
OWNED: Any = {"ownerReferences": [{"uid": "uid-p", "name": "p", "controller": True}]}
BOUND = claim("c", volume="v", bound=True)
SELECTIVE = claim("c", selector={"matchLabels": {"disk": "ssd"}})
ZONE_A: Any = {"matchLabels": {ZONE: "a"}}
EPHEMERAL = pod(ephemeral=("tmp",))
BOTH = pod("c", "d")


def made(name: str = "c", **more: Any) -> Any:
    return claim(name, class_name="made", **more)


def mounted(**more: Any) -> Any:
    """The volume that claim c is bound to."""
    return volume("v", claim=ref("c"), phase="Bound", **more)


def cluster(*more: Any) -> World:
    """Nodes a and b, in zones of the same names, and the class `slow`, whose volumes are made by hand."""
    nodes = [node(name, labels={ZONE: name}) for name in ("a", "b")]
    return World(*nodes).add(storage_class(), storage_class("made", provisioner="csi"), *more)


def verdict(world: World, volumes: PodVolumes) -> str | list[str] | dict[str, int]:
    """Why no node can help; else the nodes that will do; or, if there are none, the reasons of each."""
    found = plan(volumes, world.catalogue)
    if isinstance(found, Unresolvable):
        return found.message
    assert isinstance(found, Plan)
    fits = world.names(feasible(found, world.catalogue, world.columns, world.rows))
    return fits or dict(reasons(found, world.catalogue, world.columns, world.rows))


@pytest.mark.parametrize(
    ("objects", "volumes", "expected"),
    [
        # What no node can help.
        ([], pod("c"), 'persistentvolumeclaim "c" not found'),
        ([claim("c", meta={"namespace": "other"})], pod("c"), 'persistentvolumeclaim "c" not found'),
        (
            [],
            EPHEMERAL,
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-tmp"',
        ),
        (
            [claim("p-tmp")],
            EPHEMERAL,
            "PVC default/p-tmp was not created for pod default/p (pod is not owner)",
        ),
        ([claim("p-tmp", meta=OWNED), volume("v", on="a")], EPHEMERAL, ["a"]),
        (
            [claim("c", volume="v", bound=True, phase="Lost")],
            pod("c"),
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
        ),
        (
            [claim("c", volume="v", bound=True, meta=DELETED)],
            pod("c"),
            'persistentvolumeclaim "c" is being deleted',
        ),
        # A missing claim is named before an unbound one.
        ([claim("c", class_name=None)], BOTH, 'persistentvolumeclaim "d" not found'),
        # Bound claims.
        ([BOUND, mounted(zone="b")], pod("c"), ["b"]),
        ([BOUND, mounted(zone="z")], pod("c"), {CONFLICT: 2}),
        (
            [BOUND, mounted(zone="b"), claim("d", volume="gone", bound=True)],
            BOTH,
            {CONFLICT: 1, MISSING: 1},
        ),
        # Static volumes.
        ([claim("c"), volume("v", on="b")], pod("c"), ["b"]),
        ([SELECTIVE, volume("v")], pod("c"), {NOTHING: 2}),
        ([SELECTIVE, volume("v", on="a", meta={"labels": {"disk": "ssd"}})], pod("c"), ["a"]),
        # One that is meant for the claim is the only one that it may have, whatever its phase and access modes.
        ([claim("c"), volume("v", on="a"), volume("w", on="b", claim=ref("c", uid=""))], pod("c"), ["b"]),
        ([claim("c"), volume("v", on="b", claim=ref("c"), phase="Bound", accessModes=[])], pod("c"), ["b"]),
        (
            [claim("c"), claim("d"), volume("v", on="a"), volume("w", on="b"), volume("x", on="b")],
            BOTH,
            ["b"],
        ),
        # Claims choose by size, so that the large volume is left for the large claim.
        (
            [claim("c", size="2Gi"), claim("d"), volume("v", on="a"), volume("w", size="2Gi", on="a")],
            BOTH,
            ["a"],
        ),
        # Volumes that are made: in the topologies of the class, and on the node that was selected before.
        ([made()], pod("c"), ["a", "b"]),
        ([made(), storage_class("made", provisioner="csi", zones=["b"])], pod("c"), ["b"]),
        ([made(), storage_class("made", provisioner="csi", zones=["z"])], pod("c"), {NOTHING: 2}),
        ([made(selected="b")], pod("c"), ["b"]),
        ([made(selected="b"), storage_class("made", provisioner="csi", zones=["a"])], pod("c"), {NOTHING: 2}),
        ([made(selected="b"), driver("csi")], pod("c"), {NOTHING: 1, ROOM: 1}),
        ([made(selected="b"), volume("v", class_name="made", on="a")], pod("c"), ["b"]),
        ([made(selected="gone")], pod("c"), {NOTHING: 2}),
        # A driver that tells its capacity makes volumes where a pool is large enough.
        ([made(), driver("csi"), capacity("p", "1Gi", topology=ZONE_A)], pod("c"), ["a"]),
        (
            [made(), driver("csi", tells_capacity=False), capacity("p", "1Mi", topology={})],
            pod("c"),
            ["a", "b"],
        ),
        ([made(size=None), driver("csi")], pod("c"), ["a", "b"]),
        # The first claim that cannot be made gives the reason; bound and waiting claims each give theirs.
        (
            [made(), driver("csi"), capacity("p", "1Gi", topology=ZONE_A), claim("d", size="2Gi")],
            BOTH,
            {NOTHING: 1, ROOM: 1},
        ),
        ([BOUND, mounted(zone="a"), claim("d")], BOTH, {CONFLICT: 1, NOTHING: 2}),
        ([claim("c"), volume("v", on="a"), made("d")], BOTH, ["a"]),
    ],
)
def test_a_pod_can_go_where_each_of_its_claims_is_bound_or_can_be(
    objects: list[Any], volumes: PodVolumes, expected: object
) -> None:
    assert verdict(cluster(*objects), volumes) == expected


def test_a_pod_without_claims_is_none_of_its_business() -> None:
    assert plan(pod(d={"gcePersistentDisk": {"pdName": "d"}}), cluster().catalogue) is None


@pytest.mark.parametrize(
    "unbound",
    [
        claim("c", class_name="now"),
        claim("c", class_name=None),
        claim("c", class_name="missing"),
        claim("c", volume="v"),
    ],
    ids=["immediate class", "no class", "unknown class", "names its volume"],
)
def test_a_claim_that_is_bound_without_a_pod_has_to_be_bound_first(unbound: Any) -> None:
    world = cluster(storage_class("now", mode="Immediate"), unbound)
    assert verdict(world, pod("c")) == "pod has unbound immediate PersistentVolumeClaims"


def test_a_pod_whose_claims_are_all_bound_has_nothing_to_wait_for() -> None:
    found = plan(pod("c"), cluster(BOUND, mounted()).catalogue)
    assert isinstance(found, Plan) and found.all_bound


@pytest.mark.parametrize(
    "unfit",
    [
        volume("v", size="512Mi"),
        volume("v", class_name="other"),
        volume("v", accessModes=["ReadOnlyMany"]),
        volume("v", volumeMode="Block"),
        volume("v", phase="Released"),
        volume("v", phase="Pending"),
        volume("v", meta=DELETED),
        volume("v", claim=ref("other")),
        volume("v", claim=ref("c", uid="of one that went")),
        volume("v", claim=ref("c", namespace="elsewhere")),
        volume("v", volumeAttributesClassName="gold"),
        volume("v", zone="z"),
    ],
)
def test_a_volume_that_does_not_fit_the_claim_is_not_for_it(unfit: Any) -> None:
    assert verdict(cluster(claim("c"), unfit), pod("c")) == {NOTHING: 2}


@pytest.mark.parametrize(
    "pool",
    [
        capacity("p", "1023Mi", topology={}),
        capacity("p", "2Gi", topology={}, most="512Mi"),
        capacity("p", "2Gi", topology=None),
        capacity("p", None, topology={}),
        capacity("p", "2Gi", topology={}, class_name="other"),
    ],
    ids=["full", "small volumes only", "reached from nowhere", "says nothing", "other class"],
)
def test_a_pool_that_is_too_small_or_out_of_reach_makes_no_volume(pool: Any) -> None:
    assert verdict(cluster(made(), driver("csi"), pool), pod("c")) == {ROOM: 2}
