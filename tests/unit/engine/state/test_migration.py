"""In-tree volumes: what the drivers that took over make of them."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.volumes.binding import NODE_CONFLICT, VolumePlan, judge, plan, reasons
from agent_scheduler.engine.volumes.claims import Unresolvable
from agent_scheduler.engine.volumes.records import VolumeInfo
from agent_scheduler.engine.volumes.reservation import Progress, check_bindings, reserve
from tests.support.engine import World as Storage
from tests.support.engine import node
from tests.support.storage import Json, claim, csi_node, pod, ref, storage_class, volume
from tests.support.terms import ZONE, expression

BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
REGION, BETA_REGION = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"
GKE, EBS = "topology.gke.io/zone", "topology.ebs.csi.aws.com/zone"

DISK: Json = {"gcePersistentDisk": {"pdName": "d"}}
GCE_DRIVER, EBS_DRIVER = "pd.csi.storage.gke.io", "ebs.csi.aws.com"


def ebs(volume_id: str) -> Json:
    return {"awsElasticBlockStore": {"volumeID": volume_id}}


@pytest.mark.parametrize(
    ("source", "labels", "driver", "handle"),
    [
        # A GCE disk is known by its zone, or by the region that its zones have in common.
        (DISK, {}, GCE_DRIVER, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
        (DISK, {ZONE: "us-east1-b"}, GCE_DRIVER, "projects/UNSPECIFIED/zones/us-east1-b/disks/d"),
        (
            DISK,
            {ZONE: "us-east1-b", BETA_ZONE: "us-east1-c"},
            GCE_DRIVER,
            "projects/UNSPECIFIED/zones/us-east1-c/disks/d",
        ),
        (DISK, {ZONE: "us-east1-b__us-east1-c"}, GCE_DRIVER, "projects/UNSPECIFIED/regions/us-east1/disks/d"),
        (DISK, {ZONE: "us-east1-b__us-west1-c"}, "", ""),
        (DISK, {ZONE: "here__there"}, "", ""),
        # An EBS volume by its ID alone.
        (ebs("vol-1"), {}, EBS_DRIVER, "vol-1"),
        (ebs("aws://us-east-1a/vol-1"), {}, EBS_DRIVER, "vol-1"),
        (ebs("aws:///vol-1"), {}, EBS_DRIVER, "vol-1"),
        (ebs("aws://us-east-1a/x"), {}, "", ""),
        (ebs("aws://vol-1"), {}, "", ""),
        ({"azureDisk": {"diskName": "n", "diskURI": "/sub/d"}}, {}, "disk.csi.azure.com", "/sub/d"),
        ({"cinder": {"volumeID": "c"}}, {}, "cinder.csi.openstack.org", "c"),
        ({"portworxVolume": {"volumeID": "p"}}, {}, "pxd.portworx.com", "p"),
        ({"vsphereVolume": {"volumePath": "v"}}, {}, "", ""),
    ],
)
def test_an_in_tree_volume_is_known_by_what_the_driver_calls_it(
    source: Json, labels: dict[str, str], driver: str, handle: str
) -> None:
    found = volume("v", meta={"labels": labels}, **source)
    assert (found.driver, found.handle) == (driver, handle)
    assert driver != GCE_DRIVER or found.plugin == "kubernetes.io/gce-pd"


class World(Storage):
    """Node old, whose plugins are its own, and node new, where drivers have taken over; both with `labels`."""

    def __init__(self, labels: dict[str, str], disk: VolumeInfo) -> None:
        super().__init__(node("old", labels=labels), node("new", labels=labels))
        self.add(csi_node("old"), csi_node("new", migrated="kubernetes.io/gce-pd,kubernetes.io/aws-ebs"), disk)
        self.add(claim("c", volume=disk.name, bound=True))

    def fits(self) -> list[str]:
        """As the filter says, which a reservation has to agree with."""
        found = plan(pod("c"), self.catalogue)
        assert isinstance(found, VolumePlan)
        fitting = self.names(judge(found, self.catalogue, self.columns, self.rows).feasible)
        reserved = [
            name
            for name in self.ledger.rows
            if not isinstance(reserve(pod("c"), self.catalogue, self.node(name), "p"), Unresolvable)
        ]
        assert reserved == fitting
        return fitting


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({ZONE: "z1"}, ["old"]),
        ({GKE: "z1"}, ["new"]),
        ({ZONE: "z1", GKE: "z1"}, ["old", "new"]),
        ({ZONE: "z2", GKE: "z2"}, []),
    ],
)
def test_where_a_driver_has_taken_over_its_own_label_tells_the_zone(
    labels: dict[str, str], expected: list[str]
) -> None:
    assert World(labels, volume("v", zone="z1", **DISK)).fits() == expected


def test_the_beta_labels_of_a_volume_are_those_of_today_where_a_driver_has_taken_over() -> None:
    beta = {"matchExpressions": [expression(BETA_ZONE, "z1"), expression(BETA_REGION, "r")]}
    disk = volume("v", nodeAffinity={"required": {"nodeSelectorTerms": [beta]}}, **DISK)
    assert World({GKE: "z1", REGION: "r"}, disk).fits() == ["new"]
    assert World({BETA_ZONE: "z1", BETA_REGION: "r"}, disk).fits() == ["old"]


@pytest.mark.parametrize("key", [ZONE, BETA_ZONE])
def test_the_zones_of_a_label_stand_in_for_an_affinity_where_a_driver_has_taken_over(key: str) -> None:
    disk = volume("v", meta={"labels": {key: "z1__ z2"}}, **ebs("vol-1"))
    assert World({EBS: "z2"}, disk).fits() == ["old", "new"]
    assert World({EBS: "z3"}, disk).fits() == ["old"]


def test_the_zones_of_a_label_are_asked_for_beside_an_affinity_that_names_none() -> None:
    disk = volume("v", on="new", meta={"labels": {ZONE: "z1"}}, **ebs("vol-1"))
    assert World({EBS: "z1"}, disk).fits() == ["new"]
    assert World({EBS: "z2"}, disk).fits() == []


def test_azure_disks_keep_their_affinity() -> None:
    disk = volume("v", zone="z1", azureDisk={"diskURI": "d"})
    assert disk.migrated_reach is disk.reach


def test_a_node_whose_plugins_are_taken_over_later_is_read_anew() -> None:
    world = World({ZONE: "z1"}, volume("v", zone="z1", **DISK))
    world.add(csi_node("old", migrated="kubernetes.io/gce-pd"))
    assert world.fits() == []
    world.catalogue.delete_csi_node("old")
    assert world.fits() == ["old"]
    assert world.catalogue.check() == []


def test_a_node_with_the_wrong_zone_is_told_as_a_conflict() -> None:
    world = World({ZONE: "z1"}, volume("v", zone="z1", **DISK))
    found = plan(pod("c"), world.catalogue)
    assert isinstance(found, VolumePlan)
    assert reasons(found, world.catalogue, world.columns, world.rows) == {NODE_CONFLICT: 1}


def test_a_static_volume_that_is_bound_is_looked_for_where_its_driver_is() -> None:
    labels = {ZONE: "z1", GKE: "z2"}
    world = World(labels, volume("other", phase="Bound"))
    world.add(storage_class(), claim("d"), volume("w", zone="z1", **DISK))
    taken = {name: reserve(pod("d"), world.catalogue, world.node(name), name) for name in ("old", "new")}
    world.add(volume("w", zone="z1", claim=ref("d"), phase="Bound", **DISK), claim("d", volume="w", bound=True))
    found = {
        name: check_bindings(each, world.catalogue, world.node(name))
        for name, each in taken.items()
        if not isinstance(each, Unresolvable)
    }
    assert found["old"] is Progress.DONE
    assert 'node affinity doesn\'t match node "new"' in found["new"].reason
