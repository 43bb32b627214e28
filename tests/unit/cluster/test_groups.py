"""Groups, their members, queues and classes, as the watches bring them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.cluster.groups import Groups
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.fastpath import checking
from agent_scheduler.objects import batch
from tests.support import objects
from tests.support.batched import add_group, add_queue, install
from tests.support.embedded import PODS, EmbeddedCluster, embedded_cluster, until
from tests.support.running import Running, scheduling

G = GroupKey("default", "g")


class Told:
    """What a subscriber was told, in order."""

    def __init__(self) -> None:
        self.changes: list[object] = []

    def connect(self, groups: Groups) -> None:
        signals, add = groups.signals, self.changes.append
        signals.changed.connect(add)
        signals.queue_changed.connect(lambda name: add(f"queue {name}"))
        signals.priority_classes_changed.connect(lambda: add("priority classes"))
        signals.quotas_changed.connect(lambda namespace: add(f"quotas {namespace}"))

    def take(self) -> list[object]:
        changes = [*self.changes]
        self.changes.clear()
        return changes


def groups_with(told: Told) -> Groups:
    groups = Groups(schedulers=("volcano",))
    told.connect(groups)
    return groups


READ = PodReader(PodClasses())


def pod(uid: str, group: str = "", *, native: str = "", phase: str = "Pending", of: str = "volcano") -> PodInfo:
    spec = {"schedulingGroup": {"podGroupName": native}} if native else {}
    about = {"namespace": "default", "uid": uid, "group": group, "phase": phase}
    return READ(msgspec.json.encode(objects.pod(uid, scheduler=of, **about, **spec)))


def metadata(name: str, uid: str = "u") -> Any:
    return msgspec.convert({"name": name, "namespace": "default", "uid": uid}, batch.Metadata)


def test_a_pod_may_come_before_its_group_and_outlive_it() -> None:
    told = Told()
    groups = groups_with(told)
    groups.set_pod(pod("a", "g"))
    assert groups.groups[G].object is None
    found = batch.PodGroup(metadata("g"))
    groups.set_group(found)
    assert (groups.groups[G].object, list(groups.groups[G].members)) == (found, ["a"])
    groups.delete_group(found)
    assert groups.groups[G].object is None
    groups.delete_pod("a")
    assert (dict(groups.groups), told.take()) == ({}, [G] * 4)


def test_a_member_that_has_ended_is_counted_until_it_is_deleted() -> None:
    groups = groups_with(Told())
    groups.set_pod(pod("a", "g", phase="Succeeded"))
    info = groups.groups[G].members["a"].batch
    assert info is not None and info.phase == "Succeeded"
    groups.delete_pod("a")
    assert G not in groups.groups


def test_a_pod_that_comes_to_name_a_group_leaves_the_bare_ones_and_its_former_group() -> None:
    told = Told()
    groups = groups_with(told)
    groups.set_pod(pod("a"))
    assert list(groups.bare) == ["a"]
    groups.set_pod(pod("a", "g"))
    assert (list(groups.bare), told.take()) == ([], [G])
    groups.set_pod(pod("a", native="g"))
    assert list(groups.groups) == [GroupKey("default", "g", native=True)]
    assert told.take() == [G, GroupKey("default", "g", native=True)]


def test_a_pod_of_another_scheduler_without_a_group_is_no_concern_of_it() -> None:
    told = Told()
    groups = groups_with(told)
    groups.set_pod(pod("a", of="default-scheduler"))
    groups.set_pod(pod("b", phase="Failed"))
    groups.delete_pod("a")
    assert (dict(groups.groups), dict(groups.bare), told.take()) == ({}, {}, [])


def test_the_deletion_of_an_object_that_was_replaced_is_no_news() -> None:
    told = Told()
    groups = groups_with(told)
    groups.set_group(batch.PodGroup(metadata("g", "new")))
    groups.set_queue(batch.Queue(metadata("q", "new")))
    groups.set_priority_class(batch.PriorityClass(metadata("p", "new"), value=5))
    groups.set_quota(batch.ResourceQuota(metadata("r", "new")))
    told.take()
    groups.delete_group(batch.PodGroup(metadata("g", "old")))
    groups.delete_queue(batch.Queue(metadata("q", "old")))
    groups.delete_priority_class(batch.PriorityClass(metadata("p", "old")))
    groups.delete_quota(batch.ResourceQuota(metadata("r", "old")))
    assert told.take() == []
    assert (list(groups.groups), list(groups.queues), list(groups.priority_classes)) == ([G], ["q"], ["p"])
    assert len(list(groups.quotas("default"))) == 1


GROUPS = st.sampled_from(["", "g", "h"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.sampled_from("abc"), GROUPS, st.sampled_from(["Pending", "Succeeded"])),
        st.tuples(st.just("gone"), st.sampled_from("abc")),
        st.tuples(st.just("group"), st.sampled_from("gh"), st.booleans()),
    ),
    max_size=30,
)


@given(STEPS)
def test_groups_are_what_the_objects_say_whatever_came_before(steps: list[tuple[Any, ...]]) -> None:
    groups = groups_with(Told())
    pods: dict[str, PodInfo] = {}
    objects: set[str] = set()
    for step in steps:
        if step[0] == "pod":
            _, uid, group, phase = step
            pods[uid] = pod(uid, group, phase=phase)
            groups.set_pod(pods[uid])
        elif step[0] == "gone":
            pods.pop(step[1], None)
            groups.delete_pod(step[1])
        elif step[2]:
            objects.add(step[1])
            groups.set_group(batch.PodGroup(metadata(step[1])))
        else:
            objects.discard(step[1])
            groups.delete_group(batch.PodGroup(metadata(step[1])))
    named = {uid: each.batch.group.name for uid, each in pods.items() if each.batch and each.batch.group}
    assert {key.name for key in groups.groups} == objects | set(named.values())
    for key, group in groups.groups.items():
        assert (group.object is not None) == (key.name in objects)
        assert group.members == {uid: pods[uid] for uid, name in named.items() if name == key.name}
    bare = {uid: each for uid, each in pods.items() if uid not in named and not each.finished}
    assert groups.bare == bare


@asynccontextmanager
async def watched(*, kinds: bool = True) -> AsyncIterator[tuple[EmbeddedCluster, Groups, Running]]:
    """A fast path that keeps groups from its own watches; a cluster with, or without, their kinds."""
    groups = groups_with(Told())
    async with embedded_cluster() as cluster:
        if kinds:
            await install(cluster)
        await cluster.add_node("n1")
        async with scheduling(cluster.transport, groups=groups) as running:
            yield cluster, groups, running


async def add_member(cluster: EmbeddedCluster, name: str) -> None:
    await cluster.ask("POST", PODS, objects.pod(name, cpu="1", group="g", scheduler="volcano"))


async def test_members_stay_when_they_end_and_their_room_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "SETTLES", 0.05)
    async with watched() as (cluster, groups, running):
        await add_queue(cluster, "q")
        await add_group(cluster, "g", minMember=2, queue="q")
        for name in ("a", "b"):
            await add_member(cluster, name)
            await cluster.bind(name, "n1")
        await cluster.add_pod("plain", scheduler="another")
        await cluster.ask("DELETE", f"{PODS}/plain", {"gracePeriodSeconds": 0})
        await until(lambda: len(running.fast_path.ledger.placements) == 2)
        for phase in ("Running", "Succeeded"):
            await cluster.merge(f"{PODS}/a/status", {"status": {"phase": phase}})
        await until(lambda: len(running.fast_path.ledger.placements) == 1)
        members = groups.groups[G].members.values()
        assert {each.name: each.batch.phase for each in members if each.batch} == {"a": "Succeeded", "b": "Pending"}
        assert groups.queues["q"].spec.weight == 1
        assert isinstance(groups.groups[G].object, batch.PodGroup)
        report = await running.fast_path.selfcheck.run()
        assert (report.differences, report.unsettled, report.not_listed) == ((), (), {})
        await cluster.ask("DELETE", f"{PODS}/a")
        await until(lambda: len(groups.groups[G].members) == 1)


async def test_a_server_without_the_kinds_has_no_groups_and_keeps_nobody_waiting() -> None:
    async with watched(kinds=False) as (cluster, groups, running):
        await cluster.add_pod("agent")
        await until(lambda: running.fast_path.ledger.placements)
        assert (dict(groups.queues), dict(groups.groups)) == ({}, {})
        await install(cluster)
        await add_queue(cluster, "late")
        await until(lambda: "late" in groups.queues, seconds=60)
