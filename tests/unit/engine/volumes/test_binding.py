"""VolumeBinding: which nodes can have all of a pod's claims, and the words for those that cannot."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.state.podvolumes import PodVolumes
from agent_scheduler.engine.volumes.binding import Plan, feasible, plan, reasons
from agent_scheduler.engine.volumes.claims import Unresolvable
from tests.support.engine import World as Storage
from tests.support.engine import node
from tests.support.storage import capacity, claim, driver, pod, ref, storage_class, volume

CONFLICT = "node(s) had volume node affinity conflict"
NOTHING = "node(s) didn't find available persistent volumes to bind"
ROOM = "node(s) did not have enough free storage"
MISSING = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

DELETED: Any = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def cluster(*more: Any) -> Storage:
    """Nodes a and b, in zones of the same names, and the class `slow`, whose volumes are made by hand."""
    nodes = [node(name, labels={"topology.kubernetes.io/zone": name}) for name in ("a", "b")]
    return Storage(*nodes).add(storage_class(), storage_class("made", provisioner="csi"), *more)


def refusal(storage: Storage, volumes: PodVolumes) -> str:
    found = plan(volumes, storage.catalogue)
    assert isinstance(found, Unresolvable)
    return found.message


def planned(storage: Storage, volumes: PodVolumes) -> Plan:
    found = plan(volumes, storage.catalogue)
    assert isinstance(found, Plan)
    return found


def fits(storage: Storage, volumes: PodVolumes) -> list[str]:
    mask = feasible(planned(storage, volumes), storage.catalogue, storage.columns, storage.rows)
    return storage.names(mask)


def why(storage: Storage, volumes: PodVolumes) -> dict[str, int]:
    """Why no node fits."""
    assert fits(storage, volumes) == []
    return dict(reasons(planned(storage, volumes), storage.catalogue, storage.columns, storage.rows))


# ---- what no node can help


def test_a_pod_without_claims_is_none_of_its_business() -> None:
    assert plan(pod(d={"gcePersistentDisk": {"pdName": "d"}}), cluster().catalogue) is None


def test_a_claim_that_does_not_exist_refuses_every_node() -> None:
    assert refusal(cluster(), pod("c")) == 'persistentvolumeclaim "c" not found'


def test_a_claim_of_another_namespace_is_not_the_pods() -> None:
    other = claim("c", meta={"namespace": "other"})
    assert refusal(cluster(other), pod("c")) == 'persistentvolumeclaim "c" not found'


def test_an_ephemeral_claim_that_does_not_exist_is_waited_for() -> None:
    expected = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-tmp"'
    assert refusal(cluster(), pod(ephemeral=("tmp",))) == expected


def test_an_ephemeral_claim_has_to_be_the_pods_own() -> None:
    expected = "PVC default/p-tmp was not created for pod default/p (pod is not owner)"
    assert refusal(cluster(claim("p-tmp")), pod(ephemeral=("tmp",))) == expected


def test_an_ephemeral_claim_of_the_pod_is_like_any_claim() -> None:
    owned: Any = {"ownerReferences": [{"uid": "uid-p", "name": "p", "controller": True}]}
    storage = cluster(claim("p-tmp", meta=owned), volume("v", on="a"))
    assert fits(storage, pod(ephemeral=("tmp",))) == ["a"]


def test_a_claim_that_lost_its_volume_refuses_every_node() -> None:
    expected = 'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"'
    assert refusal(cluster(claim("c", volume="v", bound=True, phase="Lost")), pod("c")) == expected


def test_a_claim_that_is_being_deleted_refuses_every_node() -> None:
    storage = cluster(claim("c", volume="v", bound=True, meta=DELETED))
    assert refusal(storage, pod("c")) == 'persistentvolumeclaim "c" is being deleted'


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
    storage = cluster(storage_class("now", mode="Immediate"), unbound)
    assert refusal(storage, pod("c")) == "pod has unbound immediate PersistentVolumeClaims"


def test_a_missing_claim_is_told_before_an_unbound_one() -> None:
    storage = cluster(claim("c", class_name=None))
    assert refusal(storage, pod("c", "d")) == 'persistentvolumeclaim "d" not found'


# ---- bound claims


def test_a_bound_volume_is_reached_where_its_affinity_says() -> None:
    storage = cluster(
        claim("c", volume="v", bound=True), volume("v", zone="b", claim=ref("c"), phase="Bound")
    )
    assert fits(storage, pod("c")) == ["b"]


def test_a_bound_volume_that_no_node_reaches_is_a_conflict() -> None:
    storage = cluster(
        claim("c", volume="v", bound=True), volume("v", zone="z", claim=ref("c"), phase="Bound")
    )
    assert why(storage, pod("c")) == {CONFLICT: 2}


def test_a_bound_volume_that_does_not_exist_refuses_the_nodes_that_nothing_else_has() -> None:
    storage = cluster(
        claim("c", volume="v", bound=True),
        volume("v", zone="b", claim=ref("c"), phase="Bound"),
        claim("d", volume="gone", bound=True),
    )
    assert why(storage, pod("c", "d")) == {CONFLICT: 1, MISSING: 1}


def test_a_pod_whose_claims_are_all_bound_has_nothing_to_wait_for() -> None:
    storage = cluster(claim("c", volume="v", bound=True), volume("v", claim=ref("c"), phase="Bound"))
    assert planned(storage, pod("c")).all_bound


# ---- static volumes


def test_a_waiting_claim_goes_where_a_free_volume_is() -> None:
    assert fits(cluster(claim("c"), volume("v", on="b")), pod("c")) == ["b"]


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
    ids=[
        "too small",
        "other class",
        "other access mode",
        "other volume mode",
        "released",
        "pending",
        "deleting",
        "for another claim",
        "for a claim that went",
        "for a namesake",
        "other attributes class",
        "out of reach",
    ],
)
def test_a_volume_that_does_not_fit_the_claim_is_not_for_it(unfit: Any) -> None:
    assert why(cluster(claim("c"), unfit), pod("c")) == {NOTHING: 2}


def test_a_claim_with_a_selector_gets_a_volume_with_those_labels() -> None:
    picky = claim("c", selector={"matchLabels": {"disk": "ssd"}})
    labelled: Any = {"labels": {"disk": "ssd"}}
    assert why(cluster(picky, volume("v")), pod("c")) == {NOTHING: 2}
    assert fits(cluster(picky, volume("v", on="a", meta=labelled)), pod("c")) == ["a"]


def test_a_volume_meant_for_the_claim_is_the_only_one_that_it_may_have() -> None:
    storage = cluster(claim("c"), volume("v", on="a"), volume("meant", on="b", claim=ref("c", uid="")))
    assert fits(storage, pod("c")) == ["b"]


def test_a_volume_meant_for_the_claim_needs_neither_phase_nor_access_mode() -> None:
    meant = volume("v", on="b", claim=ref("c"), phase="Bound", accessModes=[])
    assert fits(cluster(claim("c"), meant), pod("c")) == ["b"]


def test_a_volume_that_another_decision_took_is_not_found() -> None:
    other, taken = claim("other"), volume("v")
    storage = cluster(claim("c"), other, taken)
    assert storage.catalogue.take(taken, other, "pod")
    assert why(storage, pod("c")) == {NOTHING: 2}


def test_two_claims_need_two_volumes_on_a_node() -> None:
    storage = cluster(claim("c"), claim("d"), volume("v", on="a"), volume("w", on="b"), volume("x", on="b"))
    assert fits(storage, pod("c", "d")) == ["b"]


def test_claims_choose_by_size_so_that_the_large_volume_is_left_for_the_large_claim() -> None:
    storage = cluster(
        claim("large", size="2Gi"),
        claim("small"),
        volume("v", size="1Gi", on="a"),
        volume("w", size="2Gi", on="a"),
    )
    assert fits(storage, pod("large", "small")) == ["a"]


# ---- volumes that are made


def made(name: str = "c", **more: Any) -> Any:
    return claim(name, class_name="made", **more)


def test_a_claim_without_a_static_volume_is_made_if_its_class_can() -> None:
    assert fits(cluster(made()), pod("c")) == ["a", "b"]


def test_a_class_is_made_only_in_its_topologies() -> None:
    storage = cluster(made(), storage_class("made", provisioner="csi", zones=["b"]))
    assert fits(storage, pod("c")) == ["b"]


def test_a_node_outside_of_the_topologies_finds_nothing_to_bind() -> None:
    storage = cluster(made(), storage_class("made", provisioner="csi", zones=["z"]))
    assert why(storage, pod("c")) == {NOTHING: 2}


def test_a_claim_goes_to_the_node_that_was_selected_before() -> None:
    assert fits(cluster(made(selected="b")), pod("c")) == ["b"]


def test_a_selected_node_has_to_be_in_the_topologies_and_to_have_room_as_well() -> None:
    elsewhere = storage_class("made", provisioner="csi", zones=["a"])
    assert why(cluster(made(selected="b"), elsewhere), pod("c")) == {NOTHING: 2}
    assert why(cluster(made(selected="b"), driver("csi")), pod("c")) == {NOTHING: 1, ROOM: 1}


def test_a_claim_with_a_selected_node_is_made_though_a_static_volume_is_there() -> None:
    assert fits(cluster(made(selected="b"), volume("v", class_name="made", on="a")), pod("c")) == ["b"]


def test_a_node_selected_by_another_decision_holds_for_this_one() -> None:
    shared = made()
    storage = cluster(shared)
    assert storage.catalogue.select(shared, "a", "other")
    assert fits(storage, pod("c")) == ["a"]


def test_a_node_selected_that_is_gone_leaves_nothing_to_bind() -> None:
    assert why(cluster(made(selected="gone")), pod("c")) == {NOTHING: 2}


ZONE_A: Any = {"matchLabels": {"topology.kubernetes.io/zone": "a"}}


def test_a_driver_that_tells_its_capacity_makes_volumes_where_a_pool_is_large_enough() -> None:
    storage = cluster(made(), driver("csi"), capacity("p", "1Gi", topology=ZONE_A))
    assert fits(storage, pod("c")) == ["a"]


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
    assert why(cluster(made(), driver("csi"), pool), pod("c")) == {ROOM: 2}


def test_a_driver_that_does_not_tell_its_capacity_is_not_asked() -> None:
    storage = cluster(made(), driver("csi", tells_capacity=False), capacity("p", "1Mi", topology={}))
    assert fits(storage, pod("c")) == ["a", "b"]


def test_a_claim_that_asks_for_no_size_has_room_everywhere() -> None:
    assert fits(cluster(made(size=None), driver("csi")), pod("c")) == ["a", "b"]


def test_the_first_claim_that_cannot_be_made_gives_the_reason() -> None:
    storage = cluster(made(), driver("csi"), capacity("p", "1Gi", topology=ZONE_A), claim("d", size="2Gi"))
    assert why(storage, pod("c", "d")) == {NOTHING: 1, ROOM: 1}


def test_a_node_can_be_refused_for_its_bound_and_for_its_waiting_claims_at_once() -> None:
    storage = cluster(
        claim("c", volume="v", bound=True), volume("v", zone="a", claim=ref("c"), phase="Bound"), claim("d")
    )
    assert why(storage, pod("c", "d")) == {CONFLICT: 1, NOTHING: 2}


def test_one_claim_may_have_a_static_volume_and_the_other_a_made_one() -> None:
    storage = cluster(claim("c"), volume("v", on="a"), made("d"))
    assert fits(storage, pod("c", "d")) == ["a"]
