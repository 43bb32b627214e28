"""Kubernetes' own PodGroups, and who belongs to them."""

from __future__ import annotations

from typing import Any

import msgspec

from agent_scheduler.engine.gangs.native import NativeGroup, NativeGroups, native_key
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects.batch import NativePodGroup
from tests.support import objects
from tests.support.engine import read_pod

KEY = GroupKey("team", "gang", native=True)
_CLASSES = PodClasses()


def group(minimum: int | None = 2, *, uid: str = "g", **status: Any) -> NativeGroup:
    """`minimum`: None for a group that is no gang."""
    found = objects.native_group("gang", minimum or 0, namespace="team", uid=uid, version=1)
    if minimum is None:
        found["spec"]["schedulingPolicy"] = {"basic": {}}
    return NativeGroup(msgspec.convert({**found, "status": status}, NativePodGroup))


def member(name: str, group_name: str | None = "gang", **spec: Any) -> PodInfo:
    if group_name is not None:
        spec["schedulingGroup"] = {"podGroupName": group_name}
    return read_pod(objects.pod(name, namespace="team", uid=name, version=1, **spec), _CLASSES)


def test_a_gang_needs_its_minimum_and_a_basic_group_one() -> None:
    assert (group(3).minimum, group(None).minimum) == (3, 1)
    assert group().key == native_key(member("a")) == KEY
    assert native_key(member("alone", None)) is None


def test_the_condition_is_that_of_being_scheduled() -> None:
    scheduled = {"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled"}
    found = group(conditions=[{"type": "DisruptionTarget", "status": "False"}, scheduled])
    assert group().condition is None
    assert found.condition is not None and found.condition.status == "True"


def test_members_are_known_before_their_group_is_and_after_it_went() -> None:
    groups = NativeGroups()
    assert [groups.see(member(name)) for name in ("a", "b", "a")] == [True, True, False]
    assert not groups.has_enough(KEY), "there is no group"
    assert groups.set(group(2)) and groups.has_enough(KEY)
    groups.delete(group(2))
    assert set(groups.members(KEY)) == {"a", "b"} and not groups.has_enough(KEY)


def test_a_group_has_enough_members_while_they_exist() -> None:
    groups = NativeGroups()
    groups.set(group(2))
    mates = [member("a"), member("b", nodeName="n")]
    for each in mates:
        groups.see(each)
    assert groups.has_enough(KEY)
    groups.drop(mates[1])
    groups.drop(mates[1])
    assert not groups.has_enough(KEY) and set(groups.members(KEY)) == {"a"}
    groups.drop(mates[0])
    assert not groups.members(KEY)
    assert not groups.see(member("alone", None))


def test_only_what_decisions_read_is_a_change_of_a_group() -> None:
    groups = NativeGroups()
    said = {"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable"}
    changes = [group(2), group(2, conditions=[said]), group(3), group(3, uid="again")]
    assert [groups.set(each) for each in changes] == [True, False, True, True]
    assert len(groups) == 1


def test_a_late_deletion_does_not_take_the_group_of_the_same_name_away() -> None:
    groups = NativeGroups()
    groups.set(group(uid="new"))
    groups.delete(group(uid="old"))
    assert groups.get(KEY) is not None
