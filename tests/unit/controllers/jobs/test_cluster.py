"""What the job controller takes a pod for, by what it has written and what the watch delivers, in any order."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec
import pytest

from agent_scheduler.controllers.jobs.carrying import bodies
from agent_scheduler.controllers.jobs.cluster import COUNTING, NEWS, JobsCluster
from agent_scheduler.controllers.jobs.pods import pod_for
from agent_scheduler.objects.batch import PodGroup
from agent_scheduler.objects.job import Job
from agent_scheduler.objects.job_pod import TASK_INDEX, JobPod, read_job_pod, read_job_pod_event
from kube_client.watch_events import event_reader
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


def test_a_deletion_that_is_delivered_twice_changes_nothing_more() -> None:
    cluster = JobsCluster()
    cluster.set_job(read(JOB, Job))
    cluster.set_pod(member(2, phase="Running"))
    for _ in range(2):
        cluster.delete_pod(member(3, phase="Running"))
    assert cluster.pods(read(JOB, Job)) == {}


def test_a_pod_of_the_same_name_that_was_made_later_does_not_leave_with_the_first() -> None:
    cluster = JobsCluster()
    cluster.set_job(read(JOB, Job))
    cluster.set_pod(member(2))
    cluster.pod_leaves(read(stored(pod("j-t-0", uid="other", owners=[owner(JOB)])), JobPod))
    assert not is_leaving(cluster)


WHOLE = ("AbortJob", "RestartJob", "TerminateJob", "CompleteJob")


@pytest.mark.promise("L19")
@pytest.mark.parametrize("event", ["PodFailed", "PodEvicted", "TaskCompleted", "Unknown"])
@pytest.mark.parametrize("action", [*WHOLE, "RestartTask", "RestartPod"])
def test_who_takes_over_carries_out_actions_of_the_whole_job_by_what_is_left(event: str, action: str) -> None:
    """Other actions, too, by pods that have ended and are still there; of other events nothing says whether they have
    been answered."""
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
    assert (happened and happened.event) == (
        event if action in WHOLE or event in ("PodFailed", "TaskCompleted") else None
    )
    assert cluster.take("default/j") is None


@pytest.mark.parametrize(
    ("phases", "seconds", "notes"),
    [
        (["Pending"], [None], 0),
        (["Pending", "Inqueue", "Running", "Pending"], [None, None, None], 0),
        (["Running", "Unknown", "Running", "Unknown"], [None, None, None], 2),
        (["Unknown", "Unknown"], [None], 0),
    ],
)
def test_a_job_is_looked_at_at_once_for_a_group_that_is_let_in_put_out_or_unknown(
    phases: list[str], seconds: list[float | None], notes: int
) -> None:
    """Other phases do not matter. That it became Unknown is an event each time."""
    cluster, put = watched()
    for version, phase in enumerate(phases, 2):
        body = pod_group("g", namespace="default", owners=[owner(JOB)], phase=phase)
        cluster.set_group(read(stored(body, version=version), PodGroup))
    assert put == seconds
    assert [each.event for each in iter(lambda: cluster.take("default/j"), None)] == ["Unknown"] * notes


def test_a_job_is_looked_at_at_once_for_a_pod_that_failed_or_leaves() -> None:
    cluster, put = watched()
    for version, phase in enumerate(["Pending", "Running", "Failed"], 2):
        cluster.set_pod(member(version, phase=phase))
    cluster.set_pod(member(5, phase="Failed", deleted="2026-01-01T00:00:00Z"))
    cluster.delete_pod(member(6))
    assert put == [NEWS, COUNTING, None, None, None]


def test_a_job_is_not_looked_at_for_changes_that_it_does_not_read() -> None:
    cluster, put = watched()
    cluster.set_pod(member(2, phase="Pending"))
    cluster.set_pod(member(3, phase="Pending", node="n"))
    cluster.set_pod(member(4, phase="Pending", node="n", labels={"any": "thing"}))
    reports = ({"type": "Scheduled"}, {"type": "Scheduled"}, {"type": "Unschedulable"}, {"type": "Unschedulable"})
    for version, each in enumerate(reports, 5):
        body = pod_group("g", namespace="default", owners=[owner(JOB)], phase="Inqueue")
        body["status"]["conditions"] = [{"status": "True", "message": "why", "transitionID": str(version), **each}]
        cluster.set_group(read(stored(body, version=version), PodGroup))
    assert put == [NEWS, COUNTING, None, COUNTING, COUNTING]


@pytest.mark.parametrize("policy", [None, {"totalPartitions": 2, "partitionSize": 2}])
def test_pods_of_a_task_that_share_a_spec_are_those_that_are_made_one_by_one(policy: Object | None) -> None:
    tasks = [task(name, 4, **({} if policy is None else {"partitionPolicy": policy})) for name in ("t", "u")]
    found = read(stored(job("j", *tasks, minimum=2, namespace="default")), Job)
    places = [(each, index) for each in found.spec.tasks or () for index in range(4)]
    made = [msgspec.json.decode(msgspec.json.encode(body)) for _, body in bodies(found, places, ())]
    assert made == [pod_for(found, *each) for each in places]
    assert len({json.dumps(body["metadata"]["labels"]) for body in made}) == 8


def watched() -> tuple[JobsCluster, list[float | None]]:
    """A cluster with the Job, and after how many seconds each change has it looked at; None: at once."""
    cluster, put = JobsCluster(), list[float | None]()
    cluster.set_job(read(JOB, Job))
    cluster.begin()
    cluster.put = lambda _key, seconds=None: put.append(seconds)
    return cluster, put


@pytest.mark.parametrize("levels", [10, 2_000, 9_900])
def test_a_pod_that_is_nested_too_deeply_is_still_that_of_its_job(levels: int) -> None:
    pod = {"metadata": {"name": "j-a-0", "uid": "u", "annotations": {TASK_INDEX: "0"}, "managedFields": "deep"}}
    raw = json.dumps(pod).replace('"deep"', '{"a":' * levels + "1" + "}" * levels).encode()
    found = read_job_pod(raw)
    assert (found.metadata.uid, found.annotation(TASK_INDEX)) == ("u", "0")


def test_an_event_is_read_in_one_step_as_by_the_general_path_and_what_is_none_is_left_to_that() -> None:
    general = event_reader(read_job_pod)
    for version, kind in enumerate(("ADDED", "MODIFIED", "DELETED")):
        line = msgspec.json.encode({"type": kind, "object": member(version, phase="Running")})
        assert read_job_pod_event(line) == general(line)
    for kind in ("BOOKMARK", "ERROR"):
        with pytest.raises(msgspec.ValidationError):
            read_job_pod_event(msgspec.json.encode({"type": kind, "object": member(1)}))
