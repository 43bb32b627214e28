"""Reads a pod's group, role, queue and gate.

They come from the annotations and labels of Volcano's API and from `spec.schedulingGroup` (scheduling.k8s.io/v1alpha2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from agent_scheduler.objects import wire
from agent_scheduler.objects.batch import PREEMPTABLE, TASK_SPEC

#: The values that Go's strconv.ParseBool parses as true; Volcano treats all others as false.
_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_INT32: Final = 2**31


class GroupKey(NamedTuple):
    """The identity of a PodGroup: Kubernetes' own (`native`, scheduling.k8s.io) or Volcano's."""

    namespace: str
    name: str
    native: bool = False

    @property
    def text(self) -> str:
        """`namespace/name`, with the API group of a native one, since groups of both kinds may have the same name."""
        return f"{self.namespace}/{self.name}{' (scheduling.k8s.io)' if self.native else ''}"


class BatchInfo(msgspec.Struct, frozen=True, gc=False):
    """The batch fields of a pod that sets at least one of them."""

    #: The group that the pod names; it may not exist.
    group: GroupKey | None = None
    #: `volcano.sh/task-spec`, the role for minimums per role; empty for none.
    role: str = ""
    #: `volcano.sh/task-index`: the pod's number in its role.
    index: int | None = None
    #: `volcano.sh/task-priority`, which replaces the pod's priority among the members of its group.
    priority: int | None = None
    #: `scheduling.volcano.sh/queue-name`; empty for the queue of its group or namespace.
    queue: str = ""
    #: Whether the scheduler may remove the gate of the queue (`scheduling.volcano.sh/queue-allocation-gate`).
    gate_managed: bool = False
    #: Whether the pod may be evicted for other jobs.
    preemptable: bool = True
    #: `status.phase`; groups count Running, Succeeded and Failed.
    phase: str = ""


_NOTHING: Final = wire.PodAnnotations()

#: The labels that are read in addition to annotations.
BATCH_LABELS: Final = frozenset((TASK_SPEC, PREEMPTABLE))


def batch_info(pod: wire.Pod, labels: Mapping[str, str]) -> BatchInfo | None:
    """Return the batch fields of a pod, or None if it sets none. Labels give role and preemptable without annotations.

    Two annotations name a group. Volcano's scheduler reads only the first, its controllers both. A pod that names a
    Volcano group and a native one belongs to the Volcano group.
    """
    said, native = pod.metadata.annotations, pod.spec.scheduling_group
    if (said is None or _says_nothing(said)) and native is None and BATCH_LABELS.isdisjoint(labels):
        return None
    said = said or _NOTHING
    name = said.group_name or said.volcano_group_name
    group = None
    if name:
        group = GroupKey(pod.metadata.namespace, name)
    elif native is not None and native.pod_group_name:
        group = GroupKey(pod.metadata.namespace, native.pod_group_name, native=True)
    preemptable = said.preemptable if said.preemptable is not None else labels.get(PREEMPTABLE)
    return BatchInfo(
        group,
        said.task_spec or labels.get(TASK_SPEC, ""),
        _int32(said.task_index),
        _int32(said.task_priority),
        said.queue_name,
        said.queue_allocation_gate == "true",
        preemptable is None or preemptable in _TRUE,
        pod.status.phase,
    )


def _says_nothing(said: wire.PodAnnotations) -> bool:
    return (replace(said, gpu_index="") if said.gpu_index else said) == _NOTHING


def _int32(text: str) -> int | None:
    """Parse as Go's strconv.ParseInt(text, 10, 32) does; None if that fails."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 10:
        return None
    number = int(text)
    return number if -_INT32 <= number < _INT32 else None
