"""Checks a ledger by counting it again from its pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from .ledger import Ledger
from .queues.entries import Entry, Standing
from .quotas.vector import of_requests
from .state.columns import NO_PORTS, Columns
from .state.gpus import NO_GPUS, without
from .state.podclass import HostPort
from .state.podinfo import PodInfo


def contradictions(ledger: Ledger) -> list[str]:
    """Return the violations of the ledger's invariants; empty if all hold. The cost is a pass over all pods."""
    placements = ledger.placements.values()
    problems = [
        *_miscounted_rows(ledger),
        *_miscounted_others(ledger),
        *_miscounted_queues(ledger),
        *ledger.volume_use.check(),
    ]
    with_volumes = {each.uid for each in placements if each.cls.volumes is not None}
    if with_volumes != {uid for name in {each.node_name for each in placements} for uid in ledger.volume_use.on(name)}:
        problems.append("the volumes of pods are out of step")
    if ledger.assumed != sum(placement.assumed for placement in placements):
        problems.append("the count of assumed pods is out of step")
    if ledger.priorities != Counter(placement.pod.priority for placement in placements):
        problems.append("the count of priorities is out of step")
    return problems


def _miscounted_rows(ledger: Ledger) -> Iterator[str]:
    columns = ledger.columns
    resources = columns.interns.resources
    for name, row in ledger.rows.items():
        node = columns.nodes[row]
        if node is None or node.name != name:
            yield f"row {row} should hold node {name}"
            continue
        sums = dict.fromkeys(resources, 0)
        ports: set[HostPort] = set()
        for placement in ledger.pods_on(name):
            ports.update(placement.cls.host_ports)
            for resource, amount in placement.cls.requests.items():
                if resource in sums:
                    sums[resource] += amount
        for resource, amount in sums.items():
            counted = int(columns.requested[resources[resource], row])
            if counted != amount:
                yield f"node {name}: {resource} is counted as {counted}, its pods ask {amount}"
        free = columns.offered_gpus(row)
        for placement in ledger.pods_on(name):
            free = without(free, placement.gpus, placement.cls.gpu)
        if columns.gpus.get(row, NO_GPUS) != free:
            yield f"node {name}: GPUs are out of step with its pods"
        if columns.ports.get(row, NO_PORTS) != ports:
            yield f"node {name}: host ports are out of step with its pods"


def _miscounted_queues(ledger: Ledger) -> Iterator[str]:
    usage = ledger.usage
    counted = {uid: entry._replace(turn=()) for uid, entry in usage.book.entries()}
    if not usage.room.active:
        if counted:
            yield "pods count in queues, although there are no queues"
        return
    expected: dict[str, Entry] = {
        pod.uid: Entry(queue, of_requests(pod.cls.requests), Standing.RESERVED)
        for pod in usage.room.keeping.values()
        if (queue := usage.room.keeping_queue(pod))
    }
    expected |= {
        pod.uid: Entry(queue, of_requests(pod.cls.requests), Standing.STANDS_BY)
        for pod in usage.kept.pods.values()
        if pod.uid not in expected and (queue := usage.room.keeping_queue(pod))
    }
    expected |= {
        key.text: Entry(queue, left, Standing.PROMISED) for key, queue, left in usage.promises.promises() if left
    }
    for placement in ledger.placements.values():
        pod = placement.pod
        queue = usage.queue_of(pod) if isinstance(pod, PodInfo) else ""
        if queue:
            standing = Standing.ASSUMED if placement.assumed else Standing.BOUND
            expected[placement.uid] = Entry(queue, of_requests(placement.cls.requests), standing)
    if counted != expected:
        wrong = sorted(uid for uid in counted.keys() | expected if counted.get(uid) != expected.get(uid))
        yield f"the entries of pods {wrong[:3]} in their queues are out of step with their placements"


def _miscounted_others(ledger: Ledger) -> Iterator[str]:
    columns = ledger.columns
    counted = Columns(columns.interns)
    counted.reserve(columns.size)
    said = {term for placement in ledger.placements.values() for term in placement.cls.existing}
    if said != columns.terms.keys() or any(term not in ledger.terms for term in said):
        yield "the terms about other pods are out of step"
        return
    counted.terms = {term: np.zeros(counted.capacity, dtype=np.int64) for term in said}
    for kind in columns.matching:
        counted.matching[kind] = np.zeros(counted.capacity, dtype=np.int64)
    for placement in ledger.placements.values():
        row = ledger.rows.get(placement.node_name)
        if row is not None:
            counted.count_others(row, placement.pod, 1)
    pairs = [
        *((columns.matching[kind], column) for kind, column in counted.matching.items()),
        *((columns.terms[term], column) for term, column in counted.terms.items()),
    ]
    size = columns.size
    if any(not np.array_equal(mine[:size], true[:size]) for mine, true in pairs):
        yield "the counts of other pods are out of step"
