"""Storage against plain pictures: the catalogue, what pods use, and what is kept of the volumes of nodes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_scheduler.engine.state.podvolumes import PodVolumes
from agent_scheduler.engine.state.volumeusage import VolumeUse
from agent_scheduler.engine.volumes import catalogue as catalogue_module
from agent_scheduler.engine.volumes.attached import Attached
from agent_scheduler.engine.volumes.catalogue import Catalogue
from agent_scheduler.engine.volumes.records import VolumeDemand, could_be_had
from tests.support.engine import node, put
from tests.support.stateful import model_test
from tests.support.storage import attachment, claim, csi_node, pod, ref, storage_class, volume

pytestmark = pytest.mark.promise("S8", "S13")

CLAIMS, VOLUMES, NODES, PODS = ["c1", "c2"], ["v1", "v2", "v3"], ["n1", "n2"], ["p1", "p2", "p3"]
CLAIM, VOLUME, NODE, POD = (st.sampled_from(each) for each in (CLAIMS, VOLUMES, NODES, PODS))


class CatalogueMachine(RuleBasedStateMachine):
    """Keeps `api` (object -> what it says), and `assumed` (object -> (what, holders, written version))."""

    def __init__(self) -> None:
        super().__init__()
        self.catalogue = Catalogue()
        self.api_volumes: dict[str, tuple[str | None, bool, str]] = {}
        self.api_claims: dict[str, str | None] = {}
        self.taken: dict[str, tuple[str, set[str], int | None]] = {}
        self.selected: dict[str, tuple[str, set[str], int | None]] = {}
        self.numbers = itertools.count(1)
        #: Versions run ahead of what the watch shows: some are of writes that it has yet to show.
        self.version = 0

    def meta(self, name: str) -> dict[str, str]:
        self.version = next(self.numbers)
        return {"resourceVersion": str(self.version), "uid": f"uid-{name}"}

    # ---- the watch

    @rule(name=VOLUME, owner=st.sampled_from([None, *CLAIMS]), size=st.sampled_from(["1Gi", "2Gi"]), ok=st.booleans())
    def volume_is_shown(self, name: str, owner: str | None, size: str, ok: bool) -> None:
        meta = self.meta(name)
        self.api_volumes[name] = (owner, ok, size)
        self._shown(self.taken, name)
        self.catalogue.set_volume(
            volume(
                name,
                size=size,
                claim=None if owner is None else ref(owner),
                phase="Available" if ok else "Released",
                meta=meta,
            )
        )

    @rule(name=CLAIM, node=st.sampled_from([None, *NODES]))
    def claim_is_shown(self, name: str, node: str | None) -> None:
        meta = self.meta(name)
        self.api_claims[name] = node
        self._shown(self.selected, name)
        self.catalogue.set_claim(claim(name, selected=node, meta=meta))

    def _shown(self, assumed: dict[str, tuple[str, set[str], int | None]], name: str) -> None:
        if name in assumed and self.version >= (assumed[name][2] or 0):
            del assumed[name]

    @rule(name=VOLUME)
    def volume_goes(self, name: str) -> None:
        self.api_volumes.pop(name, None)
        self.taken.pop(name, None)
        self.catalogue.delete_volume(name)

    @rule(name=CLAIM)
    def claim_goes(self, name: str) -> None:
        self.api_claims.pop(name, None)
        self.selected.pop(name, None)
        self.catalogue.delete_claim("default", name)

    @rule(name=VOLUME)
    def a_list_repeats_a_volume(self, name: str) -> None:
        if name in self.catalogue.volumes:
            assert not self.catalogue.set_volume(self.catalogue.volumes[name])

    # ---- decisions

    def owner_of(self, name: str) -> str | None:
        return self.taken[name][0] if name in self.taken else self.api_volumes[name][0]

    @rule(name=VOLUME, owner=CLAIM, pod=POD)
    def volume_is_taken(self, name: str, owner: str, pod: str) -> None:
        known, wants = self.catalogue.volumes.get(name), self.catalogue.claims.get(("default", owner))
        if known is None or wants is None:
            return
        before = self.catalogue.version
        possible = self.owner_of(name) in (None, owner)
        assert self.catalogue.take(known, wants, pod) is possible
        if possible and self.api_volumes[name][0] is None:
            new = name not in self.taken
            self.taken.setdefault(name, (owner, set(), None))[1].add(pod)
            assert (self.catalogue.version > before) is new
        else:
            assert self.catalogue.version == before

    @rule(name=CLAIM, node=NODE, pod=POD)
    def node_is_selected(self, name: str, node: str, pod: str) -> None:
        known = self.catalogue.claims.get(("default", name))
        if known is None:
            return
        current = self.selected[name][0] if name in self.selected else self.api_claims[name]
        possible = current in (None, node)
        assert self.catalogue.select(known, node, pod) is possible
        if possible and self.api_claims[name] is None:
            self.selected.setdefault(name, (node, set(), None))[1].add(pod)

    @rule(name=VOLUME, ahead=st.integers(0, 2))
    def volume_is_written(self, name: str, ahead: int) -> None:
        """The watch may be several events behind the answer."""
        version = self.version + 1 + ahead
        self.catalogue.taken.written(name, version)
        if name in self.taken:
            owner, holders, written = self.taken[name]
            self.taken[name] = (owner, holders, max(written or 0, version))

    @rule(pod=POD)
    def pod_lets_go(self, pod: str) -> None:
        before = self.catalogue.version
        freed = set()
        for assumed in (self.taken, self.selected):
            for name, (_, holders, written) in list(assumed.items()):
                if pod in holders:
                    holders.discard(pod)
                    if not holders and written is None:
                        del assumed[name]
                        freed.add(name)
        assert {each.name for each in self.catalogue.release(pod)} == freed
        assert (self.catalogue.version > before) is bool(freed)

    @rule(size=st.sampled_from([1 << 30, 2 << 30]), modes=st.sampled_from([(), ("ReadWriteOnce",), ("Other",)]))
    def volumes_are_looked_for(self, size: int, modes: tuple[str, ...]) -> None:
        """From now on what suffices is kept in step, which `check` looks at."""
        demand = VolumeDemand(size, "Filesystem", frozenset(modes), "", None)
        index = self.catalogue.free.index("slow", demand)
        expected = [each for each in self.catalogue.free.of("slow") if could_be_had(each, demand)]
        assert list(index.at(node("n"))) == expected

    # ---- what holds at every step

    @invariant()
    def nothing_contradicts_itself(self) -> None:
        assert self.catalogue.check() == []

    @invariant()
    def every_volume_is_for_the_claim_of_the_picture(self) -> None:
        assert set(self.catalogue.volumes) == set(self.api_volumes)
        for name, record in self.catalogue.volumes.items():
            owner = self.catalogue.claim_ref(record)
            assert (owner.name if owner else None) == self.owner_of(name)

    @invariant()
    def free_are_the_volumes_without_a_claim_smallest_first(self) -> None:
        free = [(size, name) for name, (_, ok, size) in self.api_volumes.items() if ok and self.owner_of(name) is None]
        assert [each.name for each in self.catalogue.free.of("slow")] == [name for _, name in sorted(free)]

    @invariant()
    def every_claim_has_the_node_of_the_picture(self) -> None:
        for (_, name), record in self.catalogue.claims.items():
            expected = self.selected[name][0] if name in self.selected else self.api_claims[name]
            assert self.catalogue.selected_node(record) == expected


TestCatalogue = model_test(CatalogueMachine, examples=110, steps=40)


PLACES, TWO_VOLUMES = ["a", "b"], ["v1", "v2"]
PLACE, ONE_VOLUME = (st.sampled_from(each) for each in (PLACES, TWO_VOLUMES))
PD: Any = {"gcePersistentDisk": {"pdName": "d1"}}
DISK = pod(v=PD)
SHAPES = [DISK, pod("c2", v=PD), pod("c1"), pod("c1", "c2"), pod("c2", x={"cinder": {"volumeID": "v1"}})]
SHAPE = st.sampled_from(SHAPES)


class AttachedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.catalogue, self.use = Catalogue(), VolumeUse()
        self.pods: dict[str, tuple[str, PodVolumes]] = {}
        for name in PLACES:
            put(self.catalogue, csi_node(name, ebs=1))
        self.attached = Attached(self.catalogue, self.use)

    @rule(name=CLAIM, volume_name=st.sampled_from([None, *TWO_VOLUMES]), other=st.booleans())
    def claim_is_shown(self, name: str, volume_name: str | None, other: bool) -> None:
        put(self.catalogue, claim(name, volume=volume_name, class_name="other" if other else "slow"))

    @rule(name=CLAIM)
    def claim_goes(self, name: str) -> None:
        self.catalogue.delete_claim("default", name)

    @rule(name=ONE_VOLUME, handle=st.sampled_from(["h1", "h2"]), in_tree=st.booleans())
    def volume_is_shown(self, name: str, handle: str, in_tree: bool) -> None:
        source: Any = {"cinder": {"volumeID": handle}}
        put(self.catalogue, volume(name, **(source if in_tree else {"csi": {"driver": "ebs", "volumeHandle": handle}})))

    @rule(name=ONE_VOLUME)
    def volume_goes(self, name: str) -> None:
        self.catalogue.delete_volume(name)

    @rule(name=st.sampled_from(["x", "y"]), node=PLACE, volume_name=st.sampled_from([None, *TWO_VOLUMES]))
    def volume_is_attached(self, name: str, node: str, volume_name: str | None) -> None:
        put(self.catalogue, attachment(name, node, volume_name))

    @rule(name=st.sampled_from(["x", "y"]))
    def volume_is_detached(self, name: str) -> None:
        self.catalogue.delete_attachment(name)

    @rule(name=st.sampled_from(["slow", "other"]), provisioner=st.sampled_from(["ebs", "efs", "kubernetes.io/cinder"]))
    def class_is_shown(self, name: str, provisioner: str) -> None:
        put(self.catalogue, storage_class(name, provisioner=provisioner))

    @rule(name=st.sampled_from(["slow", "other"]))
    def class_goes(self, name: str) -> None:
        self.catalogue.delete_class(name)

    @rule(uid=st.sampled_from("123"), name=PLACE, shape=SHAPE)
    def pod_is_placed(self, uid: str, name: str, shape: PodVolumes) -> None:
        before = self.use.version
        self.use.set(uid, name, shape)
        assert (self.use.version > before) is (self.pods.get(uid) != (name, shape))
        self.pods[uid] = name, shape

    @rule(uid=st.sampled_from("123"))
    def pod_goes(self, uid: str) -> None:
        before = self.use.version
        self.use.remove(uid)
        assert (self.use.version > before) is (self.pods.pop(uid, None) is not None)

    @invariant()
    def what_pods_use_is_as_a_list_of_them_would_say(self) -> None:
        assert self.use.check() == []
        for name in PLACES:
            there = {uid: volumes for uid, (place, volumes) in self.pods.items() if place == name}
            assert self.use.on(name) == there
            assert self.use.count(name) == sum(len(each.claims) + len(each.in_tree) for each in there.values())
        for key in (("default", "c1"), ("default", "c2")):
            assert self.use.users(key) == {uid: each for uid, each in self.pods.items() if key in each[1].keys}
        [wanted] = DISK.disks
        using = {uid: each for uid, each in self.pods.items() if wanted in each[1].disks}
        assert dict(self.use.disk_users(wanted)) == using

    @invariant()
    def it_says_what_would_be_worked_out_anew(self) -> None:
        anew = Attached(self.catalogue, self.use)
        for name in PLACES:
            assert self.attached.on(name) == anew.on(name)
            without = self.attached.on(name, without={"1"})
            there = {uid: each for uid, each in self.use.on(name).items() if uid != "1"}
            alone = VolumeUse()
            for uid, each in there.items():
                alone.set(uid, name, each)
            assert without == Attached(self.catalogue, alone).on(name)


TestAttached = model_test(AttachedMachine, examples=80, steps=40)


def test_a_node_is_sorted_once_until_something_of_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = AttachedMachine()
    for index in (1, 2):
        machine.claim_is_shown(f"c{index}", f"v{index}", False)
        machine.volume_is_shown(f"v{index}", f"h{index}", False)
    machine.pod_is_placed("1", "a", pod("c1"))
    machine.pod_is_placed("2", "b", pod("c2"))
    attached = machine.attached
    one, other = attached.on("a"), attached.on("b")
    machine.volume_is_shown("v2", "h1", False)
    assert attached.on("a") is one
    assert attached.on("b") is not other
    assert attached.on("b") == {"ebs": {"h1"}}


def test_more_changes_than_can_be_told_have_all_nodes_sorted_anew() -> None:
    machine = AttachedMachine()
    machine.claim_is_shown("c1", "v1", False)
    machine.volume_is_shown("v1", "h1", False)
    machine.pod_is_placed("1", "a", pod("c1"))
    assert machine.attached.on("a") == {"ebs": {"h1"}}
    machine.volume_is_shown("v1", "h2", False)
    for _ in range(catalogue_module.TOUCHES_KEPT):
        machine.claim_goes("c2")
    assert machine.attached.on("a") == {"ebs": {"h2"}}


def test_what_is_kept_of_nodes_that_are_gone_is_not_kept_for_ever() -> None:
    machine = AttachedMachine()
    for index in range(100):
        machine.pod_is_placed("1", f"n{index}", pod("c1"))
        machine.attached.on(f"n{index}")
    assert len(machine.attached._kept) <= 2 * len(PLACES) + 1
