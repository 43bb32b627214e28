"""What the PodGroup of a pod says that names none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent_scheduler.controllers.podgroups.building import group_for, group_name, minimum_of, renewal
from agent_scheduler.objects.batch import PodGroup
from agent_scheduler.objects.workload import MemberPod
from tests.support import objects
from tests.support.batched import reference


def pod(owner: dict[str, Any] | None = None, **more: Any) -> MemberPod:
    owners = [owner] if owner else None
    body = objects.pod("p", namespace="ns", uid="u", owners=owners, requests={}, **more)
    return msgspec.convert(body, MemberPod)


def built(found: MemberPod, owners: dict[str, str] | None = None, namespace: dict[str, str] | None = None) -> Any:
    return group_for(found, of_owners=owners or {}, of_namespace=namespace or {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", 3), ("0", 0), ("+2", 2), *((text, 1) for text in ("-1", "two", "", "2147483648", "9" * 50, "²"))],
)
def test_a_minimum_that_is_no_number_is_one(text: str, expected: int) -> None:
    assert minimum_of({"scheduling.volcano.sh/group-min-member": text}) == expected


def test_the_queue_is_that_of_the_pod_or_else_of_its_namespace() -> None:
    of_pod, of_namespace = (objects.in_queue(name) for name in "ab")
    assert built(pod(annotations=of_pod), namespace=of_namespace)["spec"]["queue"] == "a"
    assert built(pod(), namespace=of_namespace)["spec"]["queue"] == "b"
    # The API server says default.
    assert "queue" not in built(pod())["spec"]


def test_owners_that_do_not_control_the_pod_leave_it_by_itself() -> None:
    member = pod(reference("ReplicaSet", "r", controller=False))
    assert group_name(member) == "podgroup-u"
    itself = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    assert built(member)["metadata"]["ownerReferences"] == [{**itself, "blockOwnerDeletion": True}]


@pytest.mark.parametrize(
    ("mode", "tier", "expected"),
    [
        ("HARD", "2", {"mode": "hard", "highestTierAllowed": 2}),
        ("soft", "", {"mode": "soft"}),
        ("near", "two", {"mode": "hard"}),
        (None, "1", {"mode": "hard", "highestTierAllowed": 1}),
        (None, None, None),
    ],
)
def test_the_network_topology_is_that_of_the_pods_annotations(
    mode: str | None, tier: str | None, expected: dict[str, Any] | None
) -> None:
    annotations = {}
    if mode is not None:
        annotations["volcano.sh/network-topology-mode"] = mode
    if tier is not None:
        annotations["volcano.sh/network-topology-highest-tier"] = tier
    assert built(pod(annotations=annotations))["spec"].get("networkTopology") == expected


def test_a_group_that_says_what_it_should_is_left_alone_whatever_others_have_added() -> None:
    body = built(pod(priorityClassName="high", annotations={"volcano.sh/preemptable": "true"}))
    body["spec"] |= {"queue": "research", "minTaskMember": {"ps": 1}}
    body["metadata"] |= {"annotations": {**body["metadata"]["annotations"], "other": "x"}, "uid": "g"}
    known = msgspec.convert(body, PodGroup)
    wish = built(pod(priorityClassName="high", annotations={"volcano.sh/preemptable": "true"}))
    assert renewal(known, wish) is None
    changed = renewal(known, built(pod(), {"scheduling.volcano.sh/group-min-member": "0"}))
    assert changed is not None
    assert changed["spec"] == {
        "minMember": 0,
        "queue": "research",
        "minResources": {"pods": None, "count/pods": None},
        "priorityClassName": None,
        "networkTopology": None,
    }
