"""What the job controller takes a pod for, by what it has written and what the watch delivers, in any order."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import pytest

from agent_scheduler.controllers.jobs.cluster import JobsCluster
from agent_scheduler.objects.batch import PodGroup
from agent_scheduler.objects.job import Job
from agent_scheduler.objects.job_pod import JobPod
from tests.support.objects import Object, job, owner, pod, pod_group, stored, task

T = TypeVar("T")

TASK = {"volcano.sh/task-spec": "t"}
JOB = stored(job("j", task("t", 2), minimum=2, namespace="default"))


def read(body: Object, kind: type[T]) -> T:
    return msgspec.json.decode(msgspec.json.encode(body), type=kind)


def member(version: int, **more: Any) -> JobPod:
    """The first pod of the Job as of a version."""
    body = pod("j-t-0", namespace="default", uid="u", owners=[owner(JOB)], annotations=TASK, **more)
    return read(stored(body, uid="u", version=version), JobPod)


def is_leaving(cluster: JobsCluster) -> bool:
    (found,) = cluster.pods(read(JOB, Job)).values()
    return found.metadata.deletion_timestamp is not None


def test_a_pod_whose_deletion_was_accepted_leaves_whatever_older_reports_arrive() -> None:
    cluster = JobsCluster()
    cluster.set_job(read(JOB, Job))
    cluster.set_pod(member(2, phase="Running"))
    cluster.pod_leaves(member(2))
    assert is_leaving(cluster)
    cluster.set_pod(member(3, phase="Failed"))
    assert is_leaving(cluster)
    cluster.delete_pod(member(4, phase="Failed"))
    assert cluster.pods(read(JOB, Job)) == {}


def test_a_pod_of_the_same_name_that_was_made_later_does_not_leave_with_the_first() -> None:
    cluster = JobsCluster()
    cluster.set_job(read(JOB, Job))
    cluster.set_pod(member(2))
    cluster.pod_leaves(read(stored(pod("j-t-0", uid="other", owners=[owner(JOB)])), JobPod))
    assert not is_leaving(cluster)


WHOLE = ("AbortJob", "RestartJob", "TerminateJob", "CompleteJob")


@pytest.mark.parametrize("event", ["PodFailed", "PodEvicted", "TaskCompleted", "Unknown"])
@pytest.mark.parametrize("action", [*WHOLE, "RestartTask", "RestartPod"])
def test_who_takes_over_carries_out_actions_of_the_whole_job_by_what_is_left(event: str, action: str) -> None:
    """Other actions have been carried out, or nothing says whether they have."""
    body = job("j", task("t", 1), namespace="default", policies=[{"event": event, "action": action}])
    running = stored({**body, "status": {"state": {"phase": "Running"}}})
    phases = {"PodFailed": "Failed", "TaskCompleted": "Succeeded"}
    deleted = {"deleted": "2026-01-01T00:00:00Z"} if event == "PodEvicted" else {}
    group = pod_group("j-uid-j", namespace="default", owners=[owner(JOB)])
    cluster = JobsCluster()
    cluster.set_job(read(running, Job))
    cluster.set_pod(member(2, phase=phases.get(event, "Running"), **deleted))
    if event == "Unknown":
        cluster.set_group(read(stored({**group, "status": {"phase": "Unknown"}}), PodGroup))
    assert cluster.take("default/j") is None
    cluster.begin()
    happened = cluster.take("default/j")
    assert (happened and happened.event) == (event if action in WHOLE else None)
    assert cluster.take("default/j") is None
