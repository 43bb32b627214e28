"""The objects of batch scheduling, as the API server writes them."""

from __future__ import annotations

import msgspec

from agent_scheduler.objects import batch


def test_a_queue_is_read_with_what_was_left_out_as_volcano_takes_it() -> None:
    spec = {"capability": {"cpu": 4}, "guarantee": {"resource": {"cpu": "1"}}}
    queue = msgspec.convert({"metadata": {"name": "q"}, "spec": spec}, batch.Queue)
    assert (queue.name, queue.spec.weight, queue.spec.reclaimable, queue.spec.parent) == ("q", 1, None, "")
    assert queue.spec.guarantee == batch.Guarantee({"cpu": "1"})
    assert queue.status == batch.QueueStatus()


def test_a_status_is_written_without_what_is_empty() -> None:
    status = batch.QueueStatus(state="Open", pending=2, allocated={"cpu": "1"})
    assert msgspec.to_builtins(status) == {"state": "Open", "pending": 2, "allocated": {"cpu": "1"}}


def test_a_native_pod_group_is_a_gang_or_basic() -> None:
    def read(policy: object) -> batch.SchedulingPolicy:
        spec = {"schedulingPolicy": policy, "podGroupTemplateRef": {"workload": {"workloadName": "w"}}}
        group = msgspec.convert({"metadata": {"name": "g"}, "spec": spec}, batch.NativePodGroup)
        return group.spec.scheduling_policy

    assert read({"gang": {"minCount": 8}}).gang == batch.GangPolicy(8)
    assert read({"basic": {}}) == batch.SchedulingPolicy(basic=batch.BasicPolicy())
