"""The objects of batch scheduling, as the API server writes them."""

from __future__ import annotations

import msgspec

from agent_scheduler.objects import batch

METADATA = {"name": "g", "namespace": "team", "uid": "u", "resourceVersion": "7"}


def test_a_pod_group_is_read_as_volcano_writes_it() -> None:
    group = msgspec.convert(
        {
            "metadata": METADATA | {"annotations": {"volcano.sh/sla-waiting-time": "1h"}},
            "spec": {
                "minMember": 3,
                "minTaskMember": {"ps": 1, "worker": 2},
                "queue": "research",
                "priorityClassName": "high",
                "minResources": {"cpu": "3", "nvidia.com/gpu": 2, "count/pods": "3"},
                "networkTopology": {"mode": "soft", "highestTierAllowed": 2},
                "subGroupPolicy": [
                    {
                        "name": "part",
                        "subGroupSize": 2,
                        "minSubGroups": 1,
                        "labelSelector": {"matchLabels": {"app": "x"}},
                        "matchLabelKeys": ["part"],
                    }
                ],
            },
            "status": {
                "phase": "Inqueue",
                "running": 1,
                "conditions": [
                    {"type": "Unschedulable", "status": "True", "transitionID": "t", "reason": "r"}
                ],
            },
        },
        batch.PodGroup,
    )
    assert group.spec.min_task_member == {"ps": 1, "worker": 2}
    assert group.spec.min_resources == {"cpu": "3", "nvidia.com/gpu": 2, "count/pods": "3"}
    assert group.spec.network_topology == batch.NetworkTopology("soft", 2)
    assert group.spec.sub_group_policy is not None
    (policy,) = group.spec.sub_group_policy
    assert (policy.sub_group_size, policy.min_sub_groups, policy.match_label_keys) == (2, 1, ("part",))
    assert group.status.conditions == (batch.PodGroupCondition("Unschedulable", "True", "t", reason="r"),)
    assert group.metadata.annotations == {"volcano.sh/sla-waiting-time": "1h"}


def test_a_queue_is_read_with_what_was_left_out_as_volcano_takes_it() -> None:
    queue = msgspec.convert(
        {
            "metadata": {"name": "q"},
            "spec": {"capability": {"cpu": 4}, "guarantee": {"resource": {"cpu": "1"}}},
        },
        batch.Queue,
    )
    assert (queue.name, queue.spec.weight, queue.spec.reclaimable, queue.spec.parent) == ("q", 1, None, "")
    assert queue.spec.guarantee == batch.Guarantee({"cpu": "1"})
    assert queue.status == batch.QueueStatus()


def test_a_status_is_written_without_what_is_empty() -> None:
    status = batch.QueueStatus(state="Open", pending=2, allocated={"cpu": "1"})
    assert msgspec.to_builtins(status) == {"state": "Open", "pending": 2, "allocated": {"cpu": "1"}}


def test_a_native_pod_group_is_a_gang_or_basic() -> None:
    def read(policy: object) -> batch.SchedulingPolicy:
        spec = {"schedulingPolicy": policy, "podGroupTemplateRef": {"workload": {"workloadName": "w"}}}
        return msgspec.convert(
            {"metadata": METADATA, "spec": spec}, batch.NativePodGroup
        ).spec.scheduling_policy

    assert read({"gang": {"minCount": 8}}).gang == batch.GangPolicy(8)
    assert read({"basic": {}}) == batch.SchedulingPolicy(basic=batch.BasicPolicy())
