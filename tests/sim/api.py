"""The API's objects as worlds name, read and create them: kinds, paths, and the bodies of nodes and pods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from embedded_kubernetes.store import Record, Store

Json = dict[str, Any]
Body = dict[str, Any]
#: Requests of users: (seconds from the start, method, path, body).
Acts = list[tuple[float, str, str, Body | None]]
#: Group and plural of kinds.
PODS, NODES, EVENTS = ("", "pods"), ("", "nodes"), ("", "events")
LEASES = ("coordination.k8s.io", "leases")
PODS_PATH = "/api/v1/namespaces/default/pods"
CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
#: The namespace of hostile tenants, and the beginning of the names of all of their objects.
HOSTILE = "hostile"
MERGE = "application/merge-patch+json"
#: Phases of ended pods.
FINAL = ("Succeeded", "Failed")


def objects(store: Store, kind: tuple[str, str], namespace: str = "") -> list[Json]:
    """Return all current objects of a kind; none if the kind is unknown. Of hostile ones, only pods are included."""
    table = store.tables.get(kind)
    if table is None:
        return []
    return [content(record) for record in table.scan(namespace) if kind == PODS or not is_hostile(record)]


def is_hostile(record: Record) -> bool:
    """Return whether the object is one of hostile tenants, or was created for one."""
    return record.name.startswith(HOSTILE) or record.namespace == HOSTILE


def content(record: Record) -> Any:
    """Return the record's object."""
    return orjson.loads(record.data)


def some_of(mapping: Json, *keys: str) -> Json:
    """Return the given keys that the mapping has."""
    return {key: mapping[key] for key in keys if key in mapping}


def name_of(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def uid_of(obj: Json) -> str:
    return str(obj["metadata"]["uid"])


def node_of(pod: Json) -> str:
    """Return the name of the pod's node; empty if it has none."""
    return pod["spec"].get("nodeName") or ""


def is_named(node: str) -> Body:
    """Return the requirement of a term that only this node meets."""
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def limit(pod: Body, resource: str, amount: int) -> None:
    """Set request and limit of the container's resource that cannot be overcommitted, as the API server does."""
    resources = pod["spec"]["containers"][0]["resources"]
    resources["limits"] = {resource: str(amount)}
    resources["requests"] |= resources["limits"]


def condition_of(pod: Json) -> Json:
    """Return the pod's condition PodScheduled; empty if there is none."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((each for each in reversed(conditions) if each["type"] == "PodScheduled"), {})


def reason_of(pod: Json) -> str:
    return str(condition_of(pod).get("reason", ""))


@dataclass
class Load:
    """Nodes that exist from the start, pods with their creation time in seconds from the start, and `acts`."""

    nodes: list[Body] = field(default_factory=list)
    pods: list[tuple[float, Body]] = field(default_factory=list)
    acts: Acts = field(default_factory=list)

    def act(self, at: float, method: str, path: str, body: Body | None = None) -> None:
        self.acts.append((at, method, path, body))


def node(name: str, *, cpu: int = 4, memory: str = "8Gi", pods: int = 20, **spec: Any) -> Body:
    allocatable = {"cpu": str(cpu), "memory": memory, "pods": str(pods)}
    metadata = {"name": name, "labels": spec.pop("labels", {})}
    status = {"allocatable": allocatable, "capacity": allocatable}
    return {"metadata": metadata, "spec": spec, "status": status}


def pod(name: str, *, cpu: int = 100, memory: str = "64Mi", lives: float | None = None, **spec: Any) -> Body:
    """Return the body of a pod that succeeds after `lives` seconds; None: that runs until it is deleted."""
    annotations = {} if lives is None else {"agent-scheduler.io/run-seconds": str(lives)}
    requests = {"cpu": f"{cpu}m", "memory": memory}
    container: Body = {"name": "c", "image": "i", "resources": {"requests": requests}}
    if port := spec.pop("host_port", None):
        container["ports"] = [{"containerPort": 80, "hostPort": port}]
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"schedulerName": "agent-scheduler", "containers": [container], **spec},
    }
