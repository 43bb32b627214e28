"""The state of all nodes as columns: one int64 array per resource, one row per node.

The allocatable and used amounts of a row are stored twice: as plain numbers, which cost a tenth of arrays for a query
about one row, and as arrays, for queries about all rows. A change writes the numbers; arrays are updated when read.

The ledger (live) and each snapshot (a copy) own such columns. Filters and scores read both, so the binder's check of
the live state applies the same rules that selected the node. The type is int64 since float32 cannot distinguish 16 GiB
from 16 GiB plus 512 bytes, and a scheduler that rounds overcommits.

A row is reused after its node was deleted; in between, `nodes[row]` is None and `present[row]` is False.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from .gpus import NO_GPUS, RESOURCE, WHOLE, Free, Indices, all_free, without
from .interns import Interns
from .nodeinfo import NodeInfo
from .podclass import HostPort
from .podcounts import KindColumns, PodsMatching
from .podinfo import Placement, PodInfo
from .podterms import ExistingTerm
from .podvolumes import PodVolumes
from .rowlog import RowLog

Key = TypeVar("Key")
T = TypeVar("T")
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.intp]
#: The amounts of one row, by resource.
Amounts = tuple[int, ...]

#: The first two of `BASE_RESOURCES`.
CPU: Final = 0
MEMORY: Final = 1

#: The pseudo label that holds a node's name, for `matchFields`. No label key can contain a NUL.
NODE_NAME: Final = "\0metadata.name"

#: The maximum number of cached columns of labels, of images, and of derived values. Keys come from pods, so users
#: determine their number; a dropped column is built again when needed.
COLUMNS_KEPT: Final = 256

#: The maximum number of array rows that are behind their numbers; at more, the arrays are updated immediately, so that
#: no reader waits long.
_BEHIND_AT_MOST: Final = 4096

#: The maximum number of rows of a sum that are computed again one by one.
_SUMMED_AT_MOST: Final = 16

NO_PORTS: Final[frozenset[HostPort]] = frozenset()
NOBODY: Final[frozenset[str]] = frozenset()


class ColumnGroup:
    """Columns of counts that are only read as their weighted sum: of kinds of pods, or of existing terms.

    Equal only to itself: the sum is kept while it is referenced.
    """

    __slots__ = ("__weakref__", "factor", "members")

    def __init__(self, members: Sequence[tuple[int, PodsMatching | ExistingTerm]]) -> None:
        """Create the group of these members with their weights."""
        self.members = members
        #: The weight of `counts`: that of a member that is alone, whose column is read as it is.
        self.factor = members[0][0] if len(members) == 1 else 1

    def counts(self, nodes: Columns) -> Ints:
        """Return [row] the counts. Read-only, and valid until the next change of a count."""
        return self.column(nodes, self.members[0][1]) if len(self.members) == 1 else nodes.sum_of(self)

    @staticmethod
    def column(nodes: Columns, member: PodsMatching | ExistingTerm) -> Ints:
        return nodes.matching[member] if isinstance(member, PodsMatching) else nodes.terms[member]


@dataclass(slots=True)
class _GroupSum:
    total: Ints
    #: The position up to which the log of counts has been read.
    position: int


class Columns:
    """Rows of nodes. All arrays have `capacity` columns; rows at or above `size` were never used."""

    def __init__(self, interns: Interns) -> None:
        resources = len(interns.resources)
        self.interns = interns
        self.size = 0
        self.capacity = 0
        #: The number of resources with a column; they are the first ones of `interns.resources`.
        self.resources = resources
        #: [row] the node's allocatable amounts, in the ledger's units.
        self.offers: list[Amounts] = []
        #: The same amounts as [resource, row].
        self.allocatable: Ints = np.zeros((resources, 0), dtype=np.int64)
        #: [row] the requests of its pods by resource, followed by their amounts in scores by resource, which differ for
        #: CPU and memory (see `PodClass.nonzero`).
        self.taken: list[Amounts] = []
        #: The same amounts as [2, resource, row], except for the rows in `_behind`.
        self._usage: Ints = np.zeros((2, resources, 0), dtype=np.int64)
        self._requested: Ints = self._usage[0]
        self._scored: Ints = self._usage[1]
        self._behind: set[int] = set()
        #: Increases with each change of the row; never repeats, even if a node is deleted and created again.
        self.version: list[int] = []
        #: The version at which the node's own spec last changed (labels, taints, allocatable).
        self.spec_version: list[int] = []
        self.present: Bools = np.zeros(0, dtype=np.bool_)
        self.unschedulable: Bools = np.zeros(0, dtype=np.bool_)
        #: The generation of `interns` to which the numbers in `_taints` and `_labels` belong.
        self._generation = interns.generation
        self._taints: Ints = np.zeros(0, dtype=np.int64)
        self.nodes: list[NodeInfo | None] = []
        #: The host ports in use, only for rows with any.
        self.ports: dict[int, frozenset[HostPort]] = {}
        #: The free part of each GPU, only for rows with GPUs; and for all rows, the maximum free on one GPU and the
        #: number of unused GPUs.
        self.gpus: dict[int, Free] = {}
        self.gpu_most: Ints = np.zeros(0, dtype=np.int64)
        self.gpu_whole: Ints = np.zeros(0, dtype=np.int64)
        #: [row] the number of pods of each kind, for the kinds that plugins ask about.
        self.matching = KindColumns()
        #: [row] the number of pods with each term about other pods.
        self.terms: dict[ExistingTerm, Ints] = {}
        #: The rows on which counts of `matching` or `terms` may have changed; each writer appends its rows.
        self.counted = RowLog()
        #: Owned by `decide.trial.WhatIf`: the UIDs of placed pods that are removed hypothetically, for plugins that
        #: read pods by name; and the volumes, host ports and GPUs of hypothetically added pods, by row and UID.
        self.absent: set[str] = set()
        self.hypothetical_pods: dict[int, dict[str, PodVolumes]] = {}
        self.hypothetical_ports: dict[int, dict[str, tuple[HostPort, ...]]] = {}
        self.hypothetical_gpus: dict[int, dict[str, Indices]] = {}
        #: The sums of groups of columns of counts, each while its group is referenced; see `sum_of`.
        self._sums: WeakKeyDictionary[ColumnGroup, _GroupSum] = WeakKeyDictionary()
        #: The values computed from the specs of all nodes, by key; emptied when a spec changes. At most `COLUMNS_KEPT`,
        #: see `derive`.
        self.derived: dict[Hashable, Any] = {}
        #: All label keys of nodes, and of nodes that were deleted or changed; None before a label is first read.
        self._label_keys: set[str] | None = None
        #: Label key -> value ids, built when a selector first asks for the key; at most `COLUMNS_KEPT`.
        self._labels: dict[str, Ints] = {}
        #: Image -> sizes, built when a pod with that image is first scored; at most `COLUMNS_KEPT`.
        self._images: dict[str, Ints] = {}

    @property
    def taints(self) -> Ints:
        """[row] id of the taint list in `interns.taints`. Read this first, since it may renumber that list."""
        if self._generation != self.interns.generation:
            self._number_anew()
        return self._taints

    def _number_anew(self) -> None:
        """Replace the numbers of taints and labels by those of the new generation; derived values stay valid."""
        self._generation = self.interns.generation
        self._label_keys = None
        for row, node in enumerate(self.nodes[: self.size]):
            self._taints[row] = 0 if node is None else self.interns.taint_id(node.taints)
        self._labels = {key: self._column(self._value, key) for key in self._labels}

    @property
    def usage(self) -> Ints:
        """[2, resource, row] `requested` and `scored` in one array. Read-only; changes are written to `taken`."""
        if self._behind:
            self._catch_up()
        return self._usage

    @property
    def requested(self) -> Ints:
        """[resource, row] the requests of the pods."""
        if self._behind:
            self._catch_up()
        return self._requested

    @property
    def scored(self) -> Ints:
        """[resource, row] the amounts of the pods in scores."""
        if self._behind:
            self._catch_up()
        return self._scored

    def set_usage(self, usage: Ints) -> None:
        """Replace the arrays by others of the same shape while filters evaluate many rows; `taken` is unchanged."""
        self._usage = usage
        self._requested, self._scored = usage

    def offer(self, row: int, amounts: Mapping[str, int]) -> None:
        """Set the allocatable amounts of a row. Each of these resources must have a column."""
        offered = [0] * self.resources
        for resource, amount in amounts.items():
            offered[self.interns.resources[resource]] = amount
        self.offers[row] = tuple(offered)
        self.allocatable[:, row] = offered

    def set_ports(self, row: int, ports: frozenset[HostPort]) -> None:
        if ports:
            self.ports[row] = ports
        else:
            self.ports.pop(row, None)

    def set_gpus(self, row: int, free: Free) -> None:
        if free:
            self.gpus[row] = free
            self.gpu_most[row], self.gpu_whole[row] = max(free), free.count(WHOLE)
        elif self.gpus.pop(row, None) is not None:
            self.gpu_most[row] = self.gpu_whole[row] = 0

    def offered_gpus(self, row: int) -> Free:
        """Return the GPUs of a row's node as if it had no pods."""
        index = self.interns.resources.get(RESOURCE, self.resources)
        return all_free(self.offers[row][index]) if index < self.resources else NO_GPUS

    def recount_gpus(self, row: int, placements: Iterable[Placement]) -> None:
        """Compute the free part of the row's GPUs from the pods placed there."""
        free = self.offered_gpus(row)
        for each in placements if free else ():
            if each.gpus:
                free = without(free, each.gpus, each.cls.gpu)
        self.set_gpus(row, free)

    def take(self, row: int, taken: Amounts | None) -> None:
        """Set the used amounts of a row to `taken`; None means zero."""
        self.taken[row] = taken or (0,) * (2 * self.resources)
        self._behind.add(row)

    def _catch_up(self) -> None:
        rows = list(self._behind)
        self._behind.clear()
        if len(rows) == 1 and self._usage.flags.c_contiguous:
            # This is the case after each bind.
            (row,) = rows
            self._usage.reshape(2 * self.resources, -1)[:, row] = self.taken[row]
            return
        taken = np.array([self.taken[row] for row in rows], dtype=np.int64)
        self._usage[:, :, rows] = taken.T.reshape(2, self.resources, len(rows))

    def reserve(self, rows: int) -> None:
        """Grow to at least `rows` rows and to all resources known so far."""
        resources = len(self.interns.resources)
        grown_rows = self.capacity if rows <= self.capacity else max(rows, 2 * self.capacity, 64)
        if grown_rows == self.capacity and resources == self.resources:
            return
        self._pad(resources - self.resources)
        more = grown_rows - self.capacity
        self.offers.extend([(0,) * resources] * more)
        self.taken.extend([(0,) * (2 * resources)] * more)
        self.version.extend([0] * more)
        self.spec_version.extend([0] * more)
        self.allocatable = _grown(self.allocatable, (resources, grown_rows))
        self.set_usage(_grown(self._usage, (2, resources, grown_rows)))
        for name in ("present", "unschedulable", "_taints", "gpu_most", "gpu_whole"):
            setattr(self, name, _grown(getattr(self, name), (grown_rows,)))
        self._labels = {key: _grown(column, (grown_rows,)) for key, column in self._labels.items()}
        _grow_each(self._images, grown_rows)
        _grow_each(self.matching, grown_rows)
        _grow_each(self.terms, grown_rows)
        self.nodes.extend([None] * more)
        self.resources, self.capacity = resources, grown_rows

    def _pad(self, more: int) -> None:
        """Add `more` resources to every row, with amounts of zero."""
        if more:
            nothing, resources = (0,) * more, self.resources
            self.offers = [offered + nothing for offered in self.offers]
            self.taken = [taken[:resources] + nothing + taken[resources:] + nothing for taken in self.taken]

    def all_rows(self) -> Rows:
        return np.arange(self.size, dtype=np.intp)

    def label(self, key: str) -> Ints:
        """Return the value ids of label `key` for the rows in use; 0 if a node lacks it."""
        if self._generation != self.interns.generation:
            self._number_anew()
        column = self._labels.get(key)
        if column is None:
            if self._label_keys is None:
                self._label_keys = {NODE_NAME}.union(*(node.labels for node in self.nodes if node is not None))
            if key not in self._label_keys:
                return self.derive("no label", lambda: np.zeros(self.capacity, dtype=np.int64))
            column = _keep(self._labels, key, self._column(self._value, key))
        return column

    def _column(self, value: Callable[[NodeInfo | None, str], int], key: str) -> Ints:
        column = np.zeros(self.capacity, dtype=np.int64)
        for row, node in enumerate(self.nodes[: self.size]):
            column[row] = value(node, key)
        return column

    def image(self, name: str) -> Ints:
        """Return the size of an image in bytes on the rows in use; 0 if a node lacks it."""
        column = self._images.get(name)
        if column is None:
            column = _keep(self._images, name, self._column(_size, name))
        return column

    def derive(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """Return what `work_out` computes from the specs of all nodes; cached under `key` until a spec changes."""
        found: T | None = self.derived.get(key)
        if found is None:
            if len(self.derived) >= COLUMNS_KEPT:
                self.derived.clear()
            found = self.derived[key] = work_out()
        return found

    def sum_of(self, group: ColumnGroup) -> Ints:
        """Return [row] the weighted sum of a group's counts. Read-only, and valid until the next change of a count."""
        kept, end = self._sums.get(group), self.counted.end
        if kept is not None and kept.total.shape[0] == self.capacity:
            if kept.position == end:
                return kept.total
            if end - kept.position <= _SUMMED_AT_MOST:
                rows = self.counted.since(kept.position)
                if rows is not None:
                    columns = [(weight, group.column(self, each)) for weight, each in group.members]
                    for row in rows:
                        kept.total[row] = sum([weight * column.item(row) for weight, column in columns])
                    kept.position = end
                    return kept.total
        total: Ints = np.zeros(self.capacity, dtype=np.int64)
        for weight, each in group.members:
            total += weight * group.column(self, each)
        if kept is not None and kept.total.shape == total.shape:
            # Sums over domains are kept by the identity of this array.
            kept.total[:] = total
            kept.position = end
            return kept.total
        self._sums[group] = _GroupSum(total, end)
        return total

    def relabel(self, row: int, node: NodeInfo | None) -> None:
        """Update the columns of taints, labels and images for the node that `row` has now."""
        self.derived.clear()
        if node is not None and self._label_keys is not None:
            self._label_keys.update(node.labels)
        self.taints[row] = 0 if node is None else self.interns.taint_id(node.taints)
        for key, column in self._labels.items():
            column[row] = self._value(node, key)
        for name, column in self._images.items():
            column[row] = _size(node, name)

    def _value(self, node: NodeInfo | None, key: str) -> int:
        if node is None:
            return 0
        value = node.name if key == NODE_NAME else node.labels.get(key)
        return 0 if value is None else self.interns.value_id(value)

    def count_others(self, row: int, pod: PodInfo, sign: int) -> None:
        """Add (1) or remove (-1) a pod on `row` in the counts that concern other pods."""
        if self.matching:
            for kind in self.matching.counting(pod):
                self.matching[kind][row] += sign
        for term in pod.cls.existing:
            self.terms[term][row] += sign
        self.counted.append(row)

    def count_nobody(self, row: int) -> None:
        """Reset the counts of pods on a row to zero."""
        for column in (*self.matching.values(), *self.terms.values()):
            column[row] = 0
        self.counted.append(row)

    def copy_rows(self, source: Columns, rows: Sequence[int]) -> list[int]:
        """Copy `rows` from `source`. Returns those whose node has changed.

        The cost is per copied row, not per node of the cluster.
        """
        if self.size != source.size or self.resources != source.resources:
            self.reserve(source.size)
            self.size = source.size
        respecified = []
        version, spec_version, taken = self.version, self.spec_version, self.taken
        for row in rows:
            version[row] = source.version[row]
            taken[row] = source.taken[row]
            if spec_version[row] != source.spec_version[row]:
                respecified.append(row)
        self._behind.update(rows)
        if len(self._behind) > _BEHIND_AT_MOST:
            self._catch_up()
        if self.matching or self.terms:
            # After a bind there is one row; a plain number as index costs a third of an array.
            index = rows[0] if len(rows) == 1 else np.asarray(rows, dtype=np.intp)
            for reference in self.matching.keyrefs():
                kind = reference()
                if kind is not None:
                    _copy_rows(self.matching[kind], source.matching.get(kind), index)
            for term, column in self.terms.items():
                _copy_rows(column, source.terms.get(term), index)
            self.counted.extend(rows)
        if respecified:
            self._copy_nodes(source, respecified)
        if source.ports or self.ports:
            for row in rows:
                self.set_ports(row, source.ports.get(row, NO_PORTS))
        if source.gpus or self.gpus:
            for row in rows:
                self.set_gpus(row, source.gpus.get(row, NO_GPUS))
        return respecified

    def _copy_nodes(self, source: Columns, rows: Sequence[int]) -> None:
        index = np.asarray(rows, dtype=np.intp)
        self.allocatable[:, index] = source.allocatable[:, index]
        for name in ("present", "unschedulable"):
            getattr(self, name)[index] = getattr(source, name)[index]
        for row in rows:
            self.spec_version[row] = source.spec_version[row]
            self.offers[row] = source.offers[row]
            self.nodes[row] = source.nodes[row]
            self.relabel(row, source.nodes[row])

    def copy_counts(self, source: Columns, keep: Collection[ExistingTerm] = ()) -> list[PodsMatching]:
        """Create and delete columns of counts to match `source`. Returns the kinds whose columns are new.

        New columns are copied as a whole. Columns of the terms in `keep` are not deleted.
        """
        self.reserve(source.size)
        for term in [term for term in self.terms if term not in source.terms and term not in keep]:
            del self.terms[term]
        _copy_new(self.terms, source.terms, self.capacity)
        return _copy_new(self.matching, source.matching, self.capacity)


def _size(node: NodeInfo | None, image: str) -> int:
    return 0 if node is None else node.images.get(image, 0)


def _keep(columns: dict[str, Ints], key: str, column: Ints) -> Ints:
    """Add a column to the cache; if it is full, drop the oldest one."""
    if len(columns) >= COLUMNS_KEPT:
        del columns[next(iter(columns))]
    columns[key] = column
    return column


def _grow_each(columns: MutableMapping[Key, Ints], rows: int) -> None:
    for key in list(columns):
        columns[key] = _grown(columns[key], (rows,))


def _copy_new(mine: MutableMapping[Key, Ints], its: Mapping[Key, Ints], capacity: int) -> list[Key]:
    new = [key for key in its if key not in mine]
    for key in new:
        mine[key] = _grown(its[key][:capacity], (capacity,))
    return new


def _copy_rows(mine: Ints, its: Ints | None, index: Rows | int) -> None:
    if its is not None:
        mine[index] = its[index]


def _grown(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    bigger = np.zeros(shape, dtype=array.dtype)
    bigger[tuple(slice(0, length) for length in array.shape)] = array
    return bigger
