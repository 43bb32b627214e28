"""Nodes in columns: what each offers, what its pods ask for, and so how much of it is in use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..requests import Amounts
from .facts import NodeFacts
from .naming import NameOrder
from .policies import NO_RATE, Flags, Ints, Mark, Rows

_LEAST: Final = 64

#: Bits of `NodeColumns.state`.
PRESENT: Final = 1
CORDONED: Final = 2
NOT_READY: Final = 4
FOREIGN: Final = 8
STATES: Final = 16


class NodeColumns:
    """Owner of the rows, of what nodes say of themselves, and of what pods take of them.

    A name has a row as long as there is a node of that name, or a pod on it, or a shard that names it; so pods may come
    before their node. Invariant, after `refresh`: `used` is the sum over the pods that are known, `offered` what
    the nodes offer, `rates` and `marks` what follows from these, and `state` of a row that nobody has is 0.
    """

    def __init__(self) -> None:
        #: [row] its name, also of rows that nobody has any more. Replaced where a plan may have it (`share_names`),
        #: never written there.
        self.names: list[str] = []
        self._shared = False
        self.row_of: dict[str, int] = {}
        self._unused: list[int] = []
        self.ordering = NameOrder()
        self._unordered: list[str] = []
        self.capacity = 0
        #: [row] bits.
        self.state: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        #: By resource, [row].
        self.offered: dict[str, Ints] = {}
        self._used: dict[str, Ints] = {}
        self._rates: dict[str, NDArray[np.int16]] = {}
        self._marks: dict[Mark, Flags] = {}
        self._nodes: list[NodeFacts | None] = []
        #: UID -> row and requests.
        self._pods: dict[str, tuple[int, Amounts]] = {}
        #: [row] how many pods.
        self._crowd: list[int] = []
        #: Row -> names of the foreign shards that want it. Replaced, never changed: plans have it.
        self.foreign: dict[int, tuple[str, ...]] = {}
        #: Rows whose node, and whose pods, may have changed since the last `refresh`.
        self._respecified: set[int] = set()
        self._loaded: set[int] = set()

    @property
    def size(self) -> int:
        return len(self.names)

    def rate(self, resource: str) -> NDArray[np.int16]:
        return self._rates[resource]

    def marked(self, mark: Mark) -> Flags:
        return self._marks[mark]

    def row(self, name: str) -> int:
        """The row of a name, which may be a new one."""
        row = self.row_of.get(name)
        if row is None:
            if self._unused:
                row = self._unused.pop()
                if self._shared:
                    self.names, self._shared = self.names.copy(), False
                self.names[row] = name
            else:
                row = len(self.names)
                self.names.append(name)
                self._nodes.append(None)
                self._crowd.append(0)
                if row == self.capacity:
                    self._grow()
            self.row_of[name] = row
            self._unordered.append(name)
        return row

    def share_names(self) -> list[str]:
        """The names, for one who does not want them to change."""
        self._shared = True
        return self.names

    def set_node(self, node: NodeFacts) -> None:
        row = self.row(node.name)
        if self._nodes[row] != node:
            self._nodes[row] = node
            self._respecified.add(row)

    def delete_node(self, name: str) -> None:
        row = self.row_of.get(name)
        if row is not None and self._nodes[row] is not None:
            self._nodes[row] = None
            self._respecified.add(row)

    def set_pod(self, uid: str, node: str, requests: Amounts) -> None:
        known = self._pods.get(uid)
        row = self.row(node)
        if known is not None:
            if known[0] == row and known[1] == requests:
                return
            self._count(known[0], known[1], -1)
        self._pods[uid] = (row, requests)
        self._count(row, requests, 1)

    def delete_pod(self, uid: str) -> None:
        known = self._pods.pop(uid, None)
        if known is not None:
            self._count(*known, -1)

    def _count(self, row: int, requests: Amounts, sign: int) -> None:
        for resource, column in self._used.items():
            amount = requests.get(resource)
            if amount:
                column[row] += sign * amount
        self._crowd[row] += sign
        self._loaded.add(row)

    def set_foreign(self, shard: str, before: Collection[str], after: Collection[str]) -> None:
        """A foreign shard wants other nodes than before."""
        wanted = dict(self.foreign)
        for name in before:
            row = self.row_of[name]
            others = tuple(each for each in wanted.pop(row) if each != shard)
            if others:
                wanted[row] = others
            self._respecified.add(row)
        for name in after:
            row = self.row(name)
            wanted[row] = tuple(sorted((*wanted.get(row, ()), shard)))
            self._respecified.add(row)
        self.foreign = wanted

    def look_at(self, rows: Iterable[int]) -> None:
        """Have `refresh` see whether these are still needed."""
        self._loaded.update(rows)

    def watch(self, resources: Iterable[str], marks: Iterable[Mark]) -> None:
        """Have columns of these and of no others."""
        wanted, marks = sorted(set(resources)), sorted(set(marks))
        if wanted == list(self.offered) and marks == list(self._marks):
            return
        self.offered = {resource: np.zeros(self.capacity, dtype=np.int64) for resource in wanted}
        self._rates = {resource: np.full(self.capacity, NO_RATE, dtype=np.int16) for resource in wanted}
        self._marks = {mark: np.zeros(self.capacity, dtype=bool) for mark in marks}
        self._used = {resource: np.zeros(self.capacity, dtype=np.int64) for resource in wanted}
        for resource, column in self._used.items():
            for row, requests in self._pods.values():
                column[row] += requests.get(resource, 0)
        self._respecified.update(self.row_of.values())

    def refresh(self, held: Callable[[int], bool]) -> tuple[Rows, bool]:
        """Work in what has changed. `held`: whether a row that no node, no pod and no foreign shard has is needed.

        Returns the rows of which something that a plan looks at is another, and whether the places of all names are.
        """
        spread = self._settle()
        respecified = sorted(self._respecified)
        loaded = sorted(self._loaded | self._respecified)
        self._respecified, self._loaded = set(), set()
        changed: list[Rows] = []
        if respecified:
            changed.append(self._read(np.array(respecified, dtype=np.intp)))
        if loaded:
            changed.append(self._rate(np.array(loaded, dtype=np.intp)))
        for row in loaded:
            if (
                self._nodes[row] is None
                and not self._crowd[row]
                and row not in self.foreign
                and not held(row)
            ):
                self._release(row)
        if not changed:
            return np.zeros(0, dtype=np.intp), spread
        return changed[0] if len(changed) == 1 else np.union1d(*changed), spread

    def _settle(self) -> bool:
        fresh, self._unordered = self._unordered, []
        return bool(fresh) and self.ordering.settle(fresh, self.row_of)

    def _read(self, rows: Rows) -> Rows:
        """What the nodes say of themselves. Returns those of `rows` that have changed."""
        nodes = [self._nodes[row] for row in rows.tolist()]
        state = np.array([_state(node) for node in nodes], dtype=np.uint8)
        if self.foreign:
            state[[row in self.foreign for row in rows.tolist()]] |= FOREIGN
        changed = self.state[rows] != state
        self.state[rows] = state
        for resource, column in self.offered.items():
            amounts = np.array(
                [0 if node is None else node.allocatable.get(resource, 0) for node in nodes], dtype=np.int64
            )
            changed |= column[rows] != amounts
            column[rows] = amounts
        for mark, flags in self._marks.items():
            key, value = mark
            marked = np.array(
                [node is not None and node.labels.get(key) == value for node in nodes], dtype=bool
            )
            changed |= flags[rows] != marked
            flags[rows] = marked
        found: Rows = rows[changed]
        return found

    def _rate(self, rows: Rows) -> Rows:
        """How much of the nodes is in use. Returns those of `rows` that have changed."""
        changed: Flags = np.zeros(rows.shape[0], dtype=bool)
        for resource, column in self._rates.items():
            offered = self.offered[resource][rows]
            used = np.minimum(self._used[resource][rows], offered)
            # Rounded half up. 200 times the largest amount is within 63 bits (`engine.requests.NODE_LIMIT`).
            rates = np.where(offered > 0, (200 * used + offered) // np.maximum(2 * offered, 1), NO_RATE)
            changed |= column[rows] != rates
            column[rows] = rates
        found: Rows = rows[changed]
        return found

    def _release(self, row: int) -> None:
        name = self.names[row]
        del self.row_of[name]
        self.ordering.discard(name)
        self._unused.append(row)

    def _grow(self) -> None:
        self.capacity = max(_LEAST, 2 * self.capacity)
        more = self.capacity
        self.state = grown(self.state, more)
        for columns in (self.offered, self._used):
            for resource in columns:
                columns[resource] = grown(columns[resource], more)
        for resource, column in self._rates.items():
            self._rates[resource] = grown(column, more, NO_RATE)
        for mark, flags in self._marks.items():
            self._marks[mark] = grown(flags, more)
        self.ordering.grow(more)


def grown(column: NDArray[Any], capacity: int, filler: int = 0) -> NDArray[Any]:
    """The same with more rows."""
    bigger = np.full(capacity, filler, dtype=column.dtype)
    bigger[: column.shape[0]] = column
    return bigger


def _state(node: NodeFacts | None) -> int:
    if node is None:
        return 0
    return PRESENT | (CORDONED if node.cordoned else 0) | (0 if node.ready else NOT_READY)
