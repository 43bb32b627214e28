"""The PodGroup of a Job, as Volcano's controller creates it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from agent_scheduler.engine.state.podusage import Usage, quota_usage
from agent_scheduler.engine.state.quotause import ScopeFacts, asks_for_quality, crosses_namespaces, is_terminating
from agent_scheduler.objects.batch import (
    API_VERSION,
    ATTAINABLE,
    QUOTA_PARTS,
    TASK_SPEC,
    WAITING_ROLES,
    PodGroup,
    QuotaPart,
)
from agent_scheduler.objects.job import Job, TaskSpec
from agent_scheduler.objects.job_pod import PARTITION_ID
from agent_scheduler.objects.wire import Metadata
from agent_scheduler.objects.workload import TemplateSpec
from apimachinery.quantity import canonical
from apimachinery.wire import Wire
from kube_client.merging import replacement

from .pods import group_name_of, owner_of
from .states import tasks_of
from .templates import remembered


class _GroupTemplate(Wire, frozen=True):
    spec: TemplateSpec = TemplateSpec()


_decode = msgspec.json.Decoder(_GroupTemplate).decode


#: Annotations that the controller owns; all others are the Job's.
_OWN: Final = (WAITING_ROLES, QUOTA_PARTS, ATTAINABLE)


def group_for(job: Job, priorities: Mapping[str, int], waiting: Sequence[str], attainable: str = "") -> dict[str, Any]:
    """Return the group to create.

    `priorities` maps priority classes to values. `waiting` are the tasks that wait for others and have not run yet.
    `attainable` is the text on members that it can no longer have. Raises QuantityError for an invalid request.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": group_name_of(job),
            "namespace": job.metadata.namespace,
            "annotations": {
                **(job.metadata.annotations or {}),
                **({WAITING_ROLES: ",".join(waiting)} if waiting else {}),
                **_quota_parts(job, priorities),
                **({ATTAINABLE: attainable} if attainable else {}),
            },
            "labels": job.metadata.labels or {},
            "ownerReferences": [owner_of(job)],
        },
        "spec": {
            "minMember": job.spec.min_available,
            "minTaskMember": {task.name: task.minimum for task in tasks_of(job)},
            "minResources": min_resources(job, priorities),
            **({"queue": job.spec.queue} if job.spec.queue else {}),
            **({"priorityClassName": job.spec.priority_class_name} if job.spec.priority_class_name else {}),
            **_topology(job),
        },
    }


def renewal(known: PodGroup, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the merge patch that changes a group to `body`; None if it is equal. Its queue is kept."""
    spec = body["spec"]
    members, resources = known.spec.min_task_member or {}, known.spec.min_resources or {}
    priority = spec.get("priorityClassName", "")
    about = _about(known.metadata, body["metadata"])
    policies = {
        key: wished or None
        for key, there in (
            ("networkTopology", known.spec.network_topology),
            ("subGroupPolicy", known.spec.sub_group_policy),
        )
        if (wished := spec.get(key)) or there
        if not (wished and _has(_plain(there), wished))
    }
    if (
        not about
        and not policies
        and (known.spec.min_member, members, resources, known.spec.priority_class_name)
        == (spec["minMember"], spec["minTaskMember"], spec["minResources"], priority)
    ):
        return None
    return {
        "metadata": {"uid": known.metadata.uid, **about},
        "spec": {
            "minMember": spec["minMember"],
            "minTaskMember": replacement(members, spec["minTaskMember"]),
            "minResources": replacement(resources, spec["minResources"]),
            "priorityClassName": priority or None,
            **policies,
        },
    }


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _has(found: Any, wished: Any) -> bool:
    """Return whether `found` includes `wished`; the API server may have added defaults."""
    if isinstance(wished, Mapping):
        return isinstance(found, dict) and all(_has(found.get(key), each) for key, each in wished.items())
    if isinstance(wished, (list, tuple)):
        there = found or ()
        return len(there) == len(wished) and all(map(_has, there, wished))
    return bool(found == wished)


def _about(known: Metadata, wished: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch of a group's metadata: its owner and the controller's annotations.

    What it copied from its Job at creation is kept.
    """
    wanted, said = wished["annotations"], known.annotations or {}
    annotations = {name: wanted.get(name) for name in _OWN if wanted.get(name) != said.get(name)}
    found: dict[str, Any] = {"annotations": annotations} if annotations else {}
    (owner,) = wished["ownerReferences"]
    if not any(each.controller and each.uid == owner["uid"] for each in known.owner_references or ()):
        found["ownerReferences"] = [owner]
    return found


def min_resources(job: Job, priorities: Mapping[str, int]) -> dict[str, str]:
    """Return the requests of the minimum of pods."""
    total: Usage = {}
    for usage, _, number in _minimum(job, priorities):
        _add(total, usage, number)
    return _written(total)


def _quota_parts(job: Job, priorities: Mapping[str, int]) -> dict[str, str]:
    """Return the annotation that splits the minimum by what quotas count separately.

    It is needed if pods of the minimum have a deadline or refer to other namespaces, which the group does not include.
    """
    totals: dict[ScopeFacts, Usage] = {}
    for usage, scoped, number in _minimum(job, priorities):
        if number > 0:
            own = scoped.priority_class or job.spec.priority_class_name
            _add(totals.setdefault(replace(scoped, priority_class=own), {}), usage, number)
    if not any(scoped.terminating or scoped.crosses_namespaces for scoped in totals):
        return {}
    parts = [
        QuotaPart(scoped.scopes, scoped.priority_class or "", dict(_written(total))) for scoped, total in totals.items()
    ]
    return {QUOTA_PARTS: msgspec.json.encode(parts).decode()}


def _minimum(job: Job, priorities: Mapping[str, int]) -> list[tuple[Usage, ScopeFacts, int]]:
    """Return each task's requests, quota scopes and minimum, by priority and then in the order of the Job.

    If the Job needs at least as many pods as its tasks' minimums together, these are counted first.
    """
    tasks = [(task, *_of_template(bytes(task.template))) for task in tasks_of(job)]
    tasks.sort(key=lambda each: -priorities.get(each[2].priority_class or "", 0))
    left = job.spec.min_available
    numbers = dict.fromkeys((task.name for task, _, _ in tasks), 0)
    if left >= sum(task.minimum for task, _, _ in tasks):
        for task, _, _ in tasks:
            # Tasks without a minimum get the rest.
            numbers[task.name] = min(task.min_available or 0, left)
            left -= numbers[task.name]
    for task, _, _ in tasks:
        more = min(task.replicas - numbers[task.name], left)
        if more > 0:
            numbers[task.name] += more
            left -= more
    return [(usage, scoped, numbers[task.name]) for task, usage, scoped in tasks]


@remembered
def _of_template(template: bytes) -> tuple[Usage, ScopeFacts]:
    """Return a pod's requests and quota scopes, cached: each reconciliation reads them, and must not modify them."""
    spec = _decode(template).spec
    usage = quota_usage(spec)
    return usage, ScopeFacts(
        terminating=is_terminating(spec.active_deadline_seconds),
        best_effort=not asks_for_quality({name: amount.nano for name, amount in usage.items()}),
        priority_class=spec.priority_class_name,
        crosses_namespaces=crosses_namespaces(spec.affinity),
    )


def _written(total: Usage) -> dict[str, str]:
    return {name: canonical(amount) for name, amount in total.items()}


def _add(total: Usage, usage: Usage, number: int) -> None:
    if number <= 0:
        return
    for name, amount in usage.items():
        nano = amount.nano * number
        before = total.get(name)
        if before is None or before.nano == 0:
            total[name] = amount._replace(nano=nano)
        else:
            total[name] = before._replace(nano=before.nano + nano)


def _topology(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if job.spec.network_topology is not None:
        found["networkTopology"] = msgspec.to_builtins(job.spec.network_topology)
    if policies := [each for task in tasks_of(job) if (each := _sub_group(task)) is not None]:
        found["subGroupPolicy"] = policies
    return found


def _sub_group(task: TaskSpec) -> dict[str, Any] | None:
    policy = task.partition_policy
    if policy is None:
        return None
    found: dict[str, Any] = {
        "name": task.name,
        "subGroupSize": policy.partition_size,
        "labelSelector": {"matchLabels": {TASK_SPEC: task.name}},
        "matchLabelKeys": [PARTITION_ID],
    }
    if policy.min_partitions:
        found["minSubGroups"] = policy.min_partitions
    if policy.network_topology is not None:
        found["networkTopology"] = msgspec.to_builtins(policy.network_topology)
    return found
