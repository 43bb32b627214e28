"""Volcano's Job, wire-compatible with batch.volcano.sh/v1alpha1: tasks of pods that run together.

As in `wire`, only the used fields are declared.
"""

from __future__ import annotations

from typing import Final

import msgspec

from apimachinery.wire import Wire

from .batch import NetworkTopology
from .wire import Metadata

JOB_VERSION: Final = "batch.volcano.sh/v1alpha1"
#: The path for all namespaces.
JOBS: Final = f"/apis/{JOB_VERSION}/jobs"

#: An annotation of a job and its PodGroup: `true` if a task waits for another, so that pods come in stages.
DEPENDENT_JOB: Final = "dependent-job"

ANY: Final = "any"
ALL: Final = "all"

#: An annotation of a Job with dependent tasks: `reserve` reserves room for all of them from the start.
DEPENDS_ON_GANG: Final = "agent-scheduler.io/depends-on-gang"
RESERVE: Final = "reserve"


def jobs(namespace: str) -> str:
    """Return the path of a namespace's jobs."""
    return f"/apis/{JOB_VERSION}/namespaces/{namespace}/jobs"


def job_path(namespace: str, name: str) -> str:
    return f"{jobs(namespace)}/{name}"


class LifecyclePolicy(Wire, frozen=True):
    """An action on one of some events, or on an exit code of a pod's container. `timeout` is a Go duration."""

    action: str = ""
    event: str = ""
    events: tuple[str, ...] | None = None
    exit_code: int | None = None
    timeout: str | None = None


class DependsOn(Wire, frozen=True):
    """Tasks that must run or have succeeded first. `iteration` is any or all; empty means all."""

    name: tuple[str, ...] | None = None
    iteration: str = ""


class PartitionPolicy(Wire, frozen=True):
    """The division of a task's pods into `total_partitions` of `partition_size` each.

    `min_partitions` 0 means unset.
    """

    total_partitions: int = 0
    partition_size: int = 0
    min_partitions: int = 0
    network_topology: NetworkTopology | None = None


class TaskSpec(Wire, frozen=True):
    """A task. Without `min_available` all replicas count, unless a partition says less.

    `template` is a PodTemplateSpec.
    """

    name: str = ""
    replicas: int = 0
    min_available: int | None = None
    template: msgspec.Raw = msgspec.Raw(b"{}")
    policies: tuple[LifecyclePolicy, ...] | None = None
    topology_policy: str = ""
    max_retry: int = 0
    depends_on: DependsOn | None = None
    partition_policy: PartitionPolicy | None = None

    @property
    def minimum(self) -> int:
        """The number of pods that must run at the same time, by the task's own settings."""
        if self.min_available is not None:
            return self.min_available
        parts = self.partition_policy
        if parts is not None and parts.min_partitions > 0:
            return parts.min_partitions * parts.partition_size
        return self.replicas


class VolumeSpec(Wire, frozen=True):
    """A volume. `volume_claim` is the PersistentVolumeClaimSpec of a claim to create."""

    mount_path: str = ""
    volume_claim_name: str = ""
    volume_claim: msgspec.Raw = msgspec.Raw(b"null")


class JobSpec(Wire, frozen=True):
    """A job's spec. `min_available` 0 becomes the sum of the tasks' minimums with the defaults."""

    scheduler_name: str = ""
    min_available: int = 0
    volumes: tuple[VolumeSpec, ...] | None = None
    tasks: tuple[TaskSpec, ...] | None = None
    policies: tuple[LifecyclePolicy, ...] | None = None
    #: Arguments by plugin name.
    plugins: dict[str, tuple[str, ...] | None] | None = None
    queue: str = ""
    max_retry: int = 0
    ttl_seconds_after_finished: int | None = None
    priority_class_name: str = ""
    min_success: int | None = None
    network_topology: NetworkTopology | None = None


#: The maximum numbers of a job's tasks and of its pods: reviews and the controller handle all of them in one step.
MOST_TASKS: Final = 1_000
MOST_PODS: Final = 20_000


def excess(spec: JobSpec) -> str:
    """Return why a job is too large; empty if it is not."""
    tasks = spec.tasks or ()
    if len(tasks) > MOST_TASKS:
        return f"spec.tasks: the job has {len(tasks)} tasks; allowed: at most {MOST_TASKS}"
    replicas = [max(task.replicas, 0) for task in tasks]
    if (total := sum(replicas)) > MOST_PODS:
        field = f"spec.tasks[{replicas.index(max(replicas))}].replicas"
        return f"{field}: the tasks have {total} replicas together; allowed: at most {MOST_PODS}"
    return ""


class JobState(Wire, frozen=True):
    """A job's state. `phase` is Pending, Running, Restarting, or one of the following.

    These are Aborting, Aborted, Completing, Completed, Terminating, Terminated and Failed.
    """

    phase: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class TaskState(Wire, frozen=True):
    """The numbers of pods by phase."""

    phase: dict[str, int] | None = None


class JobCondition(Wire, frozen=True):
    """The last time at which the job entered a phase (`status`)."""

    status: str = ""
    last_transition_time: str | None = None


class JobStatus(Wire, frozen=True):
    state: JobState = JobState()
    min_available: int = 0
    task_status_count: dict[str, TaskState] | None = None
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    unknown: int = 0
    version: int = 0
    retry_count: int = 0
    running_duration: str | None = None
    controlled_resources: dict[str, str] | None = None
    conditions: tuple[JobCondition, ...] | None = None


class Job(Wire, frozen=True):
    """A job. Its status is a subresource."""

    metadata: Metadata = Metadata()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()
