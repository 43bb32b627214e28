"""Fragmentation: prefers nodes on which a pod leaves the least that the target workload cannot use (FGD).

Shares of nodes that others cannot use go to the pods that can, and large holes stay whole for the pods that need them.
The measure, its source and its units are in `rules.fragmentation`; the target workload is set by the arguments, or
learned from the pods that arrive. With neither, all nodes are equal.

Scores are whole numbers between 0 and 100, and many nodes tie. Ties can be broken by a score with a hundredth of this
one's weight; in the published results that is BestFit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, cast

import numpy as np

from ..framework.handle import Handle
from ..framework.plugin import Depends, Reads, Score
from ..rules.fragmentation import EVERYWHERE, Measure, score_of, scores_of
from ..state.columns import CPU, MEMORY, Columns, Ints, Rows
from ..state.gpus import WHOLE, Free
from ..state.podclass import PodClass
from ..state.targetworkload import TargetPodKind

#: Up to this number of rows, plain numbers are faster than arrays.
_FEW: Final = 8


class FragmentationState(NamedTuple):
    measure: Measure
    #: The requested CPU and memory, and thousandths of GPUs.
    asked: tuple[int, int, int]
    #: The requested amount of each resource of the measure.
    wanted: tuple[int, ...]


class Fragmentation(Score):
    name = "Fragmentation"
    depends = Depends.ROOM
    normalize = None

    def __init__(self, weights: Mapping[str, int], given: Sequence[tuple[TargetPodKind, float]] = ()) -> None:
        """Measure fragmentation of these resources on nodes without GPUs.

        `given` is the target workload, each kind with its share; without it, the workload is learned.
        """
        self._weights = dict(weights)
        self._measure = Measure(given, weights) if given else None
        self.reads = frozenset() if given else frozenset({Reads.TARGET_WORKLOAD})

    def prepare(self, pod: PodClass, handle: Handle) -> FragmentationState | None:
        measure = self._measure
        if measure is None:
            workload = handle.target_workload
            key = (Fragmentation.name, *self._weights.items())
            measure = workload.derive(key, partial(Measure, workload.kinds, self._weights))
        if measure.gpus.is_empty and measure.amounts.is_empty:
            return None
        # A given workload never changes; a learned one replaces its predecessor.
        handle.interns.tell_apart(self._measure and measure.labels, measure.labels)
        asked = pod.requests
        wanted = tuple([asked.get(name, 0) for name in measure.resources])
        return FragmentationState(measure, (asked.get("cpu", 0), asked.get("memory", 0), pod.gpu), wanted)

    def score(self, state: FragmentationState, nodes: Columns, rows: Rows) -> Ints:
        listed: list[int] = rows.tolist()
        gpus = list(map(nodes.gpus.get, listed))
        if len(listed) <= _FEW or None in gpus:
            score_row = self.score_row
            return np.fromiter([score_row(state, nodes, row) for row in listed], dtype=np.int64, count=len(listed))
        measure, asked, _ = state
        reach = None
        if measure.labels:
            reached = measure.reach(nodes)
            reach = [reached[row] for row in listed]
        offered, taken = nodes.allocatable, nodes.requested
        cpu, memory = (offered[index][rows] - taken[index][rows] for index in (CPU, MEMORY))
        less = measure.gpus.less_of_each(cast("list[Free]", gpus), cpu, memory, asked, reach)
        return scores_of(less / WHOLE)

    def score_row(self, state: FragmentationState, nodes: Columns, row: int) -> int:
        measure, asked, wanted = state
        reach = measure.reach(nodes)[row] if measure.labels else EVERYWHERE
        gpus = nodes.gpus.get(row)
        if gpus is None:
            return score_of(_less_of_amounts(measure, nodes, row, wanted, reach))
        offers, taken = nodes.offers[row], nodes.taken[row]
        cpu, memory = offers[CPU] - taken[CPU], offers[MEMORY] - taken[MEMORY]
        return score_of(measure.gpus.less(gpus, cpu, memory, asked, reach) / WHOLE)


def _less_of_amounts(measure: Measure, nodes: Columns, row: int, wanted: tuple[int, ...], reach: int) -> float:
    known, columns = nodes.interns.resources, nodes.resources
    offers, taken = nodes.offers[row], nodes.taken[row]
    indices = [known.get(name, columns) for name in measure.resources]
    offered = tuple([offers[index] if index < columns else 0 for index in indices])
    free = tuple([offers[index] - taken[index] if index < columns else 0 for index in indices])
    return measure.amounts.less(free, offered, wanted, reach)
