"""Lists the pods that wait for a node, of the fast path and of the batch scheduler, for the debug pages."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from itertools import chain
from typing import Any

from agent_scheduler.batch.explaining import GATED, WAITING
from agent_scheduler.batch.scheduler import BatchScheduler
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.fastpath.scheduler import FastPath


def pending_pods(
    fast_path: FastPath, batch: BatchScheduler | None, *, namespace: str | None, queue: str | None, limit: int
) -> Iterator[dict[str, Any]]:
    """Yield the `limit` oldest pods without a node, optionally of one namespace or queue.

    Examines each waiting pod. The reason is that of the condition in the API server, as `kubectl describe` shows it.
    """
    usage = fast_path.ledger.usage

    def is_wanted(pod: PodInfo) -> bool:
        return (namespace is None or pod.namespace == namespace) and (queue is None or usage.queue_of(pod) == queue)

    waiting = filter(lambda each: is_wanted(each[1]), chain(_of_fast_path(fast_path), _of_batch(fast_path, batch)))
    for place, pod in nsmallest(limit, waiting, key=lambda each: (each[1].created, each[1].uid)):
        _, reason, message, _ = pod.condition or ("", "", "", 0)
        if pod.closed_gates:
            message = f"scheduling gates: {', '.join(pod.closed_gates)}"
        yield {
            "pod": pod.key,
            "queue": usage.queue_of(pod),
            "scheduler": pod.scheduler_name,
            "priority": pod.priority,
            "place": place,
            "created": pod.created,
            "reason": reason,
            "message": message,
        }


def _of_fast_path(fast_path: FastPath) -> Iterator[tuple[str, PodInfo]]:
    places = fast_path.queue.places
    for where, entries in ((Place.ACTIVE, places.active), (Place.BACKOFF, places.backoff)):
        for entry in entries:
            yield where.value, entry.pod
    for entry in places.unschedulable:
        yield (Place.GATED if entry.gated else Place.UNSCHEDULABLE).value, entry.pod
    for flying in places.in_flight:
        yield Place.IN_FLIGHT.value, flying.entry.pod


def _of_batch(fast_path: FastPath, batch: BatchScheduler | None) -> Iterator[tuple[str, PodInfo]]:
    if batch is None:
        return
    placed, groups = fast_path.ledger.placements, batch.waiting.groups
    members = chain.from_iterable(group.members.values() for group in groups.groups.values())
    for pod in chain(members, groups.bare.values()):
        if pod.uid not in placed:
            yield GATED if pod.closed_gates else WAITING, pod
