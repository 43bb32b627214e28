"""The API objects of a run. All objects that a benchmark creates have one label, by which they are removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from agent_scheduler.objects.batch import API_VERSION as BATCH_API
from agent_scheduler.objects.batch import GROUP_NAME
from apimachinery.quantity import resource_value

from .model import ZONE, ZONES, Gang, Nodes, Template
from .specs import NodeSpec, PodSpec

#: The label of all created objects, with the value `true`; a taint of this name keeps other pods off created nodes.
MARK = "agent-scheduler.io/bench"
MARKED = {MARK: "true"}
#: The DeviceClass whose devices `Nodes.devices` counts, and the template of claims for one of them.
DEVICE_CLASS = "bench.agent-scheduler.io"
CLAIM_TEMPLATE = "one-device"
#: Seconds for which a simulated kubelet lets a pod run.
RUN_SECONDS = "agent-scheduler.io/run-seconds"
HIGH, LOW = "agent-scheduler-bench-high", "agent-scheduler-bench-low"

#: The schedulerName of pods in gangs.
BATCH_SCHEDULER = "volcano"

_NAME, _GROUP = "@name@", "@group@"
#: Nodes without a kubelet lose Ready after a while; pods of a benchmark must be bound to them nevertheless.
_TOLERATIONS = (
    {"key": MARK, "operator": "Exists"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists"},
    {"key": "node.kubernetes.io/network-unavailable", "operator": "Exists"},
    {"key": "node.cloudprovider.kubernetes.io/uninitialized", "operator": "Exists"},
)


def encode(obj: Mapping[str, Any]) -> bytes:
    return json.dumps(obj, separators=(",", ":")).encode()


def pod_maker(
    template: Template, *, scheduler_name: str, selector: Mapping[str, str] | None = None, in_group: bool = False
) -> Callable[[str], bytes]:
    """Return a function from a pod's name to its body, which the function `in_group` completes if `in_group` is set.

    `selector` restricts the pod to nodes with these labels, and makes it tolerate nodes that were created for
    benchmarks.
    """
    container = {
        "name": "agent",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {
            "requests": dict(template.requests),
            # The API requires limits of extended resources that equal the requests.
            "limits": {name: amount for name, amount in template.requests.items() if "/" in name},
        },
    }
    spec: dict[str, Any] = {
        "schedulerName": scheduler_name,
        # Deleted at once even if no kubelet reports that the containers have stopped.
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": [container],
        **template.spec,
    }
    if selector is not None:
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **selector}
        spec["tolerations"] = [*spec.get("tolerations", ()), *_TOLERATIONS]
    metadata: dict[str, Any] = {"name": _NAME, "labels": {**MARKED, **template.labels}}
    annotations = {**template.annotations, **({GROUP_NAME: _GROUP} if in_group else {})}
    if annotations:
        metadata["annotations"] = annotations
    if template.finalizers:
        metadata["finalizers"] = list(template.finalizers)
    head, tail = encode({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).split(_NAME.encode())
    return lambda name: head + name.encode() + tail


def in_group(body: bytes, group: str) -> bytes:
    """Return the pod as a member of that PodGroup."""
    return body.replace(_GROUP.encode(), group.encode(), 1)


def pod_group(name: str, gang: Gang) -> dict[str, Any]:
    minimum = gang.size if gang.minimum is None else gang.minimum
    return {
        "apiVersion": BATCH_API,
        "kind": "PodGroup",
        "metadata": {"name": name, "labels": MARKED},
        "spec": {"minMember": minimum, "queue": gang.queue},
        "status": {"phase": "Pending"},
    }


def queue(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "labels": MARKED}
    return {"apiVersion": BATCH_API, "kind": "Queue", "metadata": metadata, "spec": dict(spec)}


def quantity(resource: str, amount: int) -> str:
    """Return an amount in the scheduler's unit as a Kubernetes quantity: `cpu` is in millicores."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    return f"{amount >> 20}Mi" if amount and amount % (1 << 20) == 0 else str(amount)


def template_of(pod: PodSpec) -> Template:
    """Return the pod of a workload without its name and arrival; a simulated kubelet ends it after its life."""
    spec: dict[str, Any] = {"restartPolicy": "Never"}
    if pod.affinity:
        expressions = [
            {"key": label, "operator": "In", "values": list(values)} for label, values in pod.affinity.items()
        ]
        required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    annotations = dict(pod.annotations)
    if pod.life is not None:
        annotations[RUN_SECONDS] = f"{pod.life:.3f}"
    requests = {name: quantity(name, amount) for name, amount in pod.requests.items()}
    return Template(requests=requests, labels=pod.labels, annotations=annotations, spec=spec)


def amounts(template: Template) -> dict[str, int]:
    """Return the pod's usage of its node, in the scheduler's units."""
    taken = {name: resource_value(name, text) for name, text in template.requests.items()}
    taken["pods"] = 1
    return taken


def node_name(number: int) -> str:
    return f"bench-{number:06d}"


def node(nodes: Nodes, number: int, *, empty: bool = False) -> dict[str, Any]:
    """Return a node without a kubelet: ready, in one of three zones, tainted for all pods except those of benchmarks.

    It has no label of an operating system, so that daemons that select one ignore it. If `empty` it has no allocatable.
    """
    name = node_name(number)
    has = {"cpu": nodes.cpu, "memory": nodes.memory, "pods": str(nodes.pods)}
    if empty:
        has = dict.fromkeys(has, "0")
    labels = {"kubernetes.io/hostname": name, ZONE: ZONES[number % len(ZONES)]}
    return _node(name, has, labels)


def given_node(spec: NodeSpec) -> dict[str, Any]:
    """Return a node of a trace."""
    has = {resource: quantity(resource, amount) for resource, amount in spec.allocatable().items()}
    return _node(spec.name, has, {"kubernetes.io/hostname": spec.name, **spec.labels})


def _node(name: str, has: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**MARKED, **labels}},
        "spec": {"taints": [{"key": MARK, "value": "true", "effect": "NoSchedule"}]},
        "status": {
            "capacity": has,
            "allocatable": has,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": MARKED},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
    }


def priority_classes() -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name, "labels": MARKED},
            "value": value,
            "description": "of a scheduler's benchmark",
        }
        for name, value in ((HIGH, 1000), (LOW, 1))
    ]


def device_class() -> dict[str, Any]:
    return {
        "metadata": {"name": DEVICE_CLASS, "labels": MARKED},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DEVICE_CLASS}'"}}]},
    }


def resource_slice(node: str, devices: int) -> dict[str, Any]:
    """Return the devices of one node."""
    return {
        "metadata": {"name": f"{node}-bench", "labels": MARKED},
        "spec": {
            "driver": DEVICE_CLASS,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"device-{number}"} for number in range(devices)],
        },
    }


def claim_template() -> dict[str, Any]:
    request = {"name": "device", "exactly": {"deviceClassName": DEVICE_CLASS}}
    return {
        "metadata": {"name": CLAIM_TEMPLATE, "labels": MARKED},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
