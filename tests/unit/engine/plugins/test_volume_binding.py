"""The volume plugins as a profile has them: what they read, keep, say of victims, and how full storage would be."""

from __future__ import annotations

from typing import Any, cast

import pytest

from agent_scheduler.engine.decide.trial import START, Trial, WhatIf
from agent_scheduler.engine.framework.args import UtilizationShapePoint, VolumeBindingArgs
from agent_scheduler.engine.framework.points import PluginSet
from agent_scheduler.engine.framework.prebind import Writes
from agent_scheduler.engine.plugins.volume_binding import VolumeBindingScore
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.recount import contradictions
from agent_scheduler.engine.rules.curve import rates_of
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.podvolumes import PodVolumes, Recogniser
from agent_scheduler.engine.volumes.catalogue import Catalogue
from agent_scheduler.engine.volumes.reservation import unreserve
from tests.support.engine import World as Storage
from tests.support.engine import node
from tests.support.storage import capacity, claim, class_of, csi_node, driver, pod, ref, spec, storage_class, volume

TOKEN = b'[{"name":"kube-api-access-%s","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}%s]'


class World(Storage):
    """With pods that mount claims."""

    def mounting(self, *claims: str, name: str = "", **more: Any) -> PodInfo:
        volumes = [{"name": f"v-{each}", "persistentVolumeClaim": {"claimName": each}} for each in claims]
        return self.pod(name, volumes=[*volumes, *({"name": each, **source} for each, source in more.items())])

    def bound(self, name: str, *, meta: Any = None, modes: tuple[str, ...] = ("ReadWriteOnce",), **of: Any) -> None:
        """A claim with its volume."""
        self.add(
            volume(f"pv-{name}", claim=ref(name), phase="Bound", meta=meta, **of),
            claim(name, volume=f"pv-{name}", bound=True, accessModes=list(modes)),
        )


def test_an_answer_is_kept_until_storage_changes_and_only_where_storage_was_read() -> None:
    world = World(node("a"), node("b"))
    world.bound("data", on="b")
    plain, mounts = world.mounting(), world.mounting("data")
    views = [world.views.of(pod.cls) for pod in (plain, mounts)]
    assert [world.views.of(pod.cls) for pod in (plain, mounts)] == views
    world.add(storage_class("new"))
    assert world.views.of(plain.cls) is views[0]
    assert world.views.of(mounts.cls) is not views[1]


def test_a_missing_claim_is_told_of_every_node_where_limits_alone_ask_for_it() -> None:
    world = World(node("a"), node("b"))
    without = {"multiPoint": PluginSet(disabled=("VolumeRestrictions", "VolumeBinding"))}
    limits_only = ProfileSpec(scheduler_name="s", plugins=without)
    world.profile = build_profile(limits_only)
    pod = world.mounting(name="p", scratch={"ephemeral": {"volumeClaimTemplate": {}}})
    missing = 'looking up PVC default/p-scratch: persistentvolumeclaim "p-scratch" not found'
    assert world.message(pod) == f"0/2 nodes are available: 2 {missing}."
    assert not world.views.of(pod.cls).refused(world.snapshot.columns).curable.size


def test_the_volumes_of_pods_that_are_thought_of_on_a_row_are_there_for_that_time() -> None:
    world = World(node("a"))
    world.add(csi_node("a", ebs=1))
    for name in ("one", "two"):
        world.bound(name, modes=("ReadWriteOncePod",), csi={"driver": "ebs", "volumeHandle": name})
    nominated, rival, other = world.mounting("one"), world.mounting("one"), world.mounting("two")
    assert world.feasible(rival) == world.feasible(other) == {"a"}
    columns, row = world.snapshot.columns, world.ledger.rows["a"]

    def diagnose(pod: PodInfo) -> list[str]:
        filters = world.views.of(pod.cls).filters
        return [each.plugin.name for each in filters if not each.feasible_row(columns, row)]

    with WhatIf(world.ledger, columns) as there:
        there.place(nominated, row)
        assert diagnose(rival) == ["VolumeRestrictions"]
        assert diagnose(other) == ["NodeVolumeLimits"]
        there.remove(nominated, row)
        assert diagnose(rival) == diagnose(other) == []
        there.place(nominated, row)
    assert diagnose(rival) == diagnose(other) == []
    # One that is placed counts as what it is, and is no guest beside that.
    world.ledger.set_pod(nominated, "a")
    world.snapshot.refresh()
    with WhatIf(world.ledger, columns) as there:
        there.remove(nominated, row)
        assert diagnose(rival) == []
        there.place(nominated, row)
        assert diagnose(rival) == ["VolumeRestrictions"] and not columns.hypothetical_pods


def test_the_ledger_knows_whose_volumes_are_where() -> None:
    world = World(node("a"), node("b"))
    pod = world.mounting("data")
    world.ledger.assume(pod, world.ledger.rows["a"])
    assert world.ledger.volume_use.on("a").keys() == {pod.uid}
    assert contradictions(world.ledger) == []
    world.ledger.set_pod(pod, "b")
    assert not world.ledger.volume_use.on("a")
    world.ledger.remove_pod(pod.uid)
    assert not world.ledger.volume_use.on("b")
    assert contradictions(world.ledger) == []


def test_a_token_is_recognised_whatever_its_name_ends_with() -> None:
    tells = Recogniser()
    assert not tells.matters(TOKEN % (b"abcde", b""))
    assert not tells.matters(TOKEN % (b"fghij", b""))
    claimed = b',{"name":"v","persistentVolumeClaim":{"claimName":"c"}}'
    other = b',{"name":"v","persistentVolumeClaim":{"claimName":"d"}}'
    assert claimed in tells.matters(TOKEN % (b"abcde", claimed))
    assert tells.matters(TOKEN % (b"abcde", claimed)) == tells.matters(TOKEN % (b"fghij", claimed))
    assert tells.matters(TOKEN % (b"abcde", other)) != tells.matters(TOKEN % (b"fghij", claimed))
    assert not tells.matters(TOKEN % (b"klmno", b""))
    # Nothing that is cut out can hide what matters.
    assert tells.matters(b'[{"name":"kube-api-access-","rbd":{"image":"i"}}]')
    assert tells.matters(TOKEN % (b'",rbd', claimed))
    assert tells.matters(spec("kube-api-access-abcde"))


class GivingBack:
    """What a plugin gives volumes back through."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.volumes = self
        self._catalogue = catalogue

    def give_back(self, uid: str) -> None:
        unreserve(self._catalogue, uid)


def test_a_trial_reserves_volumes_and_gives_back_what_it_has_not_handed_over() -> None:
    world = World(node("a"), node("b"))
    world.add(storage_class(), *(volume(name) for name in ("one", "two")))
    world.add(*(claim(name) for name in ("first", "second", "third")))
    writes = cast(Writes, GivingBack(world.catalogue))
    trial = Trial(world.ledger, world.snapshot, {"agent-scheduler": world.views}, writes)
    first, second, third = (world.mounting(name) for name in ("first", "second", "third"))

    def place(pod: PodInfo, row: int) -> bool:
        view = trial.view_of(pod)
        feasible = row in view.feasible_rows(world.snapshot.columns)
        return feasible and trial.try_place(pod, row, view)

    assert place(first, 0)
    mark = trial.mark()
    assert place(second, 1)
    assert len(world.catalogue.taken) == 2
    assert not place(third, 0)
    trial.rollback(mark)
    assert place(third, 0)
    assert [plugin.name for plugin, _ in trial.hand_over(third)] == ["VolumeBinding"]
    trial.rollback(START)
    assert world.catalogue.taken.holders == {third.uid}


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
    storage = two_nodes(claim("c", size="1Gi"), volume("v", size="2Gi", on="a"), volume("w", size="3Gi", on="b"))
    assert scored(storage, pod("c")) == {"a": 50, "b": 33}
    assert scored(storage, pod("c"), EMPTY_IS_BEST) == {"a": 50, "b": 67}


def test_claims_of_one_class_are_taken_together_and_classes_count_the_same() -> None:
    storage = two_nodes(claim("c", size="1Gi"), claim("d", size="2Gi"), claim("e", size="1Gi", class_name="other"))
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
