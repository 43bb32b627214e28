"""VolumeBinding's score: how full a node's storage would be."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.framework.args import UtilizationShapePoint, VolumeBindingArgs
from agent_scheduler.engine.plugins.volume_binding import VolumeBindingScore
from agent_scheduler.engine.rules.curve import rates_of
from agent_scheduler.engine.state.podvolumes import PodVolumes
from tests.support.engine import World as Storage
from tests.support.engine import node
from tests.support.storage import capacity, claim, class_of, driver, pod, storage_class, volume

FULL_IS_BEST = ((0, 0), (100, 10))
EMPTY_IS_BEST = ((0, 10), (100, 0))


def scored(storage: Storage, volumes: PodVolumes, shape: Any = FULL_IS_BEST) -> dict[str, int] | None:
    points = tuple(UtilizationShapePoint(utilization=at, score=score) for at, score in shape)
    plugin = VolumeBindingScore(VolumeBindingArgs(shape=points))
    state = plugin.prepare(class_of(volumes), storage.handle)
    if state is None:
        return None
    found = plugin.score(state, storage.columns, storage.rows).tolist()
    return dict(zip(storage.ledger.rows, found, strict=True))


def two_nodes(*objects: Any) -> Storage:
    storage = Storage(node("a", labels={"kubernetes.io/hostname": "a"}), node("b"))
    return storage.add(storage_class(), storage_class("made", provisioner="csi"), driver("csi"), *objects)


def test_a_node_whose_volume_fits_better_is_rated_by_how_much_of_it_the_claim_takes() -> None:
    storage = two_nodes(
        claim("c", size="1Gi"), volume("v", size="2Gi", on="a"), volume("w", size="3Gi", on="b")
    )
    assert scored(storage, pod("c")) == {"a": 50, "b": 33}
    assert scored(storage, pod("c"), EMPTY_IS_BEST) == {"a": 50, "b": 67}


def test_claims_of_one_class_are_taken_together_and_classes_count_the_same() -> None:
    storage = two_nodes(
        claim("c", size="1Gi"), claim("d", size="2Gi"), claim("e", size="1Gi", class_name="other")
    )
    storage.add(storage_class("other"))
    storage.add(volume("v", size="1Gi"), volume("w", size="5Gi"), volume("x", size="4Gi", class_name="other"))
    # Half of slow's 6Gi, a quarter of other's 4Gi: 37.5, rounded up.
    assert scored(storage, pod("c", "d", "e")) == {"a": 38, "b": 38}


def test_claims_whose_volumes_are_made_are_rated_by_the_room_of_a_pool() -> None:
    here = {"matchLabels": {"kubernetes.io/hostname": "a"}}
    storage = two_nodes(claim("c", size="1Gi", class_name="made"), claim("d", size="2Gi", class_name="made"))
    storage.add(capacity("p", "4Gi", topology=here))
    assert scored(storage, pod("c", "d")) == {"a": 75, "b": 0}
    # More than there is counts as all of it.
    storage.add(capacity("p", "2Gi", topology=here))
    assert scored(storage, pod("c", "d")) == {"a": 100, "b": 0}


def test_what_is_left_counts_in_a_pool_that_also_says_how_large_a_volume_may_be() -> None:
    storage = two_nodes(claim("c", size="1Gi", class_name="made"))
    storage.add(capacity("p", "8Gi", topology={}, most="2Gi"))
    assert scored(storage, pod("c")) == {"a": 12, "b": 12}


def test_static_volumes_alone_count_where_a_claim_gets_one() -> None:
    storage = two_nodes(claim("c", size="1Gi"), claim("d", size="1Gi", class_name="made"))
    storage.add(volume("v", size="2Gi", on="a"), capacity("p", "4Gi", topology={}))
    assert scored(storage, pod("c", "d")) == {"a": 50, "b": 25}


def test_a_node_where_nobody_counts_room_is_worth_nothing() -> None:
    storage = two_nodes(claim("c", class_name="quiet"), storage_class("quiet", provisioner="other"))
    assert scored(storage, pod("c")) == {"a": 0, "b": 0}


def test_pods_whose_claims_are_all_bound_or_missing_are_left_out() -> None:
    storage = two_nodes(claim("c", volume="v", bound=True), volume("v"))
    assert scored(storage, pod("c")) is None
    assert scored(storage, pod("missing")) is None


def test_without_a_shape_storage_does_not_count_and_without_claims_nothing_is_asked() -> None:
    storage = two_nodes(claim("c"))
    handle = storage.handle
    assert VolumeBindingScore(VolumeBindingArgs()).prepare(class_of(pod("c")), handle) is None
    reads = handle.reads()
    shape = (UtilizationShapePoint(utilization=0, score=1),)
    assert VolumeBindingScore(VolumeBindingArgs(shape=shape)).prepare(class_of(None), handle) is None
    assert not reads


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (((0, 0), (100, 10)), {0: 0, 33: 33, 100: 100}),
        (((20, 10), (40, 0)), {0: 100, 20: 100, 21: 95, 39: 5, 40: 0, 100: 0}),
        (((0, 10), (30, 9)), {1: 100, 29: 91, 30: 90}),
        (((50, 7),), {0: 70, 100: 70}),
    ],
)
def test_a_curve_is_linear_between_its_points_and_level_beside_them(
    shape: tuple[tuple[int, int], ...], expected: dict[int, int]
) -> None:
    rates = rates_of(shape)
    assert {at: rates[at] for at in expected} == expected
