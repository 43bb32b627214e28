"""Checks of a job by itself: its tasks, policies, plugins and volumes.

The definition (`config/crd`) checks single fields; these are the rules between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from agent_scheduler.objects.batch import NetworkTopology
from agent_scheduler.objects.job import Job, LifecyclePolicy, TaskSpec, VolumeSpec
from apimachinery.validation import names, pod_templates
from apimachinery.validation.field_problems import formatted
from apimachinery.validation.pod_resources import whole_cpus

from . import job_dependencies
from .review import object_of


def template_problems(task: TaskSpec, index: int) -> Iterator[str]:
    """Check the template of a task as the API server would check each pod of it. Raises UnreadableObject."""
    template = object_of(task.template, pod_templates.read_template)
    field = f"spec.tasks[{index}].template"
    yield from pod_templates.template_problems(template, field)
    if task.topology_policy in ("", "none"):
        return
    # A task with a topology policy must request whole CPUs.
    for number, container in enumerate(template.spec.containers):
        if not whole_cpus(container.resources):
            yield (
                f"{field}.spec.containers[{number}].resources.requests[cpu]: the cpu request "
                f"isn't an integer in spec.task[{index}] container[{number}]"
            )


#: Matches all events.
_EVERY: Final = "*"
_EVENTS: Final = (
    *(_EVERY, "JobUpdated", "PodEvicted", "PodFailed", "PodPending", "TaskCompleted", "TaskFailed"),
    "Unknown",
)
_ACTIONS: Final = (
    *("AbortJob", "CompleteJob", "RestartJob", "RestartPartition", "RestartPod", "RestartTask"),
    *("ResumeJob", "TerminateJob"),
)
_VALID_EVENTS: Final = f"valid events are [{' '.join(_EVENTS)}]"
_VALID_ACTIONS: Final = f"valid actions are [{' '.join(_ACTIONS)}]"


def _policy_problems(policies: Sequence[LifecyclePolicy], field: str) -> Iterator[str]:
    """Yield the problems of the policies at `field`. Exit codes depend on the platform; only 0 is never a failure."""
    events: set[str] = set()
    codes: set[int] = set()
    for index, policy in enumerate(policies):
        at = f"{field}[{index}]"
        named = {*(policy.events or ()), *((policy.event,) if policy.event else ())}
        if named and policy.exit_code is not None:
            yield f"{at}: must not specify event and exitCode simultaneously"
            continue
        if not named and policy.exit_code is None:
            yield f"{at}: either event and exitCode should be specified"
            continue
        yield from _policy_values(policy, sorted(named), at)
        for event in sorted(named & events):
            yield f"{at}.event: duplicate event {event}  across different policy"
        events |= named
        if policy.exit_code is None:
            continue
        if policy.exit_code == 0:
            yield f"{at}.exitCode: 0 is not a valid error code"
        elif policy.exit_code in codes:
            yield f"{at}.exitCode: duplicate exitCode {policy.exit_code}"
        codes.add(policy.exit_code)
    if _EVERY in events and len(events) > 1:
        yield f"{field}: if there's * here, no other policy should be here"


def _policy_values(policy: LifecyclePolicy, events: Sequence[str], at: str) -> Iterator[str]:
    for event in events:
        if event not in _EVENTS:
            yield f'{at}.event: Invalid value: "{event}": invalid policy event, {_VALID_EVENTS}'
    if policy.action not in _ACTIONS:
        yield f'{at}.action: Invalid value: "{policy.action}": invalid policy action, {_VALID_ACTIONS}'


_NONE: Final = msgspec.Raw(b"null")
_CLAIM_AND_NAME: Final = (
    "conflict: If you want to use an existing PVC, just specify VolumeClaimName.If you want to create a new PVC, you "
    "do not need to specify VolumeClaimName"
)
_MPI: Final = "mpi"
_MPI_MASTER: Final = "master"
_PLUGINS: Final = frozenset({"env", "hcclrank", _MPI, "pytorch", "ray", "ssh", "svc", "tensorflow"})


def problems(job: Job) -> Iterator[str]:
    spec = job.spec
    tasks = spec.tasks or ()
    if not tasks:
        yield "spec.tasks: No task specified in job spec"
        return
    seen: set[str] = set()
    for index, task in enumerate(tasks):
        if task.name in seen:
            yield f"spec.tasks[{index}].name: duplicated task name {task.name}"
        seen.add(task.name)
        yield from _of_task(job, index, task)
    if problems := names.qualified(job.metadata.name):
        name = job.metadata.name
        yield f"metadata.name: create job with name {name} validate failed [{' '.join(problems)}]"
    total = max(sum(task.replicas for task in tasks), 0)
    if spec.min_available > total:
        yield (
            "spec.minAvailable: job 'minAvailable' should not be greater than total replicas in tasks; "
            f"allowed: 0 to {total}"
        )
    yield from _policy_problems(spec.policies or (), "spec.policies")
    yield from _of_plugins(job, tasks)
    yield from _of_volumes(spec.volumes or ())
    yield from topology_problems(spec.network_topology, "spec.networkTopology")
    yield from job_dependencies.problems(tasks)


def _of_task(job: Job, index: int, task: TaskSpec) -> Iterator[str]:
    field = f"spec.tasks[{index}]"
    if task.min_available is not None and task.min_available > task.replicas:
        yield (
            f"{field}.minAvailable: 'minAvailable' is greater than 'replicas' in task: {task.name}, job: "
            f"{job.metadata.name}; allowed: 0 to {task.replicas}"
        )
    yield from partition_problems(job, index, task)
    yield from _policy_problems(task.policies or (), f"{field}.policies")
    # The pod with the highest index has the longest name.
    pod = f"{job.metadata.name}-{task.name}-{max(task.replicas - 1, 0)}"
    if problems := names.qualified(pod):
        yield f"{field}.name: create pod with name {pod} validate failed [{' '.join(problems)}]"
    yield from formatted(f"{field}.name", task.name, names.subdomain)
    yield from template_problems(task, index)


def partition_problems(job: Job, index: int, task: TaskSpec) -> Iterator[str]:
    parts = task.partition_policy
    if parts is None:
        return
    field = f"spec.tasks[{index}]"
    named = f"in task: {task.name}, job: {job.metadata.name}"
    yield from topology_problems(parts.network_topology, f"{field}.partitionPolicy.networkTopology")
    if parts.total_partitions <= 0:
        yield f"{field}.partitionPolicy.totalPartitions: 'TotalPartitions' must be greater than 0 {named}"
    if parts.partition_size <= 0:
        yield f"{field}.partitionPolicy.partitionSize: 'PartitionSize' must be greater than 0 {named}"
    if parts.total_partitions <= 0 or parts.partition_size <= 0:
        return
    whole = parts.total_partitions * parts.partition_size
    if task.replicas != whole:
        yield (f"{field}.replicas: 'Replicas' are not equal to TotalPartitions*PartitionSize {named}; allowed: {whole}")
    least = parts.min_partitions * parts.partition_size
    if least and task.min_available is not None and task.min_available != least:
        yield (
            f"{field}.minAvailable: 'MinAvailable' is not equal to MinPartitions*PartitionSize {named}; "
            f"allowed: {least}"
        )


def topology_problems(topology: NetworkTopology | None, field: str) -> Iterator[str]:
    if topology is not None and topology.highest_tier_allowed is not None and topology.highest_tier_name:
        yield (
            f"{field}: must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"
        )


def _of_plugins(job: Job, tasks: Sequence[TaskSpec]) -> Iterator[str]:
    plugins = job.spec.plugins or {}
    for name in plugins:
        if name not in _PLUGINS:
            yield f"spec.plugins: unable to find job plugin: {name}; allowed: {', '.join(sorted(_PLUGINS))}"
    if _MPI in plugins and _mpi_master(plugins[_MPI] or ()) not in [task.name for task in tasks]:
        yield (
            f"spec.plugins[{_MPI}]: The specified mpi master task was not found; allowed: --master=NAME of a task, "
            f"or a task {_MPI_MASTER}"
        )


def _mpi_master(arguments: Sequence[str]) -> str:
    """Parse as Go's flags: the last one counts, and one without a value takes the next argument."""
    found, flags = _MPI_MASTER, iter(arguments)
    for flag in flags:
        name, given, value = flag.lstrip("-").partition("=")
        if name == "master":
            found = value if given else next(flags, "")
    return found


def _of_volumes(volumes: Sequence[VolumeSpec]) -> Iterator[str]:
    mounted: set[str] = set()
    for index, volume in enumerate(volumes):
        field = f"spec.volumes[{index}]"
        if not volume.mount_path:
            yield f"{field}.mountPath: mountPath is required"
        elif volume.mount_path in mounted:
            yield f"{field}.mountPath: duplicated mountPath: {volume.mount_path}"
        mounted.add(volume.mount_path)
        if not volume.volume_claim_name and volume.volume_claim == _NONE:
            yield f"{field}: either VolumeClaim or VolumeClaimName must be specified"
        elif (name := volume.volume_claim_name) and volume.volume_claim != _NONE:
            yield f"{field}: {_CLAIM_AND_NAME}"
        elif name and (problems := names.subdomain(name)):
            yield f"{field}.volumeClaimName: invalid VolumeClaimName {name} : [{' '.join(problems)}]"
