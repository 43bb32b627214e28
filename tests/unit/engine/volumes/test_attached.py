"""What is kept of the volumes of nodes says what would be worked out anew."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_scheduler.engine.state.podvolumes import PodVolumes
from agent_scheduler.engine.state.volumeusage import VolumeUse
from agent_scheduler.engine.volumes import catalogue as catalogue_module
from agent_scheduler.engine.volumes.attached import Attached
from agent_scheduler.engine.volumes.catalogue import Catalogue
from tests.support.engine import put
from tests.support.stateful import model_test
from tests.support.storage import attachment, claim, csi_node, pod, storage_class, volume

NODES, CLAIMS, VOLUMES = ["a", "b"], ["c1", "c2"], ["v1", "v2"]
NODE, CLAIM, VOLUME = (st.sampled_from(each) for each in (NODES, CLAIMS, VOLUMES))
SHAPES = [pod("c1"), pod("c1", "c2"), pod("c2", x={"cinder": {"volumeID": "v1"}})]
SHAPE = st.sampled_from(SHAPES)


class AttachedMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.catalogue, self.use = Catalogue(), VolumeUse()
        for name in NODES:
            put(self.catalogue, csi_node(name, ebs=1))
        self.attached = Attached(self.catalogue, self.use)

    @rule(name=CLAIM, volume_name=st.sampled_from([None, *VOLUMES]), other=st.booleans())
    def claim_is_shown(self, name: str, volume_name: str | None, other: bool) -> None:
        put(self.catalogue, claim(name, volume=volume_name, class_name="other" if other else "slow"))

    @rule(name=CLAIM)
    def claim_goes(self, name: str) -> None:
        self.catalogue.delete_claim("default", name)

    @rule(name=VOLUME, handle=st.sampled_from(["h1", "h2"]), in_tree=st.booleans())
    def volume_is_shown(self, name: str, handle: str, in_tree: bool) -> None:
        source: Any = {"cinder": {"volumeID": handle}}
        put(
            self.catalogue,
            volume(name, **(source if in_tree else {"csi": {"driver": "ebs", "volumeHandle": handle}})),
        )

    @rule(name=VOLUME)
    def volume_goes(self, name: str) -> None:
        self.catalogue.delete_volume(name)

    @rule(name=st.sampled_from(["x", "y"]), node=NODE, volume_name=st.sampled_from([None, *VOLUMES]))
    def volume_is_attached(self, name: str, node: str, volume_name: str | None) -> None:
        put(self.catalogue, attachment(name, node, volume_name))

    @rule(name=st.sampled_from(["x", "y"]))
    def volume_is_detached(self, name: str) -> None:
        self.catalogue.delete_attachment(name)

    @rule(
        name=st.sampled_from(["slow", "other"]),
        provisioner=st.sampled_from(["ebs", "efs", "kubernetes.io/cinder"]),
    )
    def class_is_shown(self, name: str, provisioner: str) -> None:
        put(self.catalogue, storage_class(name, provisioner=provisioner))

    @rule(name=st.sampled_from(["slow", "other"]))
    def class_goes(self, name: str) -> None:
        self.catalogue.delete_class(name)

    @rule(uid=st.sampled_from("123"), name=NODE, shape=SHAPE)
    def pod_is_placed(self, uid: str, name: str, shape: PodVolumes) -> None:
        self.use.set(uid, name, shape)

    @rule(uid=st.sampled_from("123"))
    def pod_goes(self, uid: str) -> None:
        self.use.remove(uid)

    @invariant()
    def it_says_what_would_be_worked_out_anew(self) -> None:
        anew = Attached(self.catalogue, self.use)
        for name in NODES:
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
    assert len(machine.attached._kept) <= 2 * len(NODES) + 1
