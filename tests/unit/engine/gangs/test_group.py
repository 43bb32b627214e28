"""What a group needs to run, from whichever object it comes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_scheduler.engine.gangs.group import PodGroupInfo, effective_minimum, of_native, of_pod, of_pod_group
from agent_scheduler.engine.queues.asks import needed
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podspec import SpecError
from agent_scheduler.objects import batch
from agent_scheduler.objects.wire import Metadata
from tests.support import objects
from tests.support.engine import World


def pod_group(waiting: str = "", **spec: Any) -> PodGroupInfo:
    """`waiting`: the roles whose members are created later."""
    body = objects.pod_group("g", namespace="ns", uid="u", annotations={batch.WAITING_ROLES: waiting}, **spec)
    return of_pod_group(msgspec.convert(body, batch.PodGroup))


@pytest.mark.parametrize("levels", [10, 2_000, 100_000])
def test_parts_of_quotas_that_are_nested_too_deeply_are_none(levels: int) -> None:
    text = f'[{{"resources":{{}},"x":{"[" * levels}{"]" * levels}}}]'
    body = objects.pod_group("g", annotations={batch.QUOTA_PARTS: text})
    assert len(of_pod_group(msgspec.convert(body, batch.PodGroup)).quota_parts) == (levels == 10)


EXISTS = {"key": "a", "operator": "Exists"}


def policies(number: int) -> list[Any]:
    return [
        {"name": f"p{each}", "matchLabelKeys": ["part"], "labelSelector": {"matchLabels": {"role": f"r{each}"}}}
        for each in range(number)
    ]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"minTaskMember": {f"r{each}": 1 for each in range(1_000)}}, ""),
        ({"minTaskMember": {f"r{each}": 1 for each in range(1_001)}}, "spec.minTaskMember: found 1001 entries"),
        ({"subGroupPolicy": policies(1_000)}, ""),
        ({"subGroupPolicy": policies(1_001)}, "spec.subGroupPolicy: found 1001 entries"),
        ({"subGroupPolicy": [{"name": "p", "matchLabelKeys": ["part"]}] * 64}, ""),
        ({"subGroupPolicy": [{"name": "p", "matchLabelKeys": ["part"]}] * 65}, "found 65 for the same label"),
        ({"subGroupPolicy": policies(1) * 65}, "found 65 for the same label"),
        (
            {"subGroupPolicy": [{"name": "p", "matchLabelKeys": [f"k{number}" for number in range(17)]}]},
            r"spec\.subGroupPolicy\[0\]: found 17 label keys and requirements; allowed: at most 16",
        ),
        (
            {"subGroupPolicy": [{"name": "p", "labelSelector": {"matchExpressions": [EXISTS] * 17}}]},
            "found 17 label keys",
        ),
    ],
)
def test_a_group_with_too_many_roles_or_policies_is_invalid(spec: dict[str, Any], problem: str) -> None:
    if not problem:
        pod_group(**spec)
        return
    with pytest.raises(SpecError, match=problem):
        pod_group(**spec)


ROLES, STAGES = {"master": 1, "worker": 2}, {"master": 1, "worker": 4}


@pytest.mark.parametrize(
    ("minimum", "roles", "waiting", "present", "expected"),
    [
        (3, None, "", (), (3, {})),
        # Minimums of roles count where the group needs at least their sum; if it needs fewer, it means any members.
        (3, ROLES, "", (), (3, ROLES)),
        (2, ROLES, "", (), (2, {})),
        # Members that are created later are not waited for.
        (5, STAGES, "worker", (), (1, {"master": 1})),
        (6, STAGES, "worker", ("master",), (2, {"master": 1})),
        # They count once there are any, and when their role waits no longer.
        (5, STAGES, "worker", ("master", "worker"), (5, STAGES)),
        (5, STAGES, "", (), (5, STAGES)),
        # A group that means any members asks for as many as there can be at most.
        (3, STAGES, "worker", (), (1, {})),
        (3, STAGES, "worker", ("worker",), (3, {})),
        (1, STAGES, "worker", (), (1, {})),
    ],
)
def test_a_group_needs_its_minimum_and_those_of_its_roles_that_can_be_there(
    minimum: int, roles: Any, waiting: str, present: tuple[str, ...], expected: Any
) -> None:
    found = pod_group(waiting, minimum=minimum, **({"minTaskMember": roles} if roles else {}))
    assert effective_minimum(found, set(present)) == expected


@pytest.mark.parametrize(
    ("more", "of_roles", "first", "rest"),
    [
        (2, {}, "m1 m2", "m3 w1 w2 w3"),
        (3, {"w": 1}, "w1 m1 m2", "m3 w2 w3"),
        (3, {"w": 2, "m": 1}, "m1 w1 w2", "m2 m3 w3"),
        # Roles that lack more than the gang does are there all the same, and one that has nobody takes no place.
        (1, {"w": 3}, "w1 w2 w3", "m1 m2 m3"),
        (1, {"x": 2}, "m1", "m2 m3 w1 w2 w3"),
    ],
)
def test_those_that_a_gang_lacks_are_first_those_of_its_roles(
    more: int, of_roles: dict[str, int], first: str, rest: str
) -> None:
    members = ["m1", "m2", "m3", "w1", "w2", "w3"]
    found = needed(members, role_of=lambda member: member[0], more=more, of_roles=of_roles)
    assert found == (first.split(), rest.split())


def test_a_group_that_names_no_queue_is_of_the_default_one() -> None:
    assert pod_group().queue == "default" and pod_group(queue="q").queue == "q"
    assert of_pod_group(batch.PodGroup(metadata=Metadata()), queue="other").queue == "other"


def test_minimum_resources_are_told_apart_from_none() -> None:
    assert pod_group().min_resources is None
    assert pod_group(minResources={"cpu": "2", "count/pods": "4"}).min_resources == {"cpu": 2000}
    assert pod_group(minResources={"count/pods": "4"}).listed_resources == {"count/pods": "4"}


OF_A = {"labelSelector": {"matchLabels": {"app": "a"}}}
KEYS = {"matchLabelKeys": ["part"]}


@pytest.mark.parametrize(
    ("policy", "size", "minimum", "values"),
    [
        # Members that share labels are one sub-group.
        ({"subGroupSize": 2, "minSubGroups": 1, **KEYS}, 2, 1, [("0",), (), ("1",)]),
        # Without keys there is none, and a policy speaks of the pods that it selects.
        (OF_A, 1, 0, [(), (), ()]),
        ({**OF_A, **KEYS}, 1, 0, [(), (), ("1",)]),
    ],
)
def test_a_policy_puts_members_into_sub_groups(
    policy: dict[str, Any], size: int, minimum: int, values: list[tuple[str, ...]]
) -> None:
    (sub_group,) = pod_group(subGroupPolicy=[{"name": "part", **policy}]).sub_groups
    assert (sub_group.name, sub_group.size, sub_group.minimum) == ("part", size, minimum)
    labels = ({"part": "0", "app": "b"}, {"part": ""}, {"part": "1", "app": "a"})
    assert [sub_group.values_of(each) for each in labels] == values
    assert sub_group.values_of({}) == ()


def test_a_member_that_lacks_one_of_several_labels_is_in_no_sub_group() -> None:
    policy = {"name": "part", "subGroupSize": 2, "minSubGroups": 1, "matchLabelKeys": ["part", "rack", "row"]}
    (sub_group,) = pod_group(subGroupPolicy=[policy]).sub_groups
    assert sub_group.values_of({"part": "0", "rack": "1", "row": "2"}) == ("0", "1", "2")
    assert sub_group.values_of({"part": "0", "row": "2"}) == ()


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
