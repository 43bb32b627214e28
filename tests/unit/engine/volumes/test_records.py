"""What is read from storage objects."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.state.nodeselection import reaches
from agent_scheduler.engine.state.records import same
from agent_scheduler.engine.volumes import records
from agent_scheduler.objects.quantity import MAX_INT64
from tests.support.engine import node
from tests.support.storage import Json, capacity, claim, csi_node, encoded, metadata, storage_class, volume

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


def test_a_pool_without_topology_can_be_reached_from_nowhere() -> None:
    assert capacity("c", "1Gi", topology=None).limit == -1


def test_a_pool_with_an_empty_topology_can_be_reached_from_everywhere() -> None:
    found = capacity("c", "1Ki", topology={})
    assert found.limit == 1024 and found.reach is None


def test_the_largest_volume_says_more_than_the_room_that_is_left() -> None:
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
