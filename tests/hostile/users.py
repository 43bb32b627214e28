"""Ordinary pods, groups and claims that use a hostile object, so that its content counts in decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .drawing import Object
from .kinds import GROUP, HOSTILE_KINDS, pod_spec
from .objects import Hostile

_GROUPS = "podgroups.scheduling.volcano.sh"


def users(used: Hostile, *, scheduler: str = "agent-scheduler", batch: str = "volcano") -> Iterator[Hostile]:
    """Yield what uses the object: with the names of the schedulers of single pods and of groups."""
    name, resource = used.name, used.kind.resource

    def made(resource: str, suffix: str, body: Object) -> Hostile:
        kind = HOSTILE_KINDS[resource]
        metadata = {**body.get("metadata", {}), "name": f"{name}-{suffix}"}
        whole = {"apiVersion": kind.version, "kind": kind.kind, **body, "metadata": metadata}
        return Hostile(kind, "user", (), whole, namespace=used.namespace)

    def pod(number: int, annotations: Object | None = None, *, of: str = scheduler, **spec: Any) -> Hostile:
        body = {"metadata": {"annotations": annotations or {}}, "spec": pod_spec(**{**spec, "schedulerName": of})}
        return made("pods", f"p{number}", body)

    if resource == _GROUPS:
        yield from (pod(number, {GROUP: name}, of=batch) for number in range(2))
    elif resource == "podgroups.scheduling.k8s.io":
        yield from (pod(number, schedulingGroup={"podGroupName": name}) for number in range(2))
    elif resource == "queues.scheduling.volcano.sh":
        yield made(_GROUPS, "g", {"spec": {"minMember": 1, "queue": name}})
        yield pod(0, {GROUP: f"{name}-g"}, of=batch)
    elif resource == "resourceclaims.resource.k8s.io":
        yield pod(0, resourceClaims=[{"name": "r", "resourceClaimName": name}])
    elif resource == "deviceclasses.resource.k8s.io":
        devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": name}}]}
        yield made("resourceclaims.resource.k8s.io", "c", {"spec": {"devices": devices}})
        yield pod(0, resourceClaims=[{"name": "r", "resourceClaimName": f"{name}-c"}])
    elif resource == "persistentvolumeclaims":
        yield pod(0, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}])
    elif resource == "storageclasses.storage.k8s.io":
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": name, "resources": {"requests": {"storage": "1"}}}
        yield made("persistentvolumeclaims", "c", {"spec": spec})
        yield pod(0, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": f"{name}-c"}}])
