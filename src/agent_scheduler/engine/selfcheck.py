"""Contradictions between the state of decisions and a cluster that was just listed, or within that state.

kube-scheduler compares its cache with its informers on SIGUSR2 (`backend/cache/debugger`). Here both, the queue and the
kept answers of plugins are compared with objects that were read from the API server for this check.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from .decide.classview import ClassView
from .decide.decide import ClassViews
from .decide.ranking import REFUSED
from .decide.snapshot import Snapshot
from .dra.catalogue import Devices
from .ledger import Ledger
from .queueing.places import Place
from .queueing.queue import SchedulingQueue
from .recount import contradictions
from .state.columns import NO_PORTS, Columns
from .state.gpus import NO_GPUS
from .state.nodeinfo import same_for_scheduling
from .state.podclass import PodClass
from .state.podinfo import PodInfo
from .volumes.catalogue import Catalogue


class Difference(msgspec.Struct, frozen=True, order=True):
    """A contradiction. `where`: `informer`, `catalogue`, `ledger`, `queue`, `snapshot` or `view`.

    `name` is empty if it does not concern a single object.
    """

    where: str
    kind: str
    name: str
    problem: str


def of_pod(
    uid: str, fresh: PodInfo | None, *, is_ours: bool, ledger: Ledger, queue: SchedulingQueue | None
) -> Iterator[tuple[str, str]]:
    """Yield where and how ledger and queue contradict a pod of the API server.

    `fresh` is None if the pod does not exist or has finished. `is_ours` is whether it waits for this process to find a
    node, and `queue` is the queue in which it then waits; None if it waits elsewhere.
    """
    placement, place = ledger.placements.get(uid), None if queue is None else queue.where(uid)
    if fresh is None:
        if placement is not None:
            yield "ledger", f"counts it on node {placement.node_name}, and it is gone"
        if place is not None:
            yield "queue", f"has it in {place.value}, and it is gone"
        return
    if fresh.node_name:
        if placement is None:
            yield "ledger", f"does not count it on node {fresh.node_name}"
        elif placement.node_name != fresh.node_name:
            yield "ledger", f"counts it on node {placement.node_name}, and it is on {fresh.node_name}"
        elif placement.cls.requests != fresh.cls.requests:
            yield "ledger", "counts it with other requests than it has"
        elif fresh.gpus and placement.gpus != fresh.gpus:
            yield "ledger", f"counts it on the GPUs {placement.gpus}, and it was given {fresh.gpus}"
        if place is not None:
            yield "queue", f"has it in {place.value}, and it is on node {fresh.node_name}"
        return
    if placement is not None and not placement.assumed:
        yield "ledger", f"has it bound to node {placement.node_name}, and it has no node"
    if queue is None:
        return
    if is_ours and place is None and (placement is None or not placement.assumed):
        yield "queue", "does not have it, and it waits"
    elif is_ours and place is Place.IN_FLIGHT and placement is None:
        yield "queue", "has it in flight, and nothing is under way for it"
    elif not is_ours and place is not None and not (placement is not None and placement.assumed):
        yield "queue", f"has it in {place.value}, and it is not to wait here"
    if placement is not None and placement.assumed and place is not Place.IN_FLIGHT:
        yield "ledger", f"assumes it on node {placement.node_name}, and it is not in flight"


def of_books(
    ledger: Ledger, queue: SchedulingQueue, snapshot: Snapshot, catalogue: Catalogue, devices: Devices
) -> Iterator[Difference]:
    """Yield violated invariants. Refreshes the snapshot."""
    for where, problems in (
        ("ledger", contradictions(ledger)),
        ("catalog", [*catalogue.check(), *devices.check()]),
        ("queue", _broken(queue)),
        ("snapshot", _lagging(ledger, snapshot)),
    ):
        for problem in problems:
            yield Difference(where, "", "", problem)


def of_requests(ledger: Ledger, queue: SchedulingQueue, under_way: int) -> Iterator[Difference]:
    """Check the number of assumed pods; `under_way` is the number of binds and claim writes that have not ended."""
    assumed = sum(1 for placement in ledger.placements.values() if placement.assumed)
    if assumed > under_way:
        problem = f"assumes {assumed} pods on nodes, and only {under_way} are being bound"
        yield Difference("ledger", "Pod", "", problem)


def of_view(views: ClassViews, cls: PodClass, snapshot: Snapshot) -> Iterator[Difference]:
    """Yield differences between the kept answers of a class and the plugins' current ones."""
    kept, columns = views.of(cls), snapshot.columns
    new = ClassView(views.profile, cls, snapshot)
    new.refresh(snapshot)
    one, other = kept.ranked(columns, ()), new.ranked(columns, ())
    who = f"profile {views.profile.scheduler_name}"
    for row in np.flatnonzero((one == REFUSED) != (other == REFUSED)).tolist():
        problem = "kept as refused, now it passes" if one[row] == REFUSED else "kept as passing, now it is refused"
        yield from _of_node(columns, row, f"{who}: {problem}")
    both = np.flatnonzero((one != REFUSED) & (other != REFUSED))
    # Scores only rank: an offset that all nodes share may be left out.
    apart = one[both] - other[both]
    values, counts = np.unique(apart, return_counts=True)
    for row in both[apart != values[counts.argmax()]].tolist() if len(values) > 1 else ():
        yield from _of_node(columns, row, f"{who}: score kept as {int(one[row])}, now {int(other[row])}")


def _of_node(columns: Columns, row: int, problem: str) -> Iterator[Difference]:
    node = columns.nodes[row]
    if node is not None:
        yield Difference("view", "Node", node.name, problem)


def _broken(queue: SchedulingQueue) -> list[str]:
    try:
        queue.check_invariants()
    except AssertionError as error:
        return [str(error) or "contradicts itself"]
    return []


def _lagging(ledger: Ledger, snapshot: Snapshot) -> Iterator[str]:
    snapshot.refresh()
    ours, theirs = snapshot.columns, ledger.columns
    for name, row in ledger.rows.items():
        node, newest = ours.nodes[row], theirs.nodes[row]
        if node is None or newest is None or not same_for_scheduling(node, newest):
            yield f"node {name}: has another version of the node"
        elif ours.version[row] != theirs.version[row]:
            yield f"node {name}: is at change {ours.version[row]}, the ledger at {theirs.version[row]}"
        elif ours.taken[row] != theirs.taken[row] or ours.offers[row] != theirs.offers[row]:
            yield f"node {name}: has other amounts than the ledger"
        elif ours.gpus.get(row, NO_GPUS) != theirs.gpus.get(row, NO_GPUS):
            yield f"node {name}: has other GPUs free than the ledger"
        elif ours.ports.get(row, NO_PORTS) != theirs.ports.get(row, NO_PORTS):
            yield f"node {name}: has other host ports than the ledger"
