"""VolumeRestrictions: disks that a node has once, claims that one pod has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.plugins.volume_restrictions import CLAIM_IN_USE, DISK_CONFLICT, VolumeRestrictions
from agent_scheduler.engine.state.podvolumes import PodVolumes
from agent_scheduler.engine.state.volumeusage import VolumeUse
from tests.support.engine import World, node, wakes
from tests.support.stateful import model_test
from tests.support.storage import claim, pod

from .volume_world import Users, VolumeWorld

ALONE = claim("c", accessModes=["ReadWriteOncePod"])


def disk(name: str = "d", **more: Any) -> PodVolumes:
    return pod(v={"gcePersistentDisk": {"pdName": name, **more}})


def world(*objects: Any, used: Users | None = None) -> VolumeWorld:
    return VolumeWorld(VolumeRestrictions(), *(objects or (ALONE,)), used=used)


ANYWHERE = ["a", "b"]
CLAIM_AND_DISK = pod("c", v={"gcePersistentDisk": {"pdName": "d"}})


@pytest.mark.parametrize(
    ("used", "asked", "more", "expected"),
    [
        ({"1": ("a", disk())}, disk(), {}, ["b"]),
        ({"1": ("a", disk())}, disk(), {"without": {"1"}}, ANYWHERE),
        ({"1": ("a", disk()), "2": ("b", disk())}, disk(), {}, {DISK_CONFLICT: 2}),
        ({"1": ("a", disk()), "2": ("b", disk())}, disk(), {"without": {"2"}}, ["b"]),
        # A disk that all only read is shared.
        ({"1": ("a", disk(readOnly=True))}, disk(readOnly=True), {}, ANYWHERE),
        # A claim for one pod keeps others from every node, until that one goes or its node does.
        ({"1": ("a", pod("c"))}, pod("c"), {}, {CLAIM_IN_USE: 2}),
        ({"1": ("a", pod("c"))}, pod("c"), {"without": {"1"}}, ANYWHERE),
        ({"1": ("a", pod("c")), "2": ("b", pod("c"))}, pod("c"), {"without": {"1"}}, {CLAIM_IN_USE: 2}),
        ({"1": ("never", pod("c"))}, pod("c"), {}, ANYWHERE),
        # Pods that are to come have their disks and claims already.
        ({}, CLAIM_AND_DISK, {"coming": {"1": disk("other")}}, ANYWHERE),
        ({}, CLAIM_AND_DISK, {"coming": {"1": disk()}}, {DISK_CONFLICT: 2}),
        ({}, CLAIM_AND_DISK, {"coming": {"1": pod("c")}}, {CLAIM_IN_USE: 2}),
        # The disk is named first, where both hold.
        (
            {"1": ("a", disk()), "2": ("b", pod("c"))},
            CLAIM_AND_DISK,
            {},
            {DISK_CONFLICT: 1, CLAIM_IN_USE: 1},
        ),
        # An ephemeral claim may be missing, and no other.
        ({}, pod(ephemeral=("tmp",)), {}, ANYWHERE),
        ({}, pod("x"), {}, 'persistentvolumeclaim "x" not found'),
    ],
)
def test_a_disk_is_on_a_node_once_and_a_claim_for_one_pod_in_the_cluster(
    used: Users, asked: PodVolumes, more: Any, expected: object
) -> None:
    assert world(used=used).verdict(asked, **more) == expected


def test_the_reasons_are_kube_schedulers() -> None:
    assert DISK_CONFLICT == "node(s) had no available disk"
    assert CLAIM_IN_USE == (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    )


def test_a_claim_for_one_pod_is_there_for_the_next_once_that_one_or_its_node_is_gone() -> None:
    here = world(used={"1": ("a", pod("c")), "2": ("b", pod("c"))})
    here.use.remove("1")
    assert here.verdict(pod("c")) == {CLAIM_IN_USE: 2}
    here.ledger.remove_node("b")
    assert here.verdict(pod("c")) == ["a"]


def test_a_claim_that_several_pods_may_have_keeps_nobody_away() -> None:
    shared = world(claim("c"), used={"1": ("a", pod("c"))})
    assert shared.verdict(pod("c")) == ANYWHERE


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


def test_a_node_that_goes_wakes_whom_its_pods_claim_was_kept_from() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    assert wakes(VolumeRestrictions(), World().pod(volumes=volumes), ev.NODE_DELETE, node("n"), None)
