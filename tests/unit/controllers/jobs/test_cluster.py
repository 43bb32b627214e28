"""What the job controller takes a pod for, by what it has written and what the watch delivers, in any order."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from agent_scheduler.controllers.jobs.cluster import JobsCluster
from agent_scheduler.objects.job import Job
from agent_scheduler.objects.job_pod import JobPod
from tests.support.objects import Object, job, owner, pod, stored, task

T = TypeVar("T")

JOB = stored(job("j", task("t", 2), minimum=2, namespace="default"))


def read(body: Object, kind: type[T]) -> T:
    return msgspec.json.decode(msgspec.json.encode(body), type=kind)


def member(version: int, **more: Any) -> JobPod:
    """The first pod of the Job as of a version."""
    body = pod("j-t-0", namespace="default", uid="u", owners=[owner(JOB)], **more)
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
