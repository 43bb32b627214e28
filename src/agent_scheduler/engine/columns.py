"""The state of all nodes as columns: one exact int64 array a resource, one row a node.

Two owners have such columns: the ledger (live) and each snapshot (a copy). Filters and scores read either, so
the binder's live re-check runs the very rules that chose the node. int64 because float32 cannot tell 16 GiB
from 16 GiB plus 512 bytes, and a scheduler that rounds overcommits.

Rows are reused after a node goes; `names[row]` is None in between and `present` is False.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from .nodeinfo import NodeInfo, Taints
from .podclass import PODS, HostPort
from .podcounts import Countable, PodsMatching
from .podterms import ExistingTerm
from .volumes.podvolumes import PodVolumes

Key = TypeVar("Key")
T = TypeVar("T")
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.intp]

#: Columns that every cluster has; other resources get the next free column when a node first offers them.
CPU: Final = 0
MEMORY: Final = 1
BASE_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage", PODS)

#: The pseudo label that holds a node's name, for `matchFields`. No label key can contain a NUL.
NODE_NAME: Final = "\0metadata.name"

#: Label columns kept. Keys come from pods, so their number is anybody's choice; one that was dropped is made again.
LABELS_KEPT: Final = 256
#: The same for images.
IMAGES_KEPT: Final = 256
#: The same for what is derived from them.
DERIVED_KEPT: Final = 256

NO_PORTS: Final[frozenset[HostPort]] = frozenset()
NOBODY: Final[frozenset[str]] = frozenset()
NO_GUESTS: Final[Mapping[str, PodVolumes]] = MappingProxyType({})


class Interns:
    """Small numbers for resources, taint lists and label values. Append-only, shared by ledger and snapshots.

    A number is never given twice, so a mask computed with one holds for as long as anyone keeps it.
    """

    def __init__(self) -> None:
        self.resources: dict[str, int] = {name: index for index, name in enumerate(BASE_RESOURCES)}
        self._taint_ids: dict[Taints, int] = {(): 0}
        #: taint list by id; id 0 is the empty list.
        self.taints: list[Taints] = [()]
        self._value_ids: dict[str, int] = {}
        #: label value by id - 1; id 0 means that the label is absent.
        self.values: list[str] = []

    def resource(self, name: str) -> int:
        return self.resources.setdefault(name, len(self.resources))

    def taint_id(self, taints: Taints) -> int:
        found = self._taint_ids.get(taints)
        if found is None:
            found = self._taint_ids[taints] = len(self.taints)
            self.taints.append(taints)
        return found

    def value_id(self, value: str) -> int:
        """The id of a label value, made if new."""
        found = self._value_ids.get(value)
        if found is None:
            self.values.append(value)
            found = self._value_ids[value] = len(self.values)
        return found

    def known_value(self, value: str) -> int:
        """The id of a label value, or -1 if no node ever had it."""
        return self._value_ids.get(value, -1)


class Columns:
    """Rows of nodes. All arrays have `capacity` columns; rows at or above `size` were never used."""

    __slots__ = (
        "_images",
        "_labels",
        "absent",
        "allocatable",
        "derived",
        "guests",
        "interns",
        "matching",
        "nodes",
        "ports",
        "present",
        "requested",
        "scored",
        "size",
        "spec_version",
        "taints",
        "terms",
        "unschedulable",
        "usage",
        "version",
    )

    def __init__(self, interns: Interns) -> None:
        resources = len(interns.resources)
        self.interns = interns
        self.size = 0
        #: [resource, row], the ledger's units.
        self.allocatable: Ints = np.zeros((resources, 0), dtype=np.int64)
        #: [2, resource, row]: `requested` and `scored` in one, because a bind changes both.
        self.usage: Ints = np.zeros((2, resources, 0), dtype=np.int64)
        #: Views of `usage`. `scored` is as `requested`, but CPU and memory are what the pods count as in scores
        #: (see `PodClass.nonzero`).
        self.requested, self.scored = self.usage
        #: Rises whenever anything on the row changes; never repeats, not even for a node that comes back.
        self.version: Ints = np.zeros(0, dtype=np.int64)
        #: The version at which the node's own spec last changed (labels, taints, allocatable).
        self.spec_version: Ints = np.zeros(0, dtype=np.int64)
        self.present: Bools = np.zeros(0, dtype=np.bool_)
        self.unschedulable: Bools = np.zeros(0, dtype=np.bool_)
        #: Id of the taint list in `interns.taints`.
        self.taints: Ints = np.zeros(0, dtype=np.int64)
        self.nodes: list[NodeInfo | None] = []
        #: Host ports taken, only for rows that have any.
        self.ports: dict[int, frozenset[HostPort]] = {}
        #: [row] how many pods of each kind stand there, for the kinds that somebody asks about.
        self.matching: WeakKeyDictionary[PodsMatching, Ints] = WeakKeyDictionary()
        #: [row] how often each term about other pods is said there.
        self.terms: dict[ExistingTerm, Ints] = {}
        #: UIDs of pods that are thought away for the time of a question, for plugins that know pods by name.
        self.absent: AbstractSet[str] = NOBODY
        #: The volumes of pods that are thought of as standing on the row in question, by UID, for that time.
        self.guests: Mapping[str, PodVolumes] = NO_GUESTS
        #: What has been worked out from the specs of all nodes, by whatever names it; emptied when one changes. At most
        #: `DERIVED_KEPT`, see `derive`.
        self.derived: dict[Hashable, Any] = {}
        #: Label key -> value ids, made when a selector first asks for the key; at most `LABELS_KEPT`.
        self._labels: dict[str, Ints] = {}
        #: Image -> sizes, made when a pod with that image is first ranked; at most `IMAGES_KEPT`.
        self._images: dict[str, Ints] = {}

    def set_usage(self, usage: Ints) -> None:
        """Have `usage`, of the same shape, in the place of what is there."""
        self.usage = usage
        self.requested, self.scored = usage

    @property
    def capacity(self) -> int:
        return int(self.version.shape[0])

    def reserve(self, rows: int) -> None:
        """Make room for `rows` rows and for every resource known by now."""
        resources = len(self.interns.resources)
        grown_rows = max(rows, self.capacity)
        if grown_rows > self.capacity:
            grown_rows = max(grown_rows, 2 * self.capacity, 64)
        if grown_rows == self.capacity and resources == self.allocatable.shape[0]:
            return
        self.allocatable = _grown(self.allocatable, (resources, grown_rows))
        self.usage = _grown(self.usage, (2, resources, grown_rows))
        self.requested, self.scored = self.usage
        for name in ("version", "spec_version", "present", "unschedulable", "taints"):
            setattr(self, name, _grown(getattr(self, name), (grown_rows,)))
        self._labels = {key: _grown(column, (grown_rows,)) for key, column in self._labels.items()}
        _grow_each(self._images, grown_rows)
        _grow_each(self.matching, grown_rows)
        _grow_each(self.terms, grown_rows)
        self.nodes.extend([None] * (grown_rows - len(self.nodes)))

    def all_rows(self) -> Rows:
        return np.arange(self.size, dtype=np.intp)

    def label(self, key: str) -> Ints:
        """Value ids of label `key` for the rows in use; 0 where a node lacks it."""
        column = self._labels.get(key)
        if column is None:
            column = np.zeros(self.capacity, dtype=np.int64)
            for row, node in enumerate(self.nodes[: self.size]):
                column[row] = self._value(node, key)
            if len(self._labels) >= LABELS_KEPT:
                del self._labels[next(iter(self._labels))]
            self._labels[key] = column
        return column

    def image(self, name: str) -> Ints:
        """Bytes of an image on the rows in use; 0 where a node lacks it."""
        column = self._images.get(name)
        if column is None:
            column = np.zeros(self.capacity, dtype=np.int64)
            for row, node in enumerate(self.nodes[: self.size]):
                if node is not None:
                    column[row] = node.images.get(name, 0)
            if len(self._images) >= IMAGES_KEPT:
                del self._images[next(iter(self._images))]
            self._images[name] = column
        return column

    def derive(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """What `work_out` makes of the specs of all nodes, kept under `key` until one changes."""
        found: T | None = self.derived.get(key)
        if found is None:
            if len(self.derived) >= DERIVED_KEPT:
                self.derived.clear()
            found = self.derived[key] = work_out()
        return found

    def relabel(self, row: int, node: NodeInfo | None) -> None:
        """Bring the columns of labels and images in step with what now stands in `row`."""
        self.derived.clear()
        for key, column in self._labels.items():
            column[row] = self._value(node, key)
        for name, column in self._images.items():
            column[row] = 0 if node is None else node.images.get(name, 0)

    def _value(self, node: NodeInfo | None, key: str) -> int:
        if node is None:
            return 0
        value = node.name if key == NODE_NAME else node.labels.get(key)
        return 0 if value is None else self.interns.value_id(value)

    def count_others(self, row: int, pod: Countable, sign: int) -> None:
        """Add (1) or take away (-1) what a pod on `row` is to other pods."""
        for kind, column in self.matching.items():
            if kind.counts(pod):
                column[row] += sign
        for term in pod.cls.existing:
            self.terms[term][row] += sign

    def copy_rows(self, source: Columns, rows: Sequence[int]) -> None:
        """Make `rows` equal to those of `source`. Cost is per row, not per node of the cluster."""
        self.reserve(source.size)
        self.size = source.size
        if not len(rows):
            return
        if self.matching or self.terms:
            index = np.asarray(rows, dtype=np.intp)
            _copy_each(self.matching, source.matching, index)
            _copy_each(self.terms, source.terms, index)
        resources = source.allocatable.shape[0]
        if len(rows) == 1 and self.spec_version.item(rows[0]) == source.spec_version.item(rows[0]):
            # What a bind leaves behind: slices of one column, without an index array.
            row = rows[0]
            self.usage[:, :resources, row] = source.usage[:, :, row]
            self.version[row] = source.version[row]
            self._copy_ports(source, rows)
            return
        index = np.asarray(rows, dtype=np.intp)
        self.usage[:, :resources, index] = source.usage[:, :, index]
        self.version[index] = source.version[index]
        changed = index[self.spec_version[index] != source.spec_version[index]]
        if changed.size:
            self.allocatable[:resources, changed] = source.allocatable[:, changed]
            for name in ("spec_version", "present", "unschedulable", "taints"):
                getattr(self, name)[changed] = getattr(source, name)[changed]
            for row in changed.tolist():
                self.nodes[row] = source.nodes[row]
                self.relabel(row, source.nodes[row])
        self._copy_ports(source, rows)

    def _copy_ports(self, source: Columns, rows: Sequence[int]) -> None:
        if source.ports or self.ports:
            for row in rows:
                taken = source.ports.get(row)
                if taken is None:
                    self.ports.pop(row, None)
                else:
                    self.ports[row] = taken

    def copy_counts(self, source: Columns) -> None:
        """Have the same columns of counts as `source`: whole where they are new."""
        self.reserve(source.size)
        for term in [term for term in self.terms if term not in source.terms]:
            del self.terms[term]
        _copy_new(self.matching, source.matching, self.capacity)
        _copy_new(self.terms, source.terms, self.capacity)


def _grow_each(columns: MutableMapping[Key, Ints], rows: int) -> None:
    for key in list(columns):
        columns[key] = _grown(columns[key], (rows,))


def _copy_new(mine: MutableMapping[Key, Ints], its: Mapping[Key, Ints], capacity: int) -> None:
    for key, column in its.items():
        if key not in mine:
            mine[key] = _grown(column[:capacity], (capacity,))


def _copy_each(mine: Mapping[Key, Ints], its: Mapping[Key, Ints], index: Rows) -> None:
    for key, column in mine.items():
        source = its.get(key)
        if source is not None:
            column[index] = source[index]


def _grown(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    bigger = np.zeros(shape, dtype=array.dtype)
    bigger[tuple(slice(0, length) for length in array.shape)] = array
    return bigger
