"""Rows of workload kinds and of RBAC."""

from __future__ import annotations

from typing import Any

from .printing import (
    AGE,
    CREATED_AT,
    NONE,
    Column,
    Printer,
    age,
    created,
    joined,
    label_selector,
    labels,
    printer,
)
from .resource import Object

_CONTAINERS = Column("Containers", "string", "Names of each container in the template.", 1)
_IMAGES = Column("Images", "string", "Images referenced by each container in the template.", 1)


def _template(obj: Object) -> list[Any]:
    """Names and images of the containers in an object's pod template."""
    template = obj.get("template") or (obj.get("spec") or {}).get("template") or {}
    containers = (template.get("spec") or {}).get("containers") or ()
    return [
        ",".join(container.get("name", "") for container in containers),
        ",".join(container.get("image", "") for container in containers),
    ]


def _counts(obj: Object, now: str) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return [
        spec.get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        created(obj, now),
        *_template(obj),
    ]


def _replica_set(obj: Object, now: str) -> list[Any]:
    return [*_counts(obj, now), label_selector((obj.get("spec") or {}).get("selector"))]


def _replication_controller(obj: Object, now: str) -> list[Any]:
    return [*_counts(obj, now), labels((obj.get("spec") or {}).get("selector"))]


def _daemon_set(obj: Object, now: str) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    selector = ((spec.get("template") or {}).get("spec") or {}).get("nodeSelector")
    return [
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        labels(selector),
        created(obj, now),
        *_template(obj),
        label_selector(spec.get("selector")),
    ]


def _deployment(obj: Object, now: str) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    return [
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        created(obj, now),
        *_template(obj),
        label_selector(spec.get("selector")),
    ]


def _stateful_set(obj: Object, now: str) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [ready, created(obj, now), *_template(obj)]


def _condition(status: Object, kind: str) -> bool:
    return any(
        found.get("type") == kind and found.get("status") == "True"
        for found in status.get("conditions") or ()
    )


def _job(obj: Object, now: str) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    done, wanted, parallel = status.get("succeeded", 0), spec.get("completions"), spec.get("parallelism") or 0
    if wanted is not None:
        completions = f"{done}/{wanted}"
    else:
        completions = f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"
    began, ended = status.get("startTime"), status.get("completionTime")
    return [
        _job_state(obj, status),
        completions,
        age(began, ended or now) if began else "",
        created(obj, now),
        *_template(obj),
        label_selector(spec.get("selector")),
    ]


def _job_state(obj: Object, status: Object) -> str:
    for kind, word in (("Complete", "Complete"), ("Failed", "Failed")):
        if _condition(status, kind):
            return word
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    for kind, word in (
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if _condition(status, kind):
            return word
    return "Running"


def _cron_job(obj: Object, now: str) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    last = status.get("lastScheduleTime")
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    return [
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        "True" if spec.get("suspend") else "False",
        len(status.get("active") or ()),
        age(last, now) if last else NONE,
        created(obj, now),
        *_template(job),
        label_selector(job.get("selector")),
    ]


def _revision(obj: Object, now: str) -> list[Any]:
    owner = next((one for one in obj["metadata"].get("ownerReferences") or () if one.get("controller")), None)
    named = NONE
    if owner is not None:
        group = str(owner.get("apiVersion", "")).rpartition("/")[0]
        kind = str(owner.get("kind", "")).lower()
        named = f"{kind}.{group}/{owner.get('name')}" if group else f"{kind}/{owner.get('name')}"
    return [named, obj.get("revision", 0), created(obj, now)]


def _pod_template(obj: Object, now: str) -> list[Any]:
    metadata = (obj.get("template") or {}).get("metadata") or {}
    return [*_template(obj), labels(metadata.get("labels"))]


def _role(obj: Object, now: str) -> list[Any]:
    return [obj["metadata"].get("creationTimestamp", "")]


def _role_binding(obj: Object, now: str) -> list[Any]:
    role = obj.get("roleRef") or {}
    names: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or ():
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        names.setdefault(subject.get("kind", ""), []).append(name)
    return [
        f"{role.get('kind', '')}/{role.get('name', '')}",
        created(obj, now),
        *(joined(names[kind], "") for kind in ("User", "Group", "ServiceAccount")),
    ]


def _replicated(model: str) -> tuple[Column, ...]:
    return (
        Column("Desired", "integer", f"@{model}Spec.replicas"),
        Column("Current", "integer", f"@{model}Status.replicas"),
        Column("Ready", "integer", f"@{model}Status.readyReplicas"),
        AGE,
        _CONTAINERS,
        _IMAGES,
        Column("Selector", "string", f"@{model}Spec.selector", 1),
    )


def _binding(model: str) -> Printer:
    return printer(
        (
            Column("Role", "string", f"@{model}.roleRef"),
            AGE,
            Column("Users", "string", f"Users in the {model.removeprefix('rbac.v1.')}", 1),
            Column("Groups", "string", f"Groups in the {model.removeprefix('rbac.v1.')}", 1),
            Column(
                "ServiceAccounts", "string", f"ServiceAccounts in the {model.removeprefix('rbac.v1.')}", 1
            ),
        ),
        _role_binding,
    )


_READY = Column("Ready", "string", "Number of the pod with ready state")

WORKLOADS: dict[tuple[str, str], Printer] = {
    ("", "ReplicationController"): printer(
        _replicated("core.v1.ReplicationController"), _replication_controller
    ),
    ("", "PodTemplate"): printer(
        (
            Column("Containers", "string", "Names of each container in the template."),
            Column("Images", "string", "Images referenced by each container in the template."),
            Column("Pod Labels", "string", "The labels for the pod template."),
        ),
        _pod_template,
    ),
    ("apps", "ReplicaSet"): printer(_replicated("apps.v1.ReplicaSet"), _replica_set),
    ("apps", "DaemonSet"): printer(
        (
            Column("Desired", "integer", "@apps.v1.DaemonSetStatus.desiredNumberScheduled"),
            Column("Current", "integer", "@apps.v1.DaemonSetStatus.currentNumberScheduled"),
            Column("Ready", "integer", "@apps.v1.DaemonSetStatus.numberReady"),
            Column("Up-to-date", "integer", "@apps.v1.DaemonSetStatus.updatedNumberScheduled"),
            Column("Available", "integer", "@apps.v1.DaemonSetStatus.numberAvailable"),
            Column("Node Selector", "string", "@core.v1.PodSpec.nodeSelector"),
            AGE,
            _CONTAINERS,
            _IMAGES,
            Column("Selector", "string", "@apps.v1.DaemonSetSpec.selector", 1),
        ),
        _daemon_set,
    ),
    ("apps", "Deployment"): printer(
        (
            _READY,
            Column("Up-to-date", "string", "@apps.v1.DeploymentStatus.updatedReplicas"),
            Column("Available", "string", "@apps.v1.DeploymentStatus.availableReplicas"),
            AGE,
            _CONTAINERS,
            _IMAGES,
            Column("Selector", "string", "@apps.v1.DeploymentSpec.selector", 1),
        ),
        _deployment,
    ),
    ("apps", "StatefulSet"): printer((_READY, AGE, _CONTAINERS, _IMAGES), _stateful_set),
    ("apps", "ControllerRevision"): printer(
        (
            Column("Controller", "string", "Controller of the object"),
            Column("Revision", "string", "@apps.v1.ControllerRevision.revision"),
            AGE,
        ),
        _revision,
    ),
    ("batch", "Job"): printer(
        (
            Column("Status", "string", "Status of the job."),
            Column("Completions", "string", "@batch.v1.JobStatus.succeeded"),
            Column("Duration", "string", "Time required to complete the job."),
            AGE,
            _CONTAINERS,
            _IMAGES,
            Column("Selector", "string", "@batch.v1.JobSpec.selector", 1),
        ),
        _job,
    ),
    ("batch", "CronJob"): printer(
        (
            Column("Schedule", "string", "@batch.v1.CronJobSpec.schedule"),
            Column("Timezone", "string", "@batch.v1.CronJobSpec.timeZone"),
            Column("Suspend", "boolean", "@batch.v1.CronJobSpec.suspend"),
            Column("Active", "integer", "@batch.v1.CronJobStatus.active"),
            Column("Last Schedule", "string", "@batch.v1.CronJobStatus.lastScheduleTime"),
            AGE,
            _CONTAINERS,
            _IMAGES,
            Column("Selector", "string", "@batch.v1.JobSpec.selector", 1),
        ),
        _cron_job,
    ),
    ("rbac.authorization.k8s.io", "Role"): printer((CREATED_AT,), _role),
    ("rbac.authorization.k8s.io", "ClusterRole"): printer((CREATED_AT,), _role),
    ("rbac.authorization.k8s.io", "RoleBinding"): _binding("rbac.v1.RoleBinding"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _binding("rbac.v1.ClusterRoleBinding"),
}
