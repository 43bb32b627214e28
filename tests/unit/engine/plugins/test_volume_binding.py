"""The volume plugins as a profile has them: what they read, what they keep, and what they say of victims."""

from __future__ import annotations

from typing import Any, cast

from agent_scheduler.engine.decide.trial import START, Trial, WhatIf
from agent_scheduler.engine.framework.points import PluginSet
from agent_scheduler.engine.framework.prebind import Writes
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.podvolumes import Recogniser
from agent_scheduler.engine.state.recount import contradictions
from agent_scheduler.engine.volumes.catalogue import Catalogue
from agent_scheduler.engine.volumes.reservation import unreserve
from tests.support.engine import World as Storage
from tests.support.engine import node, pod_json, read_pod
from tests.support.storage import claim, csi_node, ref, spec, storage_class, volume

PROFILE = build_profile(ProfileSpec(scheduler_name="agent-scheduler"))
TOKEN = (
    b'[{"name":"kube-api-access-%s","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}%s]'
)


class World(Storage):
    """With pods that mount claims."""

    def mounting(self, *claims: str, name: str = "", **more: Any) -> PodInfo:
        volumes = [{"name": f"v-{each}", "persistentVolumeClaim": {"claimName": each}} for each in claims]
        return self.pod(
            name, volumes=[*volumes, *({"name": each, **source} for each, source in more.items())]
        )

    def bound(
        self, name: str, *, meta: Any = None, modes: tuple[str, ...] = ("ReadWriteOnce",), **of: Any
    ) -> None:
        """A claim with its volume."""
        self.add(
            volume(f"pv-{name}", claim=ref(name), phase="Bound", meta=meta, **of),
            claim(name, volume=f"pv-{name}", bound=True, accessModes=list(modes)),
        )


def test_pods_that_mount_the_same_claims_share_a_class_and_others_do_not() -> None:
    world = World()
    assert world.mounting("data").cls is world.mounting("data").cls
    assert world.mounting("data").cls is not world.mounting("other").cls
    assert world.mounting().cls is world.mounting(scratch={"emptyDir": {}}).cls


def test_a_pod_with_a_claim_of_its_own_has_a_class_of_its_own() -> None:
    world = World()
    scratch = {"ephemeral": {"volumeClaimTemplate": {}}}
    assert world.mounting(name="p", scratch=scratch).cls is not world.mounting(name="q", scratch=scratch).cls
    assert world.mounting(name="p", scratch=scratch).cls.volumes.keys == {("default", "p-scratch")}  # type: ignore[union-attr]


def test_volumes_that_cannot_be_read_are_named() -> None:
    body = pod_json()
    body["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": 5}}]
    assert "spec.volumes" in read_pod(body, PodClasses()).cls.error


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
    for pod in (rival, other):
        assert world.feasible(pod) == {"a"}
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
