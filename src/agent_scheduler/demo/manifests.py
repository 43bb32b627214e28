"""Specs as API objects, encoded once each: what `load` sends."""

from __future__ import annotations

from typing import Any

import orjson

from .specs import NodeSpec, PodSpec

#: How long a simulated kubelet lets a pod run, in seconds.
RUN_SECONDS_ANNOTATION = "agent-scheduler.io/run-seconds"


def quantity(resource: str, amount: int) -> str:
    """An amount in the scheduler's unit as a Kubernetes quantity: `cpu` is in millicores."""
    if resource == "cpu" and amount % 1000:
        return f"{amount}m"
    if resource == "cpu":
        return str(amount // 1000)
    if amount and amount % (1 << 20) == 0:
        return f"{amount >> 20}Mi"
    return str(amount)


def node_object(spec: NodeSpec) -> bytes:
    """A ready, untainted node with `spec`'s allocatable as its capacity too."""
    amounts = {resource: quantity(resource, amount) for resource, amount in spec.allocatable().items()}
    return orjson.dumps(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": spec.name,
                "labels": {
                    "kubernetes.io/hostname": spec.name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    **spec.labels,
                },
            },
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }
    )


def pod_object(spec: PodSpec, *, namespace: str, scheduler_name: str) -> bytes:
    """A pod of one container that asks for `spec.requests`."""
    requests = {resource: quantity(resource, amount) for resource, amount in spec.requests.items()}
    # Extended resources are not overcommitted: the API wants limits equal to requests.
    limits = {resource: amount for resource, amount in requests.items() if "/" in resource}
    annotations = dict(spec.annotations)
    if spec.life is not None:
        annotations[RUN_SECONDS_ANNOTATION] = f"{spec.life:.3f}"
    pod_spec: dict[str, Any] = {
        "schedulerName": scheduler_name,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}
        ],
    }
    if limits:
        pod_spec["containers"][0]["resources"]["limits"] = limits
    if spec.affinity:
        expressions = [
            {"key": label, "operator": "In", "values": list(values)}
            for label, values in spec.affinity.items()
        ]
        pod_spec["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": expressions}]
                }
            }
        }
    return orjson.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": spec.name,
                "namespace": namespace,
                "labels": dict(spec.labels),
                "annotations": annotations,
            },
            "spec": pod_spec,
        }
    )
