"""What a group needs to run, from whichever object it comes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.gangs.group import (
    Group,
    SubGroup,
    effective_minimum,
    of_native,
    of_pod,
    of_pod_group,
)
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podspec import SpecError
from agent_scheduler.objects import batch
from agent_scheduler.objects.wire import Metadata
from tests.support.engine import World


def pod_group(**spec: Any) -> Group:
    metadata = {"name": "g", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return of_pod_group(msgspec.convert({"metadata": metadata, "spec": spec}, batch.PodGroup))


def test_a_group_without_roles_needs_its_minimum() -> None:
    assert effective_minimum(pod_group(minMember=3)) == (3, {})


def test_minimums_of_roles_count_where_the_group_needs_at_least_their_sum() -> None:
    roles = {"master": 1, "worker": 2}
    assert effective_minimum(pod_group(minMember=3, minTaskMember=roles)) == (3, roles)


def test_a_group_that_needs_fewer_members_than_its_roles_means_any_of_them() -> None:
    assert effective_minimum(pod_group(minMember=2, minTaskMember={"master": 1, "worker": 2})) == (2, {})


STAGES = {"master": 1, "worker": 4}


def staged(minimum: int, waiting: str) -> Group:
    metadata = {"name": "g", "namespace": "ns", "annotations": {batch.WAITING_ROLES: waiting}}
    spec = {"minMember": minimum, "minTaskMember": STAGES}
    return of_pod_group(msgspec.convert({"metadata": metadata, "spec": spec}, batch.PodGroup))


def test_nobody_waits_for_members_that_are_created_later() -> None:
    assert effective_minimum(staged(5, "worker")) == (1, {"master": 1})
    assert effective_minimum(staged(6, "worker"), {"master"}) == (2, {"master": 1})


def test_members_count_once_there_are_any_and_when_their_role_waits_no_more() -> None:
    assert effective_minimum(staged(5, "worker"), {"master", "worker"}) == (5, STAGES)
    assert effective_minimum(staged(5, "")) == (5, STAGES)


def test_a_group_that_means_any_members_asks_for_no_more_than_there_can_be() -> None:
    assert effective_minimum(staged(3, "worker")) == (1, {})
    assert effective_minimum(staged(3, "worker"), {"worker"}) == (3, {})
    assert effective_minimum(staged(1, "worker")) == (1, {})


def test_a_group_that_names_no_queue_is_of_the_default_one() -> None:
    assert pod_group().queue == "default"
    assert of_pod_group(batch.PodGroup(metadata=Metadata()), queue="other").queue == "other"


def test_minimum_resources_are_told_apart_from_none() -> None:
    assert pod_group().min_resources is None
    assert pod_group(minResources={"cpu": "2", "count/pods": "4"}).min_resources == {"cpu": 2000}
    assert pod_group(minResources={"count/pods": "4"}).listed_resources == {"count/pods": "4"}


def test_members_that_share_labels_are_one_sub_group() -> None:
    policy = {"name": "part", "subGroupSize": 2, "minSubGroups": 1, "matchLabelKeys": ["part"]}
    (sub_group,) = pod_group(subGroupPolicy=[policy]).sub_groups
    assert sub_group == SubGroup("part", 2, 1, None, ("part",))
    assert sub_group.values_of({"part": "0"}) == ("0",)
    assert sub_group.values_of({"part": ""}) == ()
    assert sub_group.values_of({}) == ()


def test_a_policy_without_keys_has_no_sub_groups() -> None:
    policy = {"name": "part", "labelSelector": {"matchLabels": {"app": "a"}}}
    (sub_group,) = pod_group(subGroupPolicy=[policy]).sub_groups
    assert (sub_group.size, sub_group.minimum) == (1, 0)
    assert sub_group.values_of({"app": "a"}) == ()


def test_a_policy_speaks_of_the_pods_that_it_selects() -> None:
    policy = {"name": "part", "labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["part"]}
    (sub_group,) = pod_group(subGroupPolicy=[policy]).sub_groups
    assert sub_group.values_of({"app": "a", "part": "1"}) == ("1",)
    assert sub_group.values_of({"app": "b", "part": "1"}) == ()


def test_a_selector_without_meaning_is_told_with_its_place() -> None:
    policy = {"name": "part", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}
    with pytest.raises(SpecError, match=r"spec\.subGroupPolicy\[0\]\.labelSelector\.matchExpressions\[0\]"):
        pod_group(subGroupPolicy=[policy])


@pytest.mark.parametrize(("policy", "minimum"), [({"gang": {"minCount": 4}}, 4), ({"basic": {}}, 1)])
def test_a_native_group_needs_what_its_policy_says(policy: dict[str, Any], minimum: int) -> None:
    body = {"metadata": {"name": "g", "namespace": "ns"}, "spec": {"schedulingPolicy": policy}}
    group = of_native(msgspec.convert(body, batch.NativePodGroup))
    assert effective_minimum(group) == (minimum, {})
    assert group.key == GroupKey("ns", "g", native=True)


def test_a_pod_without_a_group_is_a_group_of_one() -> None:
    pod = World().pod()
    group = of_pod(pod)
    assert effective_minimum(group) == (1, {})
    assert group.key == GroupKey("default", pod.uid)
    assert group.queue == "default"
