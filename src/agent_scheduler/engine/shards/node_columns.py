"""Nodes in columns: offered amounts, the requests of their pods, and the resulting utilization."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from agent_scheduler.objects import wire

from ..state.nodeinfo import NodeInfo, node_info
from ..state.requests import Amounts

Rows = NDArray[np.intp]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: A label and its required value.
Mark = tuple[str, str]

#: The rate of a node without the resource. As an index it is the last.
NO_RATE: Final = -1

_READY = "Ready"


class NodeFacts(Struct, frozen=True, gc=False, kw_only=True):
    """One node at one resourceVersion. Equal values make no difference to a plan."""

    name: str
    labels: Mapping[str, str] = {}
    #: In the ledger's units, each at most its `NODE_LIMIT` (`engine.state.requests`).
    allocatable: Amounts = {}
    #: Whether its spec is unschedulable.
    cordoned: bool = False
    #: Whether its condition Ready is True; a node without the condition is not ready.
    ready: bool = True


def node_facts(node: wire.Node | NodeInfo) -> NodeFacts:
    """Extract a node's facts. Never raises: an invalid quantity counts as none."""
    info = node if isinstance(node, NodeInfo) else node_info(node)
    return NodeFacts(
        name=info.name,
        labels=info.labels,
        allocatable=info.allocatable,
        cordoned=info.unschedulable,
        ready=info.conditions.get(_READY) == "True",
    )


_LEAST: Final = 64

#: Bits of `NodeColumns.state`.
PRESENT: Final = 1
CORDONED: Final = 2
NOT_READY: Final = 4
FOREIGN: Final = 8
STATES: Final = 16


class NodeColumns:
    """Owns the rows, the facts of nodes, and the amounts that pods use.

    A name has a row as long as there is a node of that name, or a pod on it, or a shard that names it; so pods may come
    before their node. Invariant, after `refresh`: `used` is the sum over the known pods, `offered` the nodes' offers,
    `rates` and `marks` are derived from these, and `state` of an unused row is 0.
    """

    def __init__(self) -> None:
        #: [row] its name, also of currently unused rows. Copied before a write if a plan may hold it (`share_names`).
        self.names: list[str] = []
        self._shared = False
        self.row_of: dict[str, int] = {}
        self._unused: list[int] = []
        #: [row] the position of its name among all sorted names.
        self.ranks: Ints = np.zeros(0, dtype=np.int64)
        #: Whether there are names without a rank.
        self._is_unranked = False
        self.capacity = 0
        #: [row] bits.
        self.state: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
        #: Resource -> [row].
        self.offered: dict[str, Ints] = {}
        self._used: dict[str, Ints] = {}
        self._rates: dict[str, NDArray[np.int16]] = {}
        self._marks: dict[Mark, Flags] = {}
        self._nodes: list[NodeFacts | None] = []
        #: UID -> the row of a pod, and its requests. Pairs of both would be a million more objects for the garbage
        #: collector.
        self._pods: dict[str, int] = {}
        self._requests: dict[str, Amounts] = {}
        #: [row] the number of pods.
        self._pod_counts: list[int] = []
        #: Row -> names of the foreign shards that want it. Replaced, never changed: plans hold it.
        self.foreign: dict[int, tuple[str, ...]] = {}
        #: Rows that have changed since the last `refresh`, and those whose rates may have changed.
        self._changed: set[int] = set()
        self._stale_rates: set[int] = set()

    @property
    def size(self) -> int:
        return len(self.names)

    def rate(self, resource: str) -> NDArray[np.int16]:
        return self._rates[resource]

    def marked(self, mark: Mark) -> Flags:
        return self._marks[mark]

    def row(self, name: str) -> int:
        """Return the row of a name, which may be a new one."""
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
                self._pod_counts.append(0)
                if row == self.capacity:
                    self._grow()
            self.row_of[name] = row
            self._is_unranked = True
        return row

    def share_names(self) -> list[str]:
        """Return the names in a list that does not change."""
        self._shared = True
        return self.names

    # Each of these four returns whether the known state has changed.

    def set_node(self, node: NodeFacts) -> bool:
        row = self.row(node.name)
        if self._nodes[row] == node:
            return False
        self._nodes[row] = node
        self._read(row, node)
        return True

    def delete_node(self, name: str) -> bool:
        """Delete a node; an unknown one is ignored.

        Its pods stay known until they are deleted, and count if it returns.
        """
        row = self.row_of.get(name)
        if row is None or self._nodes[row] is None:
            return False
        self._nodes[row] = None
        self._read(row, None)
        return True

    def set_pod(self, uid: str, node: str, requests: Amounts) -> bool:
        """Store an active pod on a node, with its requests.

        The node need not be known yet; a pod on another node than before has moved. The caller leaves out finished
        pods, deletes pods that finish, and decides whether mirror pods count. `requests` is kept, and must not change.
        """
        row = self.row(node)
        before = self._pods.get(uid)
        if before is not None:
            if before == row and self._requests[uid] == requests:
                return False
            self._count(before, self._requests[uid], -1)
        self._pods[uid] = row
        self._requests[uid] = requests
        self._count(row, requests, 1)
        return True

    def delete_pod(self, uid: str) -> bool:
        """Delete a pod; an unknown one is ignored."""
        row = self._pods.pop(uid, None)
        if row is None:
            return False
        self._count(row, self._requests.pop(uid), -1)
        return True

    def _count(self, row: int, requests: Amounts, sign: int) -> None:
        for resource, used in self._used.items():
            amount = requests.get(resource)
            if amount:
                used[row] += sign * amount
        self._pod_counts[row] += sign
        self._stale_rates.add(row)

    def set_foreign(self, shard: str, before: Collection[str], after: Collection[str]) -> None:
        """Store the nodes that a foreign shard wants, `after` instead of `before`."""
        wanted = dict(self.foreign)
        gone, come = [self.row_of[name] for name in before], [self.row(name) for name in after]
        for row in gone:
            others = tuple(each for each in wanted.pop(row) if each != shard)
            if others:
                wanted[row] = others
        for row in come:
            wanted[row] = tuple(sorted((*wanted.get(row, ()), shard)))
        self.foreign = wanted
        for row in (*gone, *come):
            self._read(row, self._nodes[row])
        # Plans name the shards that want a row, so the row changes even if it was wanted before.
        self._changed.update(gone, come)
        self._stale_rates.update(gone)

    def recheck(self, rows: Iterable[int]) -> None:
        """Make `refresh` check whether these rows are still needed."""
        self._stale_rates.update(rows)

    def set_columns(self, resources: Iterable[str], marks: Iterable[Mark]) -> None:
        """Set the columns to exactly these resources and marks."""
        wanted, marks = sorted(set(resources)), sorted(set(marks))
        if wanted == list(self.offered) and marks == list(self._marks):
            return
        self.offered = {resource: np.zeros(self.capacity, dtype=np.int64) for resource in wanted}
        self._rates = {resource: np.full(self.capacity, NO_RATE, dtype=np.int16) for resource in wanted}
        self._marks = {mark: np.zeros(self.capacity, dtype=bool) for mark in marks}
        self._used = {resource: np.zeros(self.capacity, dtype=np.int64) for resource in wanted}
        for resource, column in self._used.items():
            for uid, row in self._pods.items():
                column[row] += self._requests[uid].get(resource, 0)
        for row in self.row_of.values():
            self._read(row, self._nodes[row])
            self._stale_rates.add(row)

    def refresh(self, held: Callable[[int], bool]) -> Flags:
        """Apply the changes. Return [row] whether any value that a plan reads has changed.

        `held` returns whether a row without a node, a pod and a foreign shard is still needed.
        """
        if self._is_unranked:
            rows = np.fromiter(map(self.row_of.__getitem__, sorted(self.row_of)), np.intp, len(self.row_of))
            self.ranks = np.zeros(self.capacity, dtype=np.int64)
            self.ranks[rows] = np.arange(rows.shape[0])
            self._is_unranked = False
        changed = np.zeros(self.size, dtype=bool)
        changed[rows_of(self._changed)] = True
        self._changed = set()
        if self._stale_rates:
            rows = rows_of(self._stale_rates)
            changed[rows] |= self._rate(rows)
            self._stale_rates = set()
            for row in rows[self.state[rows] == 0].tolist():
                if not self._pod_counts[row] and not held(row):
                    self._release(row)
        return changed

    def _read(self, row: int, node: NodeFacts | None) -> None:
        """Update a row from its node."""
        state, changed = _state(node) | (FOREIGN if row in self.foreign else 0), False
        if self.state.item(row) != state:
            self.state[row] = state
            changed = True
        for resource, offered in self.offered.items():
            amount = 0 if node is None else node.allocatable.get(resource, 0)
            if offered.item(row) != amount:
                offered[row] = amount
                changed = True
        for (key, value), flags in self._marks.items():
            marked = node is not None and node.labels.get(key) == value
            if flags.item(row) != marked:
                flags[row] = marked
                changed = True
        if changed:
            self._changed.add(row)
            self._stale_rates.add(row)

    def _rate(self, rows: Rows) -> Flags:
        """Update the utilization of nodes. Return for each of `rows` whether it has changed."""
        changed: Flags = np.zeros(rows.shape[0], dtype=bool)
        for resource, column in self._rates.items():
            offered = self.offered[resource][rows]
            used = np.minimum(self._used[resource][rows], offered)
            # Rounded half up. 200 times the largest amount is within 63 bits (`engine.state.requests.NODE_LIMIT`).
            rates = np.where(offered > 0, (200 * used + offered) // np.maximum(2 * offered, 1), NO_RATE)
            changed |= column[rows] != rates
            column[rows] = rates
        return changed

    def _release(self, row: int) -> None:
        del self.row_of[self.names[row]]
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


def rows_of(rows: Collection[int]) -> Rows:
    """Return the rows as a sorted index, by which memory is read faster."""
    return np.sort(np.fromiter(rows, np.intp, len(rows)))


def grown(column: NDArray[Any], capacity: int, filler: int = 0) -> NDArray[Any]:
    """Return the column with more rows."""
    bigger = np.full(capacity, filler, dtype=column.dtype)
    bigger[: column.shape[0]] = column
    return bigger


def _state(node: NodeFacts | None) -> int:
    if node is None:
        return 0
    return PRESENT | (CORDONED if node.cordoned else 0) | (0 if node.ready else NOT_READY)
