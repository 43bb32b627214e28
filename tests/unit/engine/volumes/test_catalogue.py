"""What is known of storage, and what is assumed on top of it."""

from __future__ import annotations

import msgspec
import pytest

from agent_scheduler.engine.state.records import Record
from agent_scheduler.engine.volumes.candidate_index import CandidateIndex
from agent_scheduler.engine.volumes.catalogue import Catalogue
from tests.support.engine import World as Storage
from tests.support.engine import put
from tests.support.storage import (
    attachment,
    capacity,
    claim,
    csi_node,
    driver,
    metadata,
    ref,
    storage_class,
    volume,
)


def names(catalogue: Catalogue, class_name: str = "slow") -> list[str]:
    return [each.name for each in catalogue.free.of(class_name)]


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


def test_a_volume_is_not_free_while_it_is_released_bound_or_deleted() -> None:
    going = volume("going", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    catalogue = (
        Storage().add(volume("released", phase="Released"), volume("bound", claim=ref("c")), going).catalogue
    )
    assert names(catalogue) == []


def test_an_object_that_changed_since_it_was_looked_at_is_not_taken() -> None:
    c, v = claim("c"), volume("v")
    catalogue = Storage().add(c, volume("v", size="2Gi"), claim("d")).catalogue
    assert not catalogue.take(v, c, "pod")
    assert not catalogue.select(claim("d"), "n", "pod")


def test_a_volume_that_names_a_claim_without_a_uid_is_for_whichever_has_the_name() -> None:
    c = claim("c")
    catalogue = (
        Storage().add(c, volume("v", claim=ref("c", uid="")), volume("w", claim=ref("c", uid="9"))).catalogue
    )
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
