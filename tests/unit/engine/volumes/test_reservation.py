"""Reserve, write, wait: what becomes of a pod's claims once its node is chosen."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.state.podvolumes import PodVolumes
from agent_scheduler.engine.volumes.claims import Unresolvable
from agent_scheduler.engine.volumes.records import ClaimInfo, VolumeInfo
from agent_scheduler.engine.volumes.reservation import (
    ObjectPatch,
    Progress,
    ReservationFailed,
    ReservedVolumes,
    check_bindings,
    due,
    reserve,
    unreserve,
    written,
)
from tests.support.engine import World as Storage
from tests.support.engine import node
from tests.support.storage import claim, driver, pod, ref, storage_class, volume

#: Above every version that the objects of these tests get by themselves.
_later = itertools.count(10**9)


def cluster(*more: Any) -> Storage:
    nodes = [node(name, labels={"topology.kubernetes.io/zone": name}) for name in ("a", "b")]
    return Storage(*nodes).add(storage_class(), storage_class("made", provisioner="csi"), *more)


def reserved(storage: Storage, volumes: PodVolumes, name: str = "a", holder: str = "pod") -> ReservedVolumes:
    found = reserve(volumes, storage.catalogue, storage.node(name), holder)
    assert isinstance(found, ReservedVolumes)
    return found


def body(write: ObjectPatch) -> Any:
    return msgspec.json.decode(write.body)


def at(storage: Storage, reservation: ReservedVolumes, name: str = "a", **more: Any) -> Progress:
    return check_bindings(reservation, storage.catalogue, storage.node(name), **more)


def write_all(storage: Storage, reservation: ReservedVolumes) -> dict[str, str]:
    """Every write is taken by the API server; the version that each gives its object, by name."""
    versions = {}
    for write in due(reservation, storage.catalogue):
        versions[write.name] = str(next(_later))
        written(write, storage.catalogue, versions[write.name])
    return versions


def shown(record: Any, version: str | None = None, **changes: Any) -> Any:
    """A later version of an object, as the watch shows it."""
    return msgspec.structs.replace(record, resource_version=version or str(next(_later)), **changes)


# ---- reserve


def test_a_pod_whose_claims_are_bound_is_bound_at_once() -> None:
    storage = cluster(BOUND, volume("v", claim=ref("c"), phase="Bound"))
    found = reserved(storage, pod("c"))
    assert found.all_bound and due(found, storage.catalogue) == () and at(storage, found) == Progress.DONE


BOUND = claim("c", volume="v", bound=True)
NODE_CONFLICT = "node(s) had volume node affinity conflict"
NOTHING = "node(s) didn't find available persistent volumes to bind"


@pytest.mark.parametrize(
    ("objects", "claims", "why"),
    [
        # A volume that is gone since the node was chosen, and one that the node does not reach.
        ([claim("c")], "c", NOTHING),
        ([BOUND, volume("v", zone="b", claim=ref("c"), phase="Bound")], "c", NODE_CONFLICT),
        ([BOUND], "c", "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
        ([], "c", 'persistentvolumeclaim "c" not found'),
        # A pool that is full by now, a class that makes none for the node, and a node that was selected before.
        ([claim("c", class_name="made"), driver("csi")], "c", NOTHING),
        ([claim("c", class_name="made"), storage_class("made", provisioner="csi", zones=["b"])], "c", NOTHING),
        ([claim("c", class_name="made", selected="b")], "c", NOTHING),
        # All is reserved or nothing.
        ([claim("c"), volume("v", on="a"), claim("d", size="9Gi")], "cd", NOTHING),
    ],
)
def test_what_cannot_be_had_any_more_is_not_reserved(objects: list[Any], claims: str, why: str) -> None:
    storage = cluster(*objects)
    found = reserve(pod(*claims), storage.catalogue, storage.node("a"), "pod")
    assert isinstance(found, Unresolvable) and found.message == why
    assert len(storage.catalogue.taken) == len(storage.catalogue.selected) == 0


@pytest.mark.promise("S13")
def test_of_two_pods_one_gets_the_last_volume() -> None:
    storage = cluster(claim("c"), claim("d"), volume("v"))
    reserved(storage, pod("c"), holder="first")
    found = reserve(pod("d"), storage.catalogue, storage.node("a"), "second")
    assert isinstance(found, Unresolvable)
    assert storage.catalogue.taken.held("first") == {"v"}


def test_what_is_unreserved_is_told_and_free_again() -> None:
    c, d, v = claim("c"), claim("d", class_name="made"), volume("v")
    storage = cluster(c, d, v)
    reserved(storage, pod("c", "d"))
    assert unreserve(storage.catalogue, "pod") == [v, d]
    assert unreserve(storage.catalogue, "pod") == []
    assert isinstance(reserve(pod("c"), storage.catalogue, storage.node("b"), "pod"), ReservedVolumes)


# ---- writes


def test_a_volume_is_written_with_the_claim_and_the_version_that_was_seen() -> None:
    c, v = claim("c"), volume("v")
    storage = cluster(c, v)
    [write] = due(reserved(storage, pod("c")), storage.catalogue)
    assert (write.resource, write.namespace, write.name) == ("persistentvolumes", "", "v")
    assert body(write) == {
        "metadata": {
            "uid": "uid-v",
            "resourceVersion": v.resource_version,
            "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
        },
        "spec": {
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "default",
                "name": "c",
                "uid": "uid-c",
                "resourceVersion": c.resource_version,
            }
        },
    }


def test_a_volume_that_its_owner_meant_for_the_claim_is_not_said_to_be_the_controllers_choice() -> None:
    storage = cluster(claim("c"), volume("v", claim=ref("c", uid="")))
    [write] = due(reserved(storage, pod("c")), storage.catalogue)
    assert "annotations" not in body(write)["metadata"]


def test_a_claim_is_written_with_the_selected_node_and_the_version_that_was_seen() -> None:
    c = claim("c", class_name="made")
    storage = cluster(c)
    [write] = due(reserved(storage, pod("c")), storage.catalogue)
    assert (write.resource, write.namespace, write.name) == ("persistentvolumeclaims", "default", "c")
    assert body(write) == {
        "metadata": {
            "uid": "uid-c",
            "resourceVersion": c.resource_version,
            "annotations": {"volume.kubernetes.io/selected-node": "a"},
        }
    }


def test_what_stands_on_the_api_server_already_is_not_written_again() -> None:
    storage = cluster(claim("c"), volume("v", claim=ref("c")), claim("d", class_name="made", selected="a"))
    assert due(reserved(storage, pod("c", "d")), storage.catalogue) == ()


def test_what_another_pod_with_the_claim_has_written_is_not_written_again() -> None:
    storage = cluster(claim("c"), volume("v"))
    first, second = reserved(storage, pod("c"), holder="1"), reserved(storage, pod("c"), holder="2")
    write_all(storage, first)
    assert due(second, storage.catalogue) == ()


def test_a_write_that_was_taken_leaves_nothing_to_undo() -> None:
    storage = cluster(claim("c"), volume("v"))
    write_all(storage, reserved(storage, pod("c")))
    assert unreserve(storage.catalogue, "pod") == []
    assert list(storage.catalogue.free.of("slow")) == []


# ---- waiting


def bound_claim(c: ClaimInfo, v: VolumeInfo) -> ClaimInfo:
    found: ClaimInfo = shown(c, volume_name=v.name, bind_completed=True)
    return found


def test_a_static_binding_is_done_when_the_controller_has_bound_the_claim() -> None:
    c, v = claim("c"), volume("v")
    storage = cluster(c, v)
    found = reserved(storage, pod("c"))
    assert at(storage, found) == Progress.WAIT
    versions = write_all(storage, found)
    assert at(storage, found) == Progress.WAIT
    meant = volume("v", claim=ref("c"))
    storage.add(shown(meant, versions["v"]))
    assert at(storage, found) == Progress.WAIT
    storage.add(shown(c, volume_name="v"))
    assert at(storage, found) == Progress.WAIT
    storage.add(bound_claim(c, v))
    assert at(storage, found) == Progress.DONE


def provisioning(storage: Storage, c: ClaimInfo) -> ReservedVolumes:
    """A reservation whose writes are done and shown."""
    found = reserved(storage, pod("c"))
    assert at(storage, found) == Progress.WAIT
    versions = write_all(storage, found)
    assert at(storage, found) == Progress.WAIT
    storage.add(shown(c, versions["c"], selected_node="a"))
    assert at(storage, found) == Progress.WAIT
    return found


def test_a_provision_is_done_when_the_claim_is_bound_to_a_volume_that_the_node_reaches() -> None:
    c, v = (claim("c", class_name="made"), volume("v", zone="a", class_name="made", claim=ref("c"), phase="Bound"))
    storage = cluster(c)
    found = provisioning(storage, c)
    storage.add(shown(c, selected_node="a", volume_name="v", bind_completed=True))
    assert at(storage, found) == Progress.WAIT  # the watch of volumes is behind
    storage.add(v)
    assert at(storage, found) == Progress.DONE


REACHED_NOT = 'pv "v" node affinity doesn\'t match node "a": no matching NodeSelectorTerms'


@pytest.mark.parametrize(
    ("class_name", "changes", "why"),
    [
        # Provisions: the provisioner gives up, or makes the volume where the node does not reach it.
        ("made", {"claim": {"selected_node": None}}, 'provisioning failed for PVC "c"'),
        ("made", {"volume": {"zone": "b"}, "claim": {"selected_node": "a", "volume_name": "v"}}, REACHED_NOT),
        # Static bindings: the volume lost its claim again, went to another, or is gone.
        ("slow", {"volume": {}}, 'ClaimRef got reset for pv "v"'),
        ("slow", {"volume": {"claim": ref("d")}}, 'pv "v" was bound to another claim'),
        ("slow", {"gone": "v"}, 'failed to check binding: could not find v1.PersistentVolume "v"'),
    ],
)
def test_an_attempt_fails_when_its_claims_cannot_be_bound_any_more(
    class_name: str, changes: dict[str, Any], why: str
) -> None:
    c = claim("c", class_name=class_name)
    storage = cluster(c) if class_name == "made" else cluster(c, volume("v"))
    if class_name == "made":
        found = provisioning(storage, c)
    else:
        found = reserved(storage, pod("c"))
        write_all(storage, found)
    if "gone" in changes:
        storage.catalogue.delete_volume(changes["gone"])
    if "volume" in changes:
        about = {"claim": ref("c")} if class_name == "made" else {}
        storage.add(shown(volume("v", class_name=class_name, **{**about, **changes["volume"]})))
    if "claim" in changes:
        storage.add(shown(c, **changes["claim"]))
    assert at(storage, found) == ReservationFailed(why)


def test_a_claim_that_is_gone_fails_the_attempt() -> None:
    storage = cluster(claim("c", class_name="made"), claim("d"), volume("v"))
    one, other = reserved(storage, pod("c")), reserved(storage, pod("d"), holder="other")
    storage.catalogue.delete_claim("default", "c")
    storage.catalogue.delete_claim("default", "d")
    assert at(storage, one) == ReservationFailed(
        'failed to check provisioning pvc: could not find v1.PersistentVolumeClaim "default/c"'
    )
    assert at(storage, other) == ReservationFailed(
        'failed to check binding: could not find v1.PersistentVolumeClaim "default/d"'
    )


def test_a_pod_a_node_or_a_claim_that_is_gone_fails_the_attempt_and_another_claim_of_the_name_is_not_the_one() -> None:
    storage = cluster(claim("c", class_name="made"))
    found = reserved(storage, pod("c"))
    gone = check_bindings(found, storage.catalogue, None)
    assert gone == ReservationFailed('failed to get node "a": node "a" not found')
    assert at(storage, found, pod_exists=False) == ReservationFailed("pod does not exist any more")
    storage.add(claim("c", class_name="made", selected="a", meta={"uid": "another"}))
    assert isinstance(at(storage, found), ReservationFailed)


def test_the_next_attempt_goes_on_with_what_the_last_one_wrote() -> None:
    c = claim("c", class_name="made")
    storage = cluster(c)
    provisioning(storage, c)
    unreserve(storage.catalogue, "pod")
    again = reserved(storage, pod("c"))
    assert due(again, storage.catalogue) == () and at(storage, again) == Progress.WAIT
