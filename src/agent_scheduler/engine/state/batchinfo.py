"""What a pod says of its part in a batch: its group, role, queue and gate.

From the annotations of Volcano's API and from `spec.schedulingGroup` (scheduling.k8s.io/v1alpha2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from agent_scheduler.objects import wire
from agent_scheduler.objects.batch import PREEMPTABLE, TASK_SPEC

#: What Go's strconv.ParseBool takes for true; all else that Volcano is told counts as false.
_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_INT32: Final = 2**31


class GroupKey(NamedTuple):
    """Which PodGroup: Kubernetes' own (`native`, scheduling.k8s.io) or Volcano's."""

    namespace: str
    name: str
    native: bool = False

    @property
    def text(self) -> str:
        """`namespace/name`, and which kind where it is not Volcano's: a group of either may have the same name."""
        return f"{self.namespace}/{self.name}{' (scheduling.k8s.io)' if self.native else ''}"


class BatchInfo(msgspec.Struct, frozen=True, gc=False):
    """Of a pod that says at least one of these."""

    #: The group that the pod names, which need not exist.
    group: GroupKey | None = None
    #: `volcano.sh/task-spec`, by which minimums a role count; empty for none.
    role: str = ""
    #: `volcano.sh/task-index`: the pod's number in its role.
    index: int | None = None
    #: `volcano.sh/task-priority`, which stands in for the pod's priority among its group's members.
    priority: int | None = None
    #: `scheduling.volcano.sh/queue-name`; empty for that of its group or namespace.
    queue: str = ""
    #: Whether the gate of the queue's capacity is the batch scheduler's to remove.
    gate_managed: bool = False
    #: Whether other jobs may have it evicted.
    preemptable: bool = True
    #: `status.phase`, of which a group counts Running, Succeeded and Failed.
    phase: str = ""


_NOTHING: Final = wire.PodAnnotations()

#: What labels may say of it.
BATCH_LABELS: Final = frozenset((TASK_SPEC, PREEMPTABLE))


def batch_info(pod: wire.Pod, labels: Mapping[str, str]) -> BatchInfo | None:
    """None for a pod that says nothing of it. Role and preemptable may be labels, where no annotation says them.

    Volcano's own scheduler reads the first annotation that names a group only; its controllers read the second, too. A
    pod that names both a group of Volcano's and a native one is of Volcano's.
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
    """None for what Go's strconv.ParseInt(text, 10, 32) refuses."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 10:
        return None
    number = int(text)
    return number if -_INT32 <= number < _INT32 else None
