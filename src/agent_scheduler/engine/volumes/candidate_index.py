"""Indexes of candidates for claims by the nodes that can reach them.

There may be thousands of volumes and pools, each with an affinity for one node, and every pod with a claim asks about
all nodes, so checking each pair would cost their product for each pod. A `CandidateIndex` has the candidates that
suffice for one demand, by the labels that they require of a node: a node costs one lookup per label. `CandidateIndexes`
keeps one for each demand, which is equal for the claims of a workload, and updates it as volumes are added and removed.

Invariant: an index has exactly the candidates of its group that suffice for its demand (`check`).
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, ValuesView
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import numpy as np
from sortedcontainers import SortedDict

from ..state.columns import Columns, Ints, Rows
from ..state.indexes import drop_entry
from ..state.nodeinfo import NodeInfo
from ..state.nodeselection import match_selector, reaches
from .records import CapacityInfo, VolumeInfo

#: Demands with an index. A further one costs a pass over all candidates of its group.
_KEPT: Final = 32

#: Up to this number rows are counted one by one, more of them together.
_ONE_BY_ONE: Final = 8


#: Candidates; `class_name` is the group of a candidate.
T = TypeVar("T", VolumeInfo, CapacityInfo)
D = TypeVar("D", bound=Hashable)

#: Sorts candidates, the preferred first. Unique.
Key = tuple[Any, ...]


@dataclass
class CandidateIndex(Generic[T]):
    """Candidates in the order of their keys."""

    _everywhere: SortedDict[Key, T] = field(default_factory=SortedDict)
    #: Label -> value -> candidates.
    _by_label: dict[str, dict[str, SortedDict[Key, T]]] = field(default_factory=dict)
    _others: SortedDict[Key, T] = field(default_factory=SortedDict)

    def put(self, key: Key, candidate: T) -> None:
        reach = candidate.reach
        if reach is None:
            self._everywhere[key] = candidate
        elif reach.key:
            by_value = self._by_label.setdefault(reach.key, {})
            for value in reach.values:
                by_value.setdefault(value, SortedDict())[key] = candidate
        else:
            self._others[key] = candidate

    def drop(self, key: Key, candidate: T) -> None:
        """Remove a candidate that was put."""
        reach = candidate.reach
        if reach is None:
            del self._everywhere[key]
        elif reach.key:
            by_value = self._by_label[reach.key]
            for value in reach.values:
                drop_entry(by_value, value, key)
            if not by_value:
                del self._by_label[reach.key]
        else:
            del self._others[key]

    def counts(self, nodes: Columns, rows: Rows) -> Ints:
        """Return the number of candidates that each of `rows` can reach."""
        if rows.shape[0] <= _ONE_BY_ONE:
            return np.array([self._count(nodes.nodes[row]) for row in rows.tolist()], dtype=np.int64)
        found: Ints = np.full(rows.shape[0], len(self._everywhere), dtype=np.int64)
        for candidate in self._others.values():
            found += match_selector(candidate.reach.selector, nodes, rows)
        for key, by_value in self._by_label.items():
            # The column comes first because it interns the values that are then looked up.
            column = nodes.label(key)[rows]
            table: Ints = np.zeros(len(nodes.interns.values) + 1, dtype=np.int64)
            known = nodes.interns.known_value
            for value, candidates in by_value.items():
                number = known(value)
                if number > 0:
                    table[number] = len(candidates)
            found += table[column]
        return found

    def _count(self, node: NodeInfo | None) -> int:
        if node is None:
            return 0
        count = len(self._everywhere) + sum(reaches(candidate.reach, node) for candidate in self._others.values())
        return count + sum(len(candidates) for candidates in self._labelled(node))

    def at(self, node: NodeInfo) -> Iterator[T]:
        """Yield the candidates that the node can reach, in order. The index must not change meanwhile."""
        found = [self._everywhere.items(), *(candidates.items() for candidates in self._labelled(node))]
        found += [((key, candidate),) for key, candidate in self._others.items() if reaches(candidate.reach, node)]
        for _, candidate in heapq.merge(*found, key=_key) if len(found) > 1 else found[0]:
            yield candidate

    def _labelled(self, node: NodeInfo) -> Iterator[SortedDict[Key, T]]:
        for label, by_value in self._by_label.items():
            value = node.labels.get(label)
            if value is not None and (there := by_value.get(value)):
                yield there


def _key(entry: tuple[Key, object]) -> Key:
    return entry[0]


class CandidateIndexes(Generic[D, T]):
    """Candidates by group, and indexes of them.

    `key` sorts candidates; `suffices` returns whether one meets a demand.
    """

    def __init__(self, key: Callable[[T], Key], suffices: Callable[[T, D], bool]) -> None:
        self._key: Callable[[T], Key] = key
        self._suffices: Callable[[T, D], bool] = suffices
        self._candidates: dict[str, SortedDict[Key, T]] = {}
        self._indexes: OrderedDict[tuple[str, D], CandidateIndex[T]] = OrderedDict()

    def of(self, group: str) -> ValuesView[T] | tuple[()]:
        """Return all candidates of a group, in order."""
        found = self._candidates.get(group)
        return found.values() if found is not None else ()

    def put(self, candidate: T) -> None:
        key, group = self._key(candidate), candidate.class_name
        self._candidates.setdefault(group, SortedDict())[key] = candidate
        for (other, demand), index in self._indexes.items():
            if other == group and self._suffices(candidate, demand):
                index.put(key, candidate)

    def drop(self, candidate: T) -> None:
        """Remove a candidate that was put."""
        key, group = self._key(candidate), candidate.class_name
        drop_entry(self._candidates, group, key)
        for (other, demand), index in self._indexes.items():
            if other == group and self._suffices(candidate, demand):
                index.drop(key, candidate)

    def index(self, group: str, demand: D) -> CandidateIndex[T]:
        """Return the index of a demand. It is kept up to date until `_KEPT` other demands were used since."""
        found = self._indexes.get((group, demand))
        if found is None:
            found = self._indexes[group, demand] = self._filled(group, demand)
            if len(self._indexes) > _KEPT:
                self._indexes.popitem(last=False)
        else:
            self._indexes.move_to_end((group, demand))
        return found

    def _filled(self, group: str, demand: D) -> CandidateIndex[T]:
        index: CandidateIndex[T] = CandidateIndex()
        for candidate in self.of(group):
            if self._suffices(candidate, demand):
                index.put(self._key(candidate), candidate)
        return index

    def has_same_candidates(self, other: CandidateIndexes[D, T]) -> bool:
        return self._candidates == other._candidates

    def check(self) -> list[str]:
        """Return the contradictions of the invariant."""
        return [
            f"the index of {group!r} for {demand} is out of step"
            for (group, demand), index in self._indexes.items()
            if index != self._filled(group, demand)
        ]
