"""Builders of Kubernetes objects: plain dicts, as a user writes them, or with `stored`, as a server does.

Each builder has parameters for what tests vary; other keywords become fields of `spec`. All of them accept the
metadata's fields of `metadata`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Object = dict[str, Any]

BATCH = "batch.volcano.sh/v1alpha1"
SCHEDULING = "scheduling.volcano.sh/v1beta1"
SHARD = "shard.volcano.sh/v1alpha1"
#: The annotation with which a pod, or its template, names its PodGroup.
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
GPU = "agent-scheduler.io/gpu-milli"

_numbers = itertools.count(1)


def metadata(
    name: str = "",
    *,
    namespace: str = "",
    uid: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owners: Sequence[Object] | None = None,
    finalizers: Sequence[str] | None = None,
    generate_name: str = "",
    version: str | int = "",
    generation: int | None = None,
    created: str = "",
    deleted: str = "",
) -> Object:
    """Return `ObjectMeta` with the given fields. `created` and `deleted` are RFC 3339, `version` is resourceVersion."""
    found = {
        "name": name,
        "generateName": generate_name,
        "namespace": namespace,
        "uid": uid,
        "resourceVersion": str(version),
        "generation": generation,
        "creationTimestamp": created,
        "deletionTimestamp": deleted,
        "labels": None if labels is None else dict(labels),
        "annotations": None if annotations is None else dict(annotations),
        "ownerReferences": None if owners is None else list(owners),
        "finalizers": None if finalizers is None else list(finalizers),
    }
    return {field: value for field, value in found.items() if value not in (None, "")}


_METADATA = frozenset(metadata.__kwdefaults__)


def make(kind: str, version: str, name: str, more: Mapping[str, Any], *, status: Object | None = None) -> Object:
    """Return an object whose metadata and spec are taken from `more`."""
    about = {field: more[field] for field in more if field in _METADATA}
    spec = {field: more[field] for field in more if field not in _METADATA}
    body: Object = {"apiVersion": version, "kind": kind, "metadata": metadata(name, **about), "spec": spec}
    return body if status is None else {**body, "status": status}


def stored(body: Object, *, uid: str = "", version: str | int = 1, created: str = "2026-01-01T00:00:00Z") -> Object:
    """Return `body` as a server stores it: with a UID (derived from its name), a resourceVersion and a time."""
    kept = body["metadata"]
    about = {"uid": uid or f"uid-{kept.get('name', next(_numbers))}", "resourceVersion": str(version)}
    return {**body, "metadata": {"creationTimestamp": created, **about, **kept}}


def container(
    name: str = "c",
    *,
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    ports: Iterable[int | Object] = (),
    **more: Any,
) -> Object:
    """Return a container; `ports` are host ports, or whole entries."""
    resources = {"requests": requests and dict(requests), "limits": limits and dict(limits)}
    found: Object = {"name": name, "image": "i", **more}
    if kept := {field: value for field, value in resources.items() if value is not None}:
        found["resources"] = kept
    entries = [{"containerPort": port, "hostPort": port} if isinstance(port, int) else dict(port) for port in ports]
    return {**found, "ports": entries} if entries else found


def pod(
    name: str = "",
    *,
    cpu: str = "100m",
    memory: str = "",
    requests: Mapping[str, str] | None = None,
    ports: Iterable[int | Object] = (),
    scheduler: str = "agent-scheduler",
    node: str = "",
    gates: Iterable[str] = (),
    group: str = "",
    phase: str = "",
    conditions: Sequence[Object] | None = None,
    status: Object | None = None,
    **more: Any,
) -> Object:
    """Return a pod with one container that requests `cpu` and `memory`, or exactly `requests`.

    `node` is spec.nodeName, `gates` are names of scheduling gates, `group` is the PodGroup in its annotation.
    """
    if requests is None:
        requests = {"cpu": cpu, "memory": memory} if memory else {"cpu": cpu}
    if group:
        more["annotations"] = {GROUP_ANNOTATION: group, **(more.get("annotations") or {})}
    spec: Object = {"schedulerName": scheduler, "containers": [container(requests=requests, ports=ports)]}
    if node:
        spec["nodeName"] = node
    if named := [{"name": gate} for gate in gates]:
        spec["schedulingGates"] = named
    about = {"phase": phase or None, "conditions": conditions}
    now = {field: value for field, value in about.items() if value is not None} | (status or {})
    return make("Pod", "v1", name, {**spec, **more}, status=now or None)


def condition(kind: str, status: str, reason: str = "", message: str = "") -> Object:
    found = {"type": kind, "status": status, "reason": reason, "message": message}
    return {field: value for field, value in found.items() if value}


def node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str = "110",
    extended: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    ready: bool | None = None,
    conditions: Sequence[Object] | None = None,
    status: Object | None = None,
    **more: Any,
) -> Object:
    """Return a node with a hostname label. `extended` are further resources, `ready` is its Ready condition."""
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, **(extended or {})}
    about: Object = {"allocatable": amounts, "capacity": amounts}
    said = list(conditions or ())
    if ready is not None:
        said.append(condition("Ready", "True" if ready else "False"))
    if said:
        about["conditions"] = said
    more["labels"] = {"kubernetes.io/hostname": name, **(labels or {})}
    return make("Node", "v1", name, more, status={**about, **(status or {})})


def queue(name: str, *, status: Object | None = None, **more: Any) -> Object:
    """Return a Queue of Volcano; `more` is its spec: capability, guarantee, deserved, parent, weight, reclaimable..."""
    return make("Queue", SCHEDULING, name, more, status=status)


def pod_group(
    name: str,
    *,
    minimum: int | None = None,
    queue: str = "",
    phase: str = "",
    status: Object | None = None,
    **more: Any,
) -> Object:
    """Return a PodGroup of Volcano. `minimum` is spec.minMember, `phase` status.phase."""
    spec = {"minMember": minimum, "queue": queue or None}
    more = {**{field: value for field, value in spec.items() if value is not None}, **more}
    now = {**({"phase": phase} if phase else {}), **(status or {})}
    return make("PodGroup", SCHEDULING, name, more, status=now or None)


def native_group(name: str, minimum: int, **more: Any) -> Object:
    """Return a PodGroup of Kubernetes: a gang of `minimum` pods."""
    policy = {"gang": {"minCount": minimum}}
    return make("PodGroup", "scheduling.k8s.io/v1alpha2", name, {"schedulingPolicy": policy, **more})


def task(
    name: str, replicas: int = 1, minimum: int | None = None, *, template: Object | None = None, **more: Any
) -> Object:
    """Return a task of a Volcano Job. `template` is its pods' spec, by default one container that requests 1 CPU."""
    spec = template or {"containers": [container(requests={"cpu": "1"})]}
    least = {} if minimum is None else {"minAvailable": minimum}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **least, **more}


def job(name: str, *tasks: Object, minimum: int | None = None, status: Object | None = None, **more: Any) -> Object:
    """Return a Job of Volcano. `minimum` is spec.minAvailable."""
    least = {} if minimum is None else {"minAvailable": minimum}
    spec = {"schedulerName": "volcano", "tasks": list(tasks), **least}
    return make("Job", BATCH, name, {**spec, **more}, status=status)


def owner(body: Object, *, controller: bool = True) -> Object:
    """Return the reference to `body` from an object that it owns."""
    about = body["metadata"]
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "name": about["name"],
        "uid": about.get("uid", f"uid-{about['name']}"),
        "controller": controller,
    }


def node_shard(name: str, nodes: Iterable[str], *, status: Object | None = None, **more: Any) -> Object:
    return make("NodeShard", SHARD, name, {"nodesDesired": list(nodes), **more}, status=status)


def in_queue(name: str) -> dict[str, str]:
    """Return the annotation with which a pod names its queue."""
    return {"scheduling.volcano.sh/queue-name": name}


def collection(body: Object) -> str:
    """Return the path of the collection for this object's kind, in its namespace if it has one."""
    kind, version = body["kind"], body["apiVersion"]
    plural = re.sub("y$", "ie", re.sub("s$", "se", kind.lower())) + "s"
    namespace = body["metadata"].get("namespace")
    cluster_wide = kind.startswith("Cluster") or kind.endswith(("Configuration", "Schema"))
    inside = f"namespaces/{namespace}/" if namespace and not cluster_wide else ""
    return f"/{'api' if version == 'v1' else 'apis'}/{version}/{inside}{plural}"
