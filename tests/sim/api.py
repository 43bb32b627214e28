"""The API's objects as worlds name, read and make them: kinds, paths, and the bodies of nodes and pods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from embedded_kubernetes.store import Record, Store

Json = dict[str, Any]
Body = dict[str, Any]
#: What users do in time: (seconds from the start, method, path, body).
Acts = list[tuple[float, str, str, Body | None]]
#: Group and plural of kinds.
PODS, NODES, EVENTS = ("", "pods"), ("", "nodes"), ("", "events")
LEASES = ("coordination.k8s.io", "leases")
PODS_PATH = "/api/v1/namespaces/default/pods"
CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
#: Phases of pods that have ended.
FINAL = ("Succeeded", "Failed")


def objects(store: Store, kind: tuple[str, str], namespace: str = "") -> list[Json]:
    """All of a kind as they are; none of a kind that is not known."""
    table = store.tables.get(kind)
    return [] if table is None else [content(record) for record in table.scan(namespace)]


def content(record: Record) -> Any:
    """The object that it is of."""
    return orjson.loads(record.data)


def some_of(mapping: Json, *keys: str) -> Json:
    """What it has of these."""
    return {key: mapping[key] for key in keys if key in mapping}


def name_of(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def uid_of(obj: Json) -> str:
    return str(obj["metadata"]["uid"])


def node_of(pod: Json) -> str:
    """Empty for one that has none."""
    return pod["spec"].get("nodeName") or ""


def is_named(node: str) -> Body:
    """The requirement of a term that only this node meets."""
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def limit(pod: Body, resource: str, amount: int) -> None:
    """Have its container ask for so much of what may not be shared, as the API server writes it."""
    resources = pod["spec"]["containers"][0]["resources"]
    resources["limits"] = {resource: str(amount)}
    resources["requests"] |= resources["limits"]


def condition_of(pod: Json) -> Json:
    """What it says of its being scheduled."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((each for each in reversed(conditions) if each["type"] == "PodScheduled"), {})


def reason_of(pod: Json) -> str:
    return str(condition_of(pod).get("reason", ""))


@dataclass
class Load:
    """Nodes that are there from the beginning, pods with the seconds from the start at which they come, and `acts`."""

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
    """`lives`: the seconds that it runs before it succeeds; None: until it is deleted."""
    annotations = {} if lives is None else {"agent-scheduler.io/run-seconds": str(lives)}
    requests = {"cpu": f"{cpu}m", "memory": memory}
    container: Body = {"name": "c", "image": "i", "resources": {"requests": requests}}
    if port := spec.pop("host_port", None):
        container["ports"] = [{"containerPort": 80, "hostPort": port}]
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"schedulerName": "agent-scheduler", "containers": [container], **spec},
    }
