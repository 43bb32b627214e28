"""Reads which pods wait at the gate of their queue, and which have passed it without a node yet, from the cluster.

A pod counts in the same queue as in the scheduler (`engine.queues.usage`), with the batch scheduler's usual name
and default queue. State that only the scheduler has is missing: released room still counts as reserved here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from agent_scheduler.engine.queues.usage import QueueUsage, UsageSettings
from agent_scheduler.engine.quotas.vector import PODS, Total, add_to, shown
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, pod_info
from agent_scheduler.objects import wire
from agent_scheduler.objects.batch import POD_GROUPS, QUEUE_ALLOCATION_GATE, QUEUE_NAME, PodGroup
from apimachinery.salvage import salvage
from kube_client.transport import Transport

from .amounts import of_quantities
from .listing import list_all

_PODS: Final = "/api/v1/pods"
_NAMESPACES: Final = "/api/v1/namespaces"
_BATCH_SCHEDULER: Final = "volcano"
_decode_pod = msgspec.json.Decoder(wire.Pod).decode


class PodTotals(NamedTuple):
    """A number of pods with their combined requests in Kubernetes quantities."""

    pods: int = 0
    resources: Mapping[str, str] = {}

    def __str__(self) -> str:
        """Format the amount; empty for no pods."""
        amounts = of_quantities(self.resources)
        return f"{self.pods} ({amounts})" if amounts else str(self.pods or "")


class Gates(NamedTuple):
    """The gated and the reserved pods of a queue without its descendants."""

    held: PodTotals = PodTotals()
    reserved: PodTotals = PodTotals()


async def read_gates(transport: Transport, say: Callable[[str], None]) -> Mapping[str, Gates]:
    """Return the amounts by queue, for queues with such pods; `say` receives what is left out. Raises ReadError."""
    usage = QueueUsage({}, UsageSettings(batch_schedulers=(_BATCH_SCHEDULER,)))
    waiting = await list_all(transport, _PODS, _pod, {"fieldSelector": "spec.nodeName="}, say=say)
    classes = PodClasses()
    pods = [pod for pod in (pod_info(each, classes) for each in waiting) if _takes_part(pod)]
    if not pods:
        return {}
    for group in await list_all(transport, POD_GROUPS, msgspec.json.Decoder(PodGroup).decode, say=say):
        usage.set_group(GroupKey(group.metadata.namespace, group.metadata.name), group.spec.queue, ())
    namespace = msgspec.json.Decoder(wire.Namespace).decode
    for each in await list_all(transport, _NAMESPACES, namespace, say=say):
        usage.set_namespace(each.metadata.name, (each.metadata.annotations or {}).get(QUEUE_NAME, ""))
    return gates_of(pods, usage)


def gates_of(pods: Iterable[PodInfo], usage: QueueUsage) -> Mapping[str, Gates]:
    """Sum up pods by queue, as found by `usage`. Pods without a queue or with other gates are left out."""
    by_queue: dict[str, tuple[list[PodInfo], list[PodInfo]]] = {}
    for pod in pods:
        queue = usage.queue_of(pod)
        if queue and pod.closed_gates in ((), (QUEUE_ALLOCATION_GATE,)):
            by_queue.setdefault(queue, ([], []))[not pod.closed_gates].append(pod)
    return {queue: Gates(_sum(held, usage), _sum(reserved, usage)) for queue, (held, reserved) in by_queue.items()}


def _sum(pods: Sequence[PodInfo], usage: QueueUsage) -> PodTotals:
    total: Total = {}
    for pod in pods:
        add_to(total, usage.vector(pod))
    return PodTotals(len(pods), {name: text for name, text in shown(total).items() if name != PODS})


def _takes_part(pod: PodInfo) -> bool:
    managed = pod.batch is not None and pod.batch.gate_managed
    return managed and not (pod.node_name or pod.deleting or pod.finished)


def _pod(raw: bytes | memoryview | msgspec.Raw) -> wire.Pod:
    try:
        return _decode_pod(raw)
    except (msgspec.ValidationError, RecursionError):
        # A malformed pod of another client must not prevent the others from being shown.
        return salvage(raw, wire.Pod)
