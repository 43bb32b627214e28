"""What is read from storage objects, what is known of storage, and what is assumed on top of it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import pytest

from agent_scheduler.engine.state.nodeselection import reaches
from agent_scheduler.engine.state.reach import Reach
from agent_scheduler.engine.state.records import Record, same
from agent_scheduler.engine.volumes import records
from agent_scheduler.engine.volumes.candidate_index import CandidateIndex, CandidateIndexes
from agent_scheduler.engine.volumes.catalogue import Catalogue
from apimachinery.quantity import MAX_INT64
from tests.support.engine import World as Storage
from tests.support.engine import node, put
from tests.support.storage import (
    Json,
    attachment,
    capacity,
    claim,
    csi_node,
    driver,
    encoded,
    metadata,
    ref,
    storage_class,
    volume,
)


@pytest.mark.parametrize(
    "record",
    [
        claim("c"),
        volume("v"),
        storage_class(),
        csi_node("n", ebs=1),
        driver("d"),
        capacity("p", "1Gi", topology={}),
        attachment("a", "n", "v"),
    ],
)
def test_the_version_rises_with_a_new_object_and_not_with_a_new_version_of_the_same(record: Record) -> None:
    catalogue = Catalogue()
    assert put(catalogue, record)
    version = catalogue.version
    assert version > 0
    newer = msgspec.structs.replace(record, resource_version=str(int(record.resource_version) + 1))
    assert not put(catalogue, newer)
    assert catalogue.version == version


def test_the_version_rises_when_an_object_goes() -> None:
    catalogue = Storage().add(claim("c"), volume("v")).catalogue
    version = catalogue.version
    assert catalogue.delete_volume("v") and catalogue.delete_claim("default", "c")
    assert not catalogue.delete_volume("v")
    assert catalogue.version == version + 2


def test_an_older_version_of_an_object_changes_nothing() -> None:
    old, new = volume("v", size="1Gi"), volume("v", size="2Gi")
    catalogue = Storage().add(new, old).catalogue
    assert catalogue.volumes["v"] is new


def test_an_object_that_changed_since_it_was_looked_at_is_not_taken() -> None:
    c, v = claim("c"), volume("v")
    catalogue = Storage().add(c, volume("v", size="2Gi"), claim("d")).catalogue
    assert not catalogue.take(v, c, "pod")
    assert not catalogue.select(claim("d"), "n", "pod")


def test_a_volume_that_names_a_claim_without_a_uid_is_for_whichever_has_the_name() -> None:
    c = claim("c")
    catalogue = Storage().add(c, volume("v", claim=ref("c", uid="")), volume("w", claim=ref("c", uid="9"))).catalogue
    assert [each.name for each in catalogue.prebound_for(c)] == ["v"]


def test_limits_follow_the_csi_node() -> None:
    catalogue = Storage().add(csi_node("a", ebs=2, efs=None), csi_node("b", ebs=3)).catalogue
    assert catalogue.limits("ebs") == {"a": 2, "b": 3} and catalogue.limits("efs") == {}
    catalogue.set_csi_node(csi_node("a", efs=1))
    catalogue.delete_csi_node("b")
    assert catalogue.limits("ebs") == {} and catalogue.limits("efs") == {"a": 1}


def test_attachments_and_pools_follow_their_objects() -> None:
    catalogue = Storage().add(attachment("x", "a", "v"), capacity("p", "1Gi", topology={})).catalogue
    catalogue.set_attachment(attachment("x", "b", "v"))
    assert not catalogue.attachments("a") and len(list(catalogue.attachments("b"))) == 1
    catalogue.set_capacity(capacity("p", "1Gi", topology={}, class_name="else"))
    assert catalogue.capacities.index("made", 1) == CandidateIndex() != catalogue.capacities.index("else", 1)
    catalogue.delete_attachment("x")
    catalogue.delete_capacity("kube-system", "p")
    assert not catalogue.attachments("b") and catalogue.capacities.index("else", 1) == CandidateIndex()
    assert catalogue.check() == []


def test_a_version_that_is_no_number_is_news_whenever_it_differs() -> None:
    catalogue = Storage().add(volume("v", meta=metadata("v", resourceVersion="x"))).catalogue
    assert catalogue.set_volume(volume("v", size="2Gi", meta=metadata("v", resourceVersion="y")))


class Thing(NamedTuple):
    name: str
    size: int
    reach: Reach | None = None
    class_name: str = "slow"


class Counted:
    """CandidateIndexes by size that tell how often they looked at a thing."""

    def __init__(self) -> None:
        self.looks = 0
        self.candidate_index: CandidateIndexes[int, Thing] = CandidateIndexes(
            lambda each: (each.size, each.name), self._suffices
        )

    def _suffices(self, thing: Thing, size: int) -> bool:
        self.looks += 1
        return thing.size >= size


def test_a_demand_that_was_had_before_is_met_without_a_look_at_each_thing() -> None:
    counted = Counted()
    for index in range(100):
        counted.candidate_index.put(Thing(f"t{index}", index))
    first = counted.candidate_index.index("slow", 50)
    assert counted.looks == 100
    counted.candidate_index.drop(Thing("t99", 99))
    counted.candidate_index.put(Thing("t70b", 70))
    counted.candidate_index.put(Thing("elsewhere", 70, class_name="quick"))
    assert counted.looks == 102
    assert counted.candidate_index.index("slow", 50) is first
    assert [each.size for each in first.at(node("n"))] == [*range(50, 71), 70, *range(71, 99)]
    assert counted.candidate_index.check() == []


def test_a_demand_that_many_others_came_after_is_forgotten() -> None:
    counted = Counted()
    counted.candidate_index.put(Thing("t", 1000))
    first = counted.candidate_index.index("slow", 0)
    for size in range(1, 32):
        assert counted.candidate_index.index("slow", size) is not first
    assert counted.candidate_index.index("slow", 0) is first
    for size in range(32, 64):
        counted.candidate_index.index("slow", size)
    assert counted.candidate_index.index("slow", 0) is not first


def test_the_free_volumes_and_pools_of_a_workload_are_sorted_once() -> None:
    storage = Storage(node("a")).add(storage_class("made", provisioner="csi"), driver("csi"))
    storage.add(*(volume(f"v{index}", on="a", class_name="made") for index in range(9)))
    storage.add(*(capacity(f"p{index}", "1Gi", topology={}) for index in range(9)))
    catalogue = storage.catalogue
    pools = catalogue.capacities.index("made", 1)
    storage.add(capacity("p0", "2Gi", topology={}), capacity("p1", "0", topology={}))
    catalogue.delete_capacity("kube-system", "p2")
    assert catalogue.capacities.index("made", 1) is pools
    assert [each.name for each in pools.at(storage.node("a"))] == ["p0", *(f"p{at}" for at in range(3, 9))]
    storage.add(claim("c", class_name="made"))
    assert catalogue.check() == []


ZONED = node("a", labels={"topology.kubernetes.io/zone": "z1"})


def test_the_class_annotation_is_stronger_than_the_field() -> None:
    annotated = {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}
    assert claim("c", meta=annotated).class_name == "old"
    assert volume("v", meta=annotated).class_name == "old"


def test_a_claim_is_bound_once_it_has_a_volume_and_the_controller_is_through() -> None:
    assert claim("c", volume="v", bound=True).bound
    assert not claim("c", volume="v").bound
    assert not claim("c", bound=True).bound


def test_only_the_controlling_owner_controls_a_claim() -> None:
    owners = [{"uid": "1", "name": "a"}, {"uid": "2", "name": "b", "controller": True}]
    assert claim("c", meta={"ownerReferences": owners}).controller == "2"


def test_an_unreadable_size_is_never_too_small_a_request_nor_an_offer() -> None:
    assert claim("c", size="much").requested == MAX_INT64
    assert volume("v", size="much").capacity == 0


def test_a_term_of_a_volume_that_has_no_meaning_matches_nowhere_and_spares_the_others() -> None:
    terms = [
        {"matchExpressions": [{"key": "x", "operator": "Near", "values": ["y"]}]},
        {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z1"]}]},
    ]
    both = volume("v", nodeAffinity={"required": {"nodeSelectorTerms": terms}})
    assert reaches(both.reach, ZONED)
    only = volume("v", nodeAffinity={"required": {"nodeSelectorTerms": terms[:1]}})
    assert not reaches(only.reach, ZONED)


@pytest.mark.parametrize(
    ("topologies", "fits"),
    [
        (None, True),
        ([], True),
        ([{}], False),
        ([{"matchLabelExpressions": []}], False),
        ([{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": []}]}], False),
        ([{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["z2", "z1"]}]}], True),
        ([{"matchLabelExpressions": [{"key": "other", "values": ["z1"]}]}], False),
    ],
)
def test_allowed_topologies_are_any_of_their_terms(topologies: list[Json] | None, fits: bool) -> None:
    body = {"metadata": metadata("c"), "provisioner": "p", "allowedTopologies": topologies}
    assert reaches(records.read_class(encoded(body)).reach, ZONED) is fits


def test_the_limit_of_a_pool_is_its_room_or_the_largest_volume_and_without_topology_it_is_out_of_reach() -> None:
    assert capacity("c", "1Gi", topology=None).limit == -1
    everywhere = capacity("c", "1Ki", topology={})
    assert everywhere.limit == 1024 and everywhere.reach is None
    assert capacity("c", "1Gi", topology={}, most="1Ki").limit == 1024


def test_a_driver_without_a_count_has_no_limit() -> None:
    assert dict(csi_node("a", ebs=3, efs=None).limits) == {"ebs": 3}


def test_a_field_of_the_wrong_shape_is_left_out_and_the_rest_is_read() -> None:
    body = {"metadata": metadata("v"), "spec": {"capacity": {"storage": "1Ki"}, "accessModes": "all"}}
    found = records.read_volume(encoded(body))
    assert (found.name, found.capacity, found.access_modes) == ("v", 1024, frozenset())


def test_records_that_differ_in_version_alone_are_the_same_to_a_decision() -> None:
    assert same(storage_class(), storage_class())
    assert not same(storage_class(), storage_class(zones=["z1"]))
