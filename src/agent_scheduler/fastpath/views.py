"""The content of the debug pages: plain data without secrets, created while it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import nsmallest
from typing import Any

import msgspec

from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.queueing.views import page

PLACES = tuple(place.value for place in Place)


def queue_summary(queue: SchedulingQueue) -> Mapping[str, Any]:
    return {"pending": queue.pending()._asdict()}


def waiting_pods(
    queue: SchedulingQueue, *, namespace: str | None, place: str | None, limit: int
) -> Iterator[dict[str, Any]]:
    """Yield waiting pods, optionally of one namespace or place; up to `limit` of each place.

    Places are evaluated lazily, so a page that is full before costs nothing for the others.
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
    """Yield the first `limit` nodes by name with allocatable and used resources, in the ledger's units."""
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
