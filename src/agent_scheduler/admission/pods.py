"""Defaults of pods that are created: the gate of their queue, and the settings of resource groups.

A pod with the annotation `scheduling.volcano.sh/queue-allocation-gate: "true"` gets the scheduling gate of that name,
which the batch scheduler removes when its queue has room. Only pods of `PodRules.schedulers` get it, since nothing
would remove it from others; Volcano gives it to all. The scheduler of a resource group counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE
from agent_scheduler.objects.wire import SchedulingGate
from apimachinery.wire import Wire

from .review import CREATE, AdmissionRequest, AdmissionResponse, JsonPatchOperation, allowed_with, object_of, refused

#: The annotation of a pod with its resource group, unless the group has another condition.
RESOURCE_GROUP: Final = "volcano.sh/resource-group"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceGroup:
    """The settings for pods of these namespaces or with one of these annotations.

    `affinity` applies to pods without affinity. `labels` override those of the pod's node selector.
    """

    namespaces: frozenset[str] = frozenset()
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    affinity: Mapping[str, Any] | None = None
    tolerations: tuple[Mapping[str, Any], ...] = ()
    scheduler_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRules:
    """`schedulers` are the names of those that remove the gate; `gates` is false to add none.

    A pod is in the first matching one of `groups`.
    """

    schedulers: frozenset[str]
    gates: bool = True
    groups: tuple[ResourceGroup, ...] = ()


_NULL: Final = msgspec.Raw(b"null")


class _MutatedPodMetadata(Wire, frozen=True):
    namespace: str = ""
    annotations: dict[str, str] | None = None


class _MutatedPodSpec(Wire, frozen=True):
    scheduler_name: str = ""
    #: None if there is no list, to which nothing could be appended.
    scheduling_gates: list[SchedulingGate] | None = None
    node_selector: dict[str, str] | None = None
    affinity: msgspec.Raw = _NULL
    tolerations: list[msgspec.Raw] | None = None


class _MutatedPod(Wire, frozen=True):
    metadata: _MutatedPodMetadata = _MutatedPodMetadata()
    spec: _MutatedPodSpec = _MutatedPodSpec()


_read = msgspec.json.Decoder(_MutatedPod).decode
_GATES: Final = "/spec/schedulingGates"


def mutate(request: AdmissionRequest, rules: PodRules) -> AdmissionResponse:
    pod = object_of(request.object, _read)
    if request.operation != CREATE:
        return refused("expect operation to be 'CREATE' ")
    group = _group_of(pod, request.namespace, rules)
    scheduler = (group.scheduler_name if group is not None else "") or pod.spec.scheduler_name
    patch: list[JsonPatchOperation] = []
    if rules.gates and scheduler in rules.schedulers:
        patch += _gated(pod)
    if group is not None:
        patch += _grouped(pod.spec, group)
    return allowed_with(patch)


def _gated(pod: _MutatedPod) -> Iterator[JsonPatchOperation]:
    if (pod.metadata.annotations or {}).get(QUEUE_ALLOCATION_GATE) != "true":
        return
    gate, gates = {"name": QUEUE_ALLOCATION_GATE}, pod.spec.scheduling_gates
    if gates is None:
        yield JsonPatchOperation("add", _GATES, [gate])
    elif not any(each.name == QUEUE_ALLOCATION_GATE for each in gates):
        yield JsonPatchOperation("add", f"{_GATES}/-", gate)


def _group_of(pod: _MutatedPod, namespace: str, rules: PodRules) -> ResourceGroup | None:
    namespace = pod.metadata.namespace or namespace
    annotations = pod.metadata.annotations or {}
    for group in rules.groups:
        if namespace in group.namespaces or any(
            annotations.get(key) == value for key, value in group.annotations.items()
        ):
            return group
    return None


def _grouped(spec: _MutatedPodSpec, group: ResourceGroup) -> Iterator[JsonPatchOperation]:
    if group.labels:
        yield JsonPatchOperation("add", "/spec/nodeSelector", {**(spec.node_selector or {}), **group.labels})
    if group.affinity is not None and spec.affinity == _NULL:
        yield JsonPatchOperation("add", "/spec/affinity", group.affinity)
    if group.tolerations:
        yield JsonPatchOperation("add", "/spec/tolerations", [*(spec.tolerations or ()), *group.tolerations])
    if group.scheduler_name:
        yield JsonPatchOperation("add", "/spec/schedulerName", group.scheduler_name)
