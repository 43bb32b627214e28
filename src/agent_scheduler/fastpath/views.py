"""What the debug pages show: bounded, plain data, nothing secret."""

from __future__ import annotations

from typing import Any

import msgspec

from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.podinfo import PodInfo
from agent_scheduler.engine.queueing.queue import SchedulingQueue


def queue_view(queue: SchedulingQueue[PodInfo], *, limit: int, namespace: str = "") -> dict[str, Any]:
    """Counts of all places, and up to `limit` pods of each, of one namespace if it is named."""
    # The namespace is looked for among all that wait: a limit before the filter would hide it.
    pages = queue.dump(limit if not namespace else sum(queue.pending()))
    prefix = f"{namespace}/"
    return {
        "pending": queue.pending()._asdict(),
        "pods": {
            place.value: [
                msgspec.to_builtins(pod) for pod in page if not namespace or pod.key.startswith(prefix)
            ][:limit]
            for place, page in pages.items()
        },
    }


def cache_view(ledger: Ledger, *, limit: int) -> dict[str, Any]:
    """Totals, and for up to `limit` nodes what they offer and what is taken, in the ledger's units."""
    columns = ledger.columns
    resources = columns.interns.resources
    nodes = []
    for name, row in sorted(ledger.rows.items())[:limit]:
        offered = {key: int(columns.allocatable[index, row]) for key, index in resources.items()}
        nodes.append(
            {
                "name": name,
                "version": int(columns.version[row]),
                "unschedulable": bool(columns.unschedulable[row]),
                "allocatable": {key: amount for key, amount in offered.items() if amount},
                "requested": {
                    key: int(columns.requested[index, row])
                    for key, index in resources.items()
                    if offered[key]
                },
                "pods": sum(1 for _ in ledger.pods_on(name)),
            }
        )
    return {
        "nodes": len(ledger.rows),
        "pods": len(ledger.placements),
        "assumed": ledger.assumed,
        "sequence": ledger.sequence,
        "shown": nodes,
    }
