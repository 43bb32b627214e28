"""What is read from a pod's spec.volumes."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.state.inline import conflicts
from agent_scheduler.engine.state.podspec import SpecError
from agent_scheduler.engine.state.podvolumes import ClaimUse, PodVolumes, pod_volumes
from tests.support.storage import Json, pod, spec


def read(raw: bytes) -> PodVolumes | None:
    return pod_volumes(raw, namespace="default", name="p", uid="uid-p")


@pytest.mark.parametrize(
    "sources",
    [
        {},
        {"a": {"secret": {"secretName": "s"}}},
        {"a": {"csi": {"driver": "secrets-store.csi.k8s.io"}}},
        {"a": {"emptyDir": {}}, "b": {"projected": {"sources": [{"configMap": {"name": "rbd"}}]}}},
    ],
)
def test_a_pod_without_disks_or_claims_has_no_volumes(sources: Json) -> None:
    assert read(spec(**sources)) is None


def test_a_spec_without_volumes_has_none() -> None:
    assert read(b"") is None


def test_bytes_that_only_look_like_a_claim_make_no_volumes() -> None:
    assert read(spec(a={"secret": {"secretName": "ephemeral"}})) is None


def test_claims_come_in_the_order_of_the_spec_and_once_each() -> None:
    assert [use.key for use in pod("b", "a", "b").claims] == [("default", "b"), ("default", "a")]


def test_an_ephemeral_volume_is_the_claim_named_after_pod_and_volume() -> None:
    found = pod(name="web", uid="uid-1", ephemeral=("scratch",))
    assert found.claims == (ClaimUse(("default", "web-scratch"), True),)
    assert found.pod == ("web", "uid-1")


def test_a_claim_that_is_named_and_ephemeral_has_to_be_the_pods_own() -> None:
    assert pod("web-scratch", name="web", ephemeral=("scratch",)).claims[0].ephemeral


@pytest.mark.parametrize(
    ("source", "driver"),
    [
        ({"gcePersistentDisk": {"pdName": "d"}}, "pd.csi.storage.gke.io"),
        ({"awsElasticBlockStore": {"volumeID": "d"}}, "ebs.csi.aws.com"),
        ({"azureDisk": {"diskURI": "d"}}, "disk.csi.azure.com"),
        ({"cinder": {"volumeID": "d"}}, "cinder.csi.openstack.org"),
        ({"portworxVolume": {"volumeID": "d"}}, "pxd.portworx.com"),
    ],
)
def test_an_in_tree_volume_is_known_to_the_driver_that_took_over(source: Json, driver: str) -> None:
    [found] = pod(v=source).in_tree
    assert found.driver == driver and found.handle.endswith("d")


def test_pods_with_the_same_claim_have_equal_volumes() -> None:
    one, other = pod("c", name="p1", uid="1"), pod("c", name="p2", uid="2")
    assert one == other and hash(one) == hash(other)


def test_an_unreadable_volume_names_the_field() -> None:
    with pytest.raises(SpecError, match=r"spec\.volumes"):
        read(b'[{"name": "v", "persistentVolumeClaim": {"claimName": 7}}]')


def disk(**source: Json) -> PodVolumes:
    return pod(d=source)


GCE = {"pdName": "d"}
RBD = {"monitors": ["m1", "m2"], "image": "i"}


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ({"gcePersistentDisk": GCE}, {"gcePersistentDisk": GCE}, True),
        ({"gcePersistentDisk": GCE}, {"gcePersistentDisk": {**GCE, "readOnly": True}}, True),
        ({"gcePersistentDisk": {**GCE, "readOnly": True}}, {"gcePersistentDisk": {**GCE, "readOnly": True}}, False),
        ({"gcePersistentDisk": GCE}, {"gcePersistentDisk": {"pdName": "e"}}, False),
        ({"gcePersistentDisk": GCE}, {"awsElasticBlockStore": {"volumeID": "d"}}, False),
        (
            {"awsElasticBlockStore": {"volumeID": "d", "readOnly": True}},
            {"awsElasticBlockStore": {"volumeID": "d", "readOnly": True}},
            True,
        ),
        ({"iscsi": {"iqn": "q"}}, {"iscsi": {"iqn": "q"}}, True),
        ({"iscsi": {"iqn": "q", "readOnly": True}}, {"iscsi": {"iqn": "q", "readOnly": True}}, False),
        ({"rbd": RBD}, {"rbd": {**RBD, "monitors": ["m2"]}}, True),
        ({"rbd": RBD}, {"rbd": {**RBD, "monitors": ["m3"]}}, False),
        ({"rbd": RBD}, {"rbd": {**RBD, "pool": "rbd"}}, True),
        ({"rbd": RBD}, {"rbd": {**RBD, "pool": "other"}}, False),
    ],
)
def test_disks_conflict_unless_they_differ_or_are_only_read(one: Json, other: Json, clash: bool) -> None:
    [first], [second] = disk(**one).disks, disk(**other).disks
    assert conflicts(first, second) is clash and conflicts(second, first) is clash
