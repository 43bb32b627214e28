"""The plugin `svc`: host names of pods, a ConfigMap of them, and a NetworkPolicy that admits only the Job's pods."""

from __future__ import annotations

from typing import Final

from agent_scheduler.objects.job import Job, TaskSpec
from agent_scheduler.objects.job_pod import JOB_NAME, JOB_NAMESPACE

from ..pods import owner_of
from ..states import tasks_of
from .parts import Body, add_env, add_mount, add_volume, all_containers, hosts, is_true

_MOUNT_PATH: Final = "/etc/volcano"


def change(job: Job, task: TaskSpec, index: int, pod: Body, given: dict[str, str]) -> None:
    spec, name = pod["spec"], _map_name(job)
    spec["hostname"] = spec.get("hostname") or pod["metadata"]["name"]
    spec["subdomain"] = spec.get("subdomain") or job.metadata.name
    add_volume(pod, {"name": name, "configMap": {"name": name}})
    for container in all_containers(pod):
        add_mount(container, {"name": name, "mountPath": _MOUNT_PATH})
    if is_true(given.get("inject-hosts-env", "true")):
        keys = (f"VC_{_upper(each)}_{part}" for each in tasks_of(job) for part in ("HOSTS", "NUM"))
        some = ({"name": key, "valueFrom": {"configMapKeyRef": {"name": name, "key": key}}} for key in keys)
        add_env(all_containers(pod), *some)


def objects(job: Job, given: dict[str, str]) -> list[Body]:
    data: dict[str, str] = {}
    for task in tasks_of(job):
        names = hosts(job, task)
        data[f"{_name(task)}.host"] = "\n".join(names)
        data[f"VC_{_upper(task)}_HOSTS"] = ",".join(names)
        data[f"VC_{_upper(task)}_NUM"] = str(len(names))
    labels = {JOB_NAME: job.metadata.name, JOB_NAMESPACE: job.metadata.namespace}
    service: Body = {"clusterIP": "None", "selector": labels}
    if is_true(given.get("publish-not-ready-addresses", "")):
        service["publishNotReadyAddresses"] = True
    found = [
        _object(job, "v1", "ConfigMap", _map_name(job), {"data": data}),
        _object(job, "v1", "Service", job.metadata.name, {"spec": service}),
    ]
    if not is_true(given.get("disable-network-policy", "")):
        policy = {
            "podSelector": {"matchLabels": labels},
            "ingress": [{"from": [{"podSelector": {"matchLabels": labels}}]}],
            "policyTypes": ["Ingress"],
        }
        kind = ("networking.k8s.io/v1", "NetworkPolicy")
        found.append(_object(job, *kind, job.metadata.name, {"spec": policy}))
    return found


def _object(job: Job, version: str, kind: str, name: str, rest: Body) -> Body:
    metadata = {"name": name, "namespace": job.metadata.namespace, "ownerReferences": [owner_of(job)]}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def _map_name(job: Job) -> str:
    return f"{job.metadata.name}-svc"


def _name(task: TaskSpec) -> str:
    """Return a task's name as used in keys of the ConfigMap and in variables."""
    return task.name.replace("-", "_")


def _upper(task: TaskSpec) -> str:
    return _name(task).upper()
