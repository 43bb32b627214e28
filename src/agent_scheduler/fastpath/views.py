"""What the debug pages show: plain data, nothing secret, made as it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import nsmallest
from typing import Any

import msgspec

from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.queueing.views import page
from agent_scheduler.engine.state.ledger import Ledger
from agent_scheduler.engine.state.podinfo import PodInfo

PLACES = tuple(place.value for place in Place)


def queue_summary(queue: SchedulingQueue[PodInfo]) -> Mapping[str, Any]:
    return {"pending": queue.pending()._asdict()}


def waiting_pods(
    queue: SchedulingQueue[PodInfo], *, namespace: str | None, place: str | None, limit: int
) -> Iterator[dict[str, Any]]:
    """Pods that wait, of one namespace or one place if these are named; up to `limit` of each place.

    A place is looked at when its turn comes, so that a page which is full before costs nothing of it.
    """
    for where in Place:
        if place is None or where.value == place:
            for pod in page(queue, where, limit, namespace=namespace):
                yield {"place": where.value, **msgspec.to_builtins(pod)}


def cache_summary(ledger: Ledger) -> Mapping[str, Any]:
    return {
        "nodes": len(ledger.rows),
        "pods": len(ledger.placements),
        "assumed": ledger.assumed,
        "sequence": ledger.sequence,
    }


def known_nodes(ledger: Ledger, *, limit: int) -> Iterator[dict[str, Any]]:
    """The first `limit` nodes by name: what they offer and what is taken, in the ledger's units."""
    columns = ledger.columns
    resources = columns.interns.resources
    for name in nsmallest(limit, ledger.rows):
        row = ledger.rows[name]
        offered = {key: columns.offers[row][index] for key, index in resources.items()}
        yield {
            "name": name,
            "version": columns.version[row],
            "unschedulable": bool(columns.unschedulable[row]),
            "allocatable": {key: amount for key, amount in offered.items() if amount},
            "requested": {key: columns.taken[row][index] for key, index in resources.items() if offered[key]},
            "pods": sum(1 for _ in ledger.pods_on(name)),
        }
