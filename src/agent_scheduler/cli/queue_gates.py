"""Which pods wait behind the gate of their queue, and which were let past it and have no node, as the cluster says.

A pod counts in the queue in which the scheduler counts it (`engine.state.queueusage`), with the batch scheduler's usual
name and default queue. What only the scheduler knows is not seen: room that was given back is still reserved here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from agent_scheduler.engine.quotas.vector import PODS, Total, add_to, shown
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, pod_info
from agent_scheduler.engine.state.queueusage import QueueUsage
from agent_scheduler.kube.transport import Transport
from agent_scheduler.objects import wire
from agent_scheduler.objects.batch import POD_GROUPS, QUEUE_ALLOCATION_GATE, QUEUE_NAME, PodGroup
from agent_scheduler.objects.salvage import salvage

from .listing import list_all

_PODS: Final = "/api/v1/pods"
_NAMESPACES: Final = "/api/v1/namespaces"
_BATCH_SCHEDULER: Final = "volcano"
_decode_pod = msgspec.json.Decoder(wire.Pod).decode


class Amount(NamedTuple):
    """So many pods, and what they ask for together, in Kubernetes' quantities."""

    pods: int = 0
    resources: Mapping[str, str] = {}

    def __str__(self) -> str:
        """Empty for no pods."""
        amounts = ",".join(f"{name}={amount}" for name, amount in sorted(self.resources.items()))
        return f"{self.pods} ({amounts})" if amounts else str(self.pods or "")


class Gates(NamedTuple):
    """Of a queue, without those below it."""

    held: Amount = Amount()
    reserved: Amount = Amount()


async def read_gates(transport: Transport) -> Mapping[str, Gates]:
    """By queue, of those that have any such pods. Raises Unreadable."""
    usage = QueueUsage({})
    usage.batch_schedulers = (_BATCH_SCHEDULER,)
    waiting = await list_all(transport, _PODS, _pod, {"fieldSelector": "spec.nodeName="})
    classes = PodClasses()
    pods = [pod for pod in (pod_info(each, classes) for each in waiting) if _takes_part(pod)]
    if not pods:
        return {}
    for group in await list_all(transport, POD_GROUPS, msgspec.json.Decoder(PodGroup).decode):
        usage.set_group(GroupKey(group.metadata.namespace, group.metadata.name), group.spec.queue, ())
    for each in await list_all(transport, _NAMESPACES, msgspec.json.Decoder(wire.Namespace).decode):
        usage.set_namespace(each.metadata.name, (each.metadata.annotations or {}).get(QUEUE_NAME, ""))
    return gates_of(pods, usage)


def gates_of(pods: Iterable[PodInfo], usage: QueueUsage) -> Mapping[str, Gates]:
    """`usage` says of each pod in which queue it is. A pod in none, or with other gates, is left out."""
    by_queue: dict[str, tuple[list[PodInfo], list[PodInfo]]] = {}
    for pod in pods:
        queue = usage.queue_of(pod)
        if queue and pod.closed_gates in ((), (QUEUE_ALLOCATION_GATE,)):
            by_queue.setdefault(queue, ([], []))[not pod.closed_gates].append(pod)
    return {
        queue: Gates(_sum(held, usage), _sum(reserved, usage)) for queue, (held, reserved) in by_queue.items()
    }


def _sum(pods: Sequence[PodInfo], usage: QueueUsage) -> Amount:
    total: Total = {}
    for pod in pods:
        add_to(total, usage.vector(pod))
    return Amount(len(pods), {name: text for name, text in shown(total).items() if name != PODS})


def _takes_part(pod: PodInfo) -> bool:
    managed = pod.batch is not None and pod.batch.gate_managed
    return managed and not (pod.node_name or pod.deleting or pod.finished)


def _pod(raw: bytes | memoryview | msgspec.Raw) -> wire.Pod:
    try:
        return _decode_pod(raw)
    except msgspec.ValidationError:
        # One that somebody else made in a wrong shape keeps nothing of the others from being shown.
        return salvage(raw, wire.Pod)
