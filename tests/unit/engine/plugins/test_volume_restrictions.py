"""VolumeRestrictions: disks that a node has once, claims that one pod has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.plugins.volume_restrictions import State, VolumeRestrictions, plan
from agent_scheduler.engine.state.podvolumes import PodVolumes
from agent_scheduler.engine.state.volumeusage import VolumeUse
from agent_scheduler.engine.volumes.claims import Unresolvable
from tests.support.engine import World as Storage
from tests.support.engine import node, wakes
from tests.support.stateful import model_test
from tests.support.storage import claim, pod

DISK = "node(s) had no available disk"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)

ALONE = claim("c", accessModes=["ReadWriteOncePod"])


def disk(name: str = "d", **more: Any) -> PodVolumes:
    return pod(v={"gcePersistentDisk": {"pdName": name, **more}})


class World:
    def __init__(self, *claims: Any) -> None:
        self.storage = Storage(node("a"), node("b")).add(*claims)
        self.use = VolumeUse()

    def fits(self, volumes: PodVolumes, **more: Any) -> list[str]:
        found = plan(volumes, self.storage.catalogue)
        if found is None:
            return ["a", "b"]
        assert not isinstance(found, Unresolvable)
        self.think(**more)
        state, storage = State(found, self.use), self.storage
        return storage.names(VolumeRestrictions().feasible(state, storage.columns, storage.rows))

    def think(
        self, without: Iterable[str] = (), hypothetical_pods: Mapping[str, PodVolumes] | None = None
    ) -> None:
        """From now on these pods are gone, and these are on every node that is asked about."""
        self.storage.columns.absent = set(without)
        self.storage.columns.hypothetical_pods = {
            row: dict(hypothetical_pods or {}) for row in self.storage.rows.tolist()
        }

    def why(self, volumes: PodVolumes, **more: Any) -> dict[str, int]:
        assert self.fits(volumes, **more) == []
        found = plan(volumes, self.storage.catalogue)
        assert found is not None and not isinstance(found, Unresolvable)
        state, storage = State(found, self.use), self.storage
        return dict(VolumeRestrictions().reasons(state, storage.columns, storage.rows))


def test_a_disk_is_not_mounted_on_a_node_that_has_it() -> None:
    world = World()
    world.use.set("other", "a", disk())
    assert world.fits(disk()) == ["b"]


def test_a_disk_that_all_only_read_is_shared() -> None:
    world = World()
    world.use.set("other", "a", disk(readOnly=True))
    assert world.fits(disk(readOnly=True)) == ["a", "b"]


def test_a_disk_in_use_everywhere_is_told() -> None:
    world = World()
    world.use.set("1", "a", disk())
    world.use.set("2", "b", disk())
    assert world.why(disk()) == {DISK: 2}


def test_a_disk_is_there_for_the_pod_if_the_ones_that_have_it_went() -> None:
    world = World()
    world.use.set("other", "a", disk())
    assert world.fits(disk(), without={"other"}) == ["a", "b"]


def test_a_claim_for_one_pod_keeps_others_from_every_node() -> None:
    world = World(ALONE)
    world.use.set("other", "a", pod("c"))
    assert world.why(pod("c")) == {IN_USE: 2}


def test_a_claim_for_one_pod_is_there_for_the_next_if_that_one_went() -> None:
    world = World(ALONE)
    world.use.set("other", "a", pod("c"))
    assert world.fits(pod("c"), without={"other"}) == ["a", "b"]
    world.use.remove("other")
    assert world.fits(pod("c")) == ["a", "b"]


def test_a_claim_for_one_pod_is_there_for_the_next_if_the_node_of_that_one_is_not() -> None:
    world = World(ALONE)
    world.use.set("other", "never", pod("c"))
    assert world.fits(pod("c")) == ["a", "b"]
    world.use.set("another", "b", pod("c"))
    assert world.why(pod("c")) == {IN_USE: 2}
    world.storage.ledger.remove_node("b")
    assert world.fits(pod("c")) == ["a"]


def test_disks_and_claims_of_pods_that_are_to_come_are_theirs() -> None:
    world = World(ALONE)
    both = pod("c", v={"gcePersistentDisk": {"pdName": "d"}})
    assert world.fits(both, hypothetical_pods={"1": disk("other")}) == ["a", "b"]
    assert world.fits(both, hypothetical_pods={"1": disk()}) == []
    assert world.fits(both, hypothetical_pods={"1": pod("c")}) == []
    assert world.why(both, hypothetical_pods={"1": disk()}) == {DISK: 2}
    assert world.why(both, hypothetical_pods={"1": pod("c")}) == {IN_USE: 2}


def test_a_claim_that_several_pods_may_have_keeps_nobody_away() -> None:
    world = World(claim("c"))
    world.use.set("other", "a", pod("c"))
    assert plan(pod("c"), world.storage.catalogue) is None


def test_a_node_with_the_disk_counts_for_the_disk_where_the_claim_is_in_use_as_well() -> None:
    world = World(ALONE)
    world.use.set("1", "a", disk())
    world.use.set("2", "b", pod("c"))
    both = pod("c", v={"gcePersistentDisk": {"pdName": "d"}})
    assert world.why(both) == {DISK: 1, IN_USE: 1}


def test_a_claim_that_does_not_exist_refuses_every_node() -> None:
    assert plan(pod("c"), Storage().catalogue) == Unresolvable('persistentvolumeclaim "c" not found')


def test_an_ephemeral_claim_may_be_missing() -> None:
    assert plan(pod(ephemeral=("tmp",)), Storage().catalogue) is None


SHAPES = [pod("c1"), pod("c1", "c2"), disk("d1"), pod("c2", v={"gcePersistentDisk": {"pdName": "d1"}})]


class UseMachine(RuleBasedStateMachine):
    """What pods on nodes use, against a list of them."""

    def __init__(self) -> None:
        super().__init__()
        self.use = VolumeUse()
        self.pods: dict[str, tuple[str, PodVolumes]] = {}

    @rule(uid=st.sampled_from("123"), name=st.sampled_from("ab"), shape=st.integers(0, len(SHAPES) - 1))
    def pod_is_placed(self, uid: str, name: str, shape: int) -> None:
        before = self.use.version
        changed = self.pods.get(uid) != (name, SHAPES[shape])
        self.use.set(uid, name, SHAPES[shape])
        self.pods[uid] = (name, SHAPES[shape])
        assert (self.use.version > before) is changed

    @rule(uid=st.sampled_from("123"))
    def pod_goes(self, uid: str) -> None:
        before = self.use.version
        self.use.remove(uid)
        assert (self.use.version > before) is (self.pods.pop(uid, None) is not None)

    @invariant()
    def every_question_is_answered_as_the_list_would(self) -> None:
        assert self.use.check() == []
        for name in "ab":
            assert self.use.on(name) == {
                uid: volumes for uid, (there, volumes) in self.pods.items() if there == name
            }
            mounts = [
                len(volumes.claims) + len(volumes.in_tree)
                for there, volumes in self.pods.values()
                if there == name
            ]
            assert self.use.count(name) == sum(mounts)
        for key in (("default", "c1"), ("default", "c2")):
            assert self.use.users(key) == {
                uid: each for uid, each in self.pods.items() if key in each[1].keys
            }
        [wanted] = disk("d1").disks
        assert dict(self.use.disk_users(wanted)) == {
            uid: each for uid, each in self.pods.items() if wanted in each[1].disks
        }


TestUse = model_test(UseMachine, examples=50, steps=20)


@pytest.mark.parametrize("name", ["c1", "c2"])
def test_a_pod_that_is_placed_again_leaves_what_it_had(name: str) -> None:
    use = VolumeUse()
    use.set("1", "a", pod("c1", "c2"))
    use.set("1", "b", pod(name))
    assert not use.on("a")
    assert [key for key in ("c1", "c2") if use.users(("default", key))] == [name]


def test_a_node_that_goes_wakes_whom_its_pods_claim_was_kept_from() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    assert wakes(VolumeRestrictions(), Storage().pod(volumes=volumes), ev.NODE_DELETE, node("n"), None)
