"""Hypothetical placements and removals: columns with these changes, and the journal that undoes them.

Compiled filters and scores read columns, so the question "would the pod fit without these pods and beside those" is
answered by changing rows, asking, and undoing each change, the latest first.

- `WhatIf`: for one question, on the ledger's columns or a snapshot's. Class views are not updated.
- `Trial`: for as long as its owner needs it, on a snapshot of its own. Its views are kept current, one row per change.

Versions of rows are unchanged: they describe the changes of the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Final, NamedTuple, NewType, TypeVar

import numpy as np

from ..framework.prebind import Writes
from ..ledger import Ledger
from ..state.columns import Amounts, Columns, Ints
from ..state.gpus import NO_GPUS, Free, Indices, beside, choose, without
from ..state.podclass import HostPort, PodClass
from ..state.podcounts import PodsMatching
from ..state.podinfo import PodInfo
from ..state.podterms import ExistingTerm
from .classview import ClassView
from .decide import ClassViews
from .reserving import Reservations, reserve, unreserve
from .snapshot import Snapshot

T = TypeVar("T")


def is_hypothetical(columns: Columns, uid: str, row: int) -> bool:
    """Return whether the pod is hypothetically on `row` with volumes, host ports or GPUs. Other pods have no entry."""
    kinds = (columns.hypothetical_pods, columns.hypothetical_ports, columns.hypothetical_gpus)
    return any(uid in by_row.get(row, ()) for by_row in kinds)


def note(by_row: dict[int, dict[str, T]], row: int, uid: str, what: T | None) -> None:
    """Record that the pod has `what` on the row, or remove its entry if None."""
    there = by_row.setdefault(row, {})
    if what is None:
        del there[uid]
    else:
        there[uid] = what
    if not there:
        del by_row[row]


#: A position in a journal.
Mark = NewType("Mark", int)
Quietly = Callable[[], AbstractContextManager[None]]

START: Final = Mark(0)


class TrialStep(NamedTuple):
    """A pod that was added to a row (1) or removed from it (-1), and the former values of the row."""

    pod: PodInfo
    row: int
    sign: int
    taken: Amounts
    ports: frozenset[HostPort] | None
    gpus: Free
    #: The devices that the pod has or had there.
    given: Indices
    #: Whether `Columns.absent` records the change: a placed pod was removed, or is back.
    of_placed: bool
    #: Those of its terms that no pod had before.
    terms: tuple[ExistingTerm, ...]


class WhatIf:
    """Owns the hypothetical changes of some columns: the ledger's own, or those of a snapshot that is current.

    Several may work on the same columns if the later one ends first. Invariant: after a rollback to a mark, the columns
    are byte for byte what they were at the mark.
    """

    def __init__(self, ledger: Ledger, columns: Columns) -> None:
        self._ledger = ledger
        self._columns = columns
        self._journal: list[TrialStep] = []
        #: The latest position that a rollback may go back to.
        self._marked = START
        #: Class of added pods with terms about others -> one of them, and the number of additions.
        self._speaking: dict[PodClass, tuple[PodInfo, int]] = {}

    def __enter__(self) -> WhatIf:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rollback(START)

    def place(self, pod: PodInfo, row: int) -> None:
        """Add the pod to `row`: a waiting pod, or one that was removed."""
        self._change(pod, row, 1)

    def remove(self, pod: PodInfo, row: int) -> None:
        """Remove the pod from `row`: a placed pod, or one that was added."""
        journal = self._journal
        if len(journal) > self._marked and journal[-1][:3] == (pod, row, 1):
            # Undoes the addition, because trying and discarding again and again would make the journal long.
            self._undo(journal.pop())
        else:
            self._change(pod, row, -1)

    @property
    def beside(self) -> Sequence[PodInfo]:
        """One pod of each class of added pods with terms about others; for `Handle.class_of`."""
        return [each for each, _ in self._speaking.values()] if self._speaking else ()

    def gpus_now(self, row: int) -> Free:
        """Return the free shares of GPUs while removed placed pods still have theirs."""
        free, placements = self._columns.gpus.get(row, NO_GPUS), self._ledger.placements
        for uid in self._columns.absent if free else ():
            if self._is_placed_on(uid, row):
                free = without(free, placements[uid].gpus, placements[uid].cls.gpu)
        return free

    def count_anew(self, kinds: Sequence[PodsMatching]) -> None:
        """Apply the journal to columns of these kinds, which were just counted from the ledger.

        A change that the ledger already has, of a pod that was bound or evicted since, is skipped here and only undone
        later; its row has changed in the ledger, so the next refresh copies it.
        """
        columns = self._columns
        for pod, row, sign, *_ in self._journal:
            if self._is_placed_on(pod.uid, row) is (sign > 0):
                continue
            for kind in kinds:
                if kind.counts(pod):
                    columns.matching[kind][row] += sign
                    columns.counted.append(row)

    def mark(self) -> Mark:
        self._marked = Mark(len(self._journal))
        return self._marked

    def rollback(self, mark: Mark) -> None:
        """Undo the changes after `mark`."""
        journal = self._journal
        self._marked = min(self._marked, mark)
        while len(journal) > mark:
            self._undo(journal.pop())

    def _change(self, pod: PodInfo, row: int, sign: int) -> None:
        columns, cls = self._columns, pod.cls
        taken, ports, gpus = columns.taken[row], columns.ports.get(row), columns.gpus.get(row, NO_GPUS)
        given = self._devices_of(pod, row, sign, gpus) if cls.gpu else ()
        new: tuple[ExistingTerm, ...] = ()
        columns.take(row, self._ledger.with_pod(taken, cls, sign))
        of_placed = self._tell_by_name(pod, row, sign, given)
        if cls.host_ports:
            self._recount_ports(row)
        if given:
            columns.set_gpus(row, (without if sign > 0 else beside)(gpus, given, cls.gpu))
        if cls.existing or columns.matching:
            if sign > 0 and cls.existing:
                new = self._add_terms(cls.existing)
                self._speak(pod, 1)
            columns.count_others(row, pod, sign)
        self._journal.append(TrialStep(pod, row, sign, taken, ports, gpus, given, of_placed, new))

    def _undo(self, change: TrialStep) -> None:
        pod, row, sign, taken, ports, gpus, given, of_placed, new = change
        columns, cls = self._columns, pod.cls
        columns.take(row, taken)
        if cls.gpu:
            columns.set_gpus(row, gpus)
        if cls.host_ports:
            if ports is None:
                columns.ports.pop(row, None)
            else:
                columns.ports[row] = ports
        if of_placed:
            (columns.absent.add if sign > 0 else columns.absent.discard)(pod.uid)
        else:
            self._stands(pod, row, -sign, given)
        if cls.existing or columns.matching:
            columns.count_others(row, pod, -sign)
            if sign > 0 and cls.existing:
                self._drop_terms(new)
                self._speak(pod, -1)

    def _speak(self, pod: PodInfo, sign: int) -> None:
        first, number = self._speaking.get(pod.cls, (pod, 0))
        if number + sign:
            self._speaking[pod.cls] = (first, number + sign)
        else:
            del self._speaking[pod.cls]

    def _tell_by_name(self, pod: PodInfo, row: int, sign: int, given: Indices) -> bool:
        """Record the pod by UID if its class needs that. Return `TrialStep.of_placed`."""
        columns, uid = self._columns, pod.uid
        if sign > 0:
            if uid in columns.absent and self._is_placed_on(uid, row):
                columns.absent.discard(uid)
                return True
        elif not is_hypothetical(columns, uid, row):
            columns.absent.add(uid)
            return True
        self._stands(pod, row, sign, given)
        return False

    def _is_placed_on(self, uid: str, row: int) -> bool:
        node, placement = self._columns.nodes[row], self._ledger.placements.get(uid)
        return node is not None and placement is not None and placement.node_name == node.name

    def _stands(self, pod: PodInfo, row: int, sign: int, given: Indices) -> None:
        """Add a pod that is not placed on `row` in the ledger, or remove it if `sign` is negative."""
        volumes, ports, columns = pod.cls.volumes, pod.cls.host_ports, self._columns
        if pod.cls.gpu:
            note(columns.hypothetical_gpus, row, pod.uid, given if sign > 0 else None)
        if volumes is not None:
            note(columns.hypothetical_pods, row, pod.uid, volumes if sign > 0 else None)
        if ports:
            note(columns.hypothetical_ports, row, pod.uid, ports if sign > 0 else None)

    def _recount_ports(self, row: int) -> None:
        columns = self._columns
        node = columns.nodes[row]
        assert node is not None, "a row without a node has no pods"
        taken = {port for ports in columns.hypothetical_ports.get(row, {}).values() for port in ports}
        for placement in self._ledger.pods_on(node.name):
            if placement.cls.host_ports and placement.uid not in columns.absent:
                taken.update(placement.cls.host_ports)
        columns.set_ports(row, frozenset(taken))

    def _devices_of(self, pod: PodInfo, row: int, sign: int, free: Free) -> Indices:
        """Return the devices of a pod on a row that it leaves, or those to assign on a row that it is added to.

        A pod that was added hypothetically may by now be placed there with other devices.
        """
        columns, uid = self._columns, pod.uid
        if sign < 0 and (there := columns.hypothetical_gpus.get(row, {}).get(uid)) is not None:
            return there
        if (sign < 0 or uid in columns.absent) and self._is_placed_on(uid, row):
            return self._ledger.placements[uid].gpus
        return choose(free, pod.cls.gpu) if sign > 0 else ()

    def _add_terms(self, terms: Iterable[ExistingTerm]) -> tuple[ExistingTerm, ...]:
        """Create columns of counts for terms without one, and return these terms."""
        columns = self._columns
        new = tuple(dict.fromkeys(term for term in terms if term not in columns.terms))
        for term in new:
            columns.terms[term] = np.zeros(columns.capacity, dtype=np.int64)
        return new

    def _drop_terms(self, new: Iterable[ExistingTerm]) -> None:
        for term in new:
            del self._columns.terms[term]


class Trial(WhatIf):
    """Hypothetical placements on a snapshot of its own.

    Owns the snapshot's columns between two refreshes, and the plugins' reservations for its pods until `hand_over`.
    Never awaits. After a `place` that reserved anything, no other code may run before the pod is handed over or rolled
    back: reservations are valid for the whole process.
    """

    def __init__(
        self,
        ledger: Ledger,
        snapshot: Snapshot,
        views: Mapping[str, ClassViews],
        writes: Writes,
        quietly: Quietly = nullcontext,
    ) -> None:
        """Attach to `snapshot`.

        `views` are by profile, on `snapshot`. Plugins release through `writes`. Reservations are made and released in
        `quietly`: no other component has seen them, and waiting pods must not be woken by them, or the trial's own pods
        would be tried again and again.
        """
        WhatIf.__init__(self, ledger, snapshot.columns)
        self._snapshot = snapshot
        self._views = views
        self._writes = writes
        self._quietly = quietly
        snapshot.trial = self
        #: The time for plugins' writes in the API's format. Set by the component that has a clock.
        self.at = ""
        #: UID -> the reservations for a pod that was placed.
        self._reserved: dict[str, Reservations] = {}
        #: Columns of terms that only its pods had. Kept because answers tell columns apart by identity.
        self._own_terms: dict[ExistingTerm, Ints] = {}

    @property
    def is_empty(self) -> bool:
        return not self._journal

    @property
    def sequence(self) -> int:
        """The ledger's sequence, for `follow`."""
        return self._ledger.sequence

    @property
    def holds_reservations(self) -> bool:
        """Whether other code has to wait."""
        return bool(self._reserved)

    def view_of(self, pod: PodInfo) -> ClassView:
        """Return the view for the pod beside the hypothetical pods, refreshed to the trial."""
        cls = self._snapshot.handle.class_of(pod, beside=self.beside)
        return self._views[pod.scheduler_name].of(cls)

    def views_of(self, pods: Iterable[PodInfo]) -> Iterator[ClassView]:
        """Yield `view_of` for each of the pods, and look it up once for a sequence of pods of a class.

        It holds one view, since those of a group of many classes on many nodes would need much memory.
        """
        last: tuple[str, PodClass] | None = None
        for pod in pods:
            key = pod.scheduler_name, self._snapshot.handle.class_of(pod, beside=self.beside)
            if key != last:
                last, view = key, self._views[pod.scheduler_name].of(key[1])
            yield view

    def try_place(self, pod: PodInfo, row: int, view: ClassView) -> bool:
        """Place a pod that was decided in `view`, with Reserve of its plugins.

        Return false, with nothing changed, if a plugin no longer has what the pod needs.
        """
        if view.reserves:
            reservations = self._reserve(pod, row, view)
            if reservations is None:
                return False
            if reservations:
                self._reserved[pod.uid] = reservations
        self.place(pod, row)
        return True

    def reserved(self, pod: PodInfo) -> Reservations:
        return self._reserved.get(pod.uid, ())

    def follow(self, sequence: int) -> None:
        """Make views ask again about the rows that the ledger changed since `sequence`.

        They read live state: reservations change devices, and a search for devices may be unfinished.
        """
        rows, size = self._ledger.rows_since(sequence), self._columns.size
        self._snapshot.touched.extend(list(range(size)) if rows is None else [row for row in rows if row < size])

    def hand_over(self, pod: PodInfo) -> Reservations:
        """Return the reservations for the pod. The caller has to release them from now on."""
        return self._reserved.pop(pod.uid, ())

    def give_back(self, pod: PodInfo) -> None:
        """Release the reservations for the pod, if any. The pod stays where it is placed."""
        reservations = self._reserved.pop(pod.uid, None)
        if reservations is not None:
            assert isinstance(pod, PodInfo), "only pods that wait have anything reserved"
            before = self._ledger.sequence
            with self._quietly():
                unreserve(reservations, pod, self._writes)
            self.follow(before)

    def reset(self) -> None:
        """Undo all changes and refresh the snapshot from the ledger."""
        self.rollback(START)
        if any(term not in self._ledger.terms for term in self._columns.terms):
            # Journals kept these terms, and the ledger no longer has them.
            self._snapshot.forget_counts()
        self._own_terms.clear()
        self._snapshot.refresh()

    def abandon(self) -> None:
        """Release the reservations; the snapshot is not used afterwards."""
        for uid in list(self._reserved):
            self.give_back(next(change.pod for change in self._journal if change.pod.uid == uid))

    # ---- for the snapshot

    @property
    def terms(self) -> frozenset[ExistingTerm]:
        """The terms whose columns the journal still needs."""
        return frozenset(term for change in self._journal for term in change.pod.cls.existing)

    # ---- inside

    def _change(self, pod: PodInfo, row: int, sign: int) -> None:
        WhatIf._change(self, pod, row, sign)
        if sign < 0 and self._reserved:
            self.give_back(pod)
        self._snapshot.touched.append(row)

    def _undo(self, change: TrialStep) -> None:
        WhatIf._undo(self, change)
        self._snapshot.touched.append(change.row)
        if change.sign > 0 and self._reserved:
            self.give_back(change.pod)

    def _add_terms(self, terms: Iterable[ExistingTerm]) -> tuple[ExistingTerm, ...]:
        columns = self._columns
        new = tuple(dict.fromkeys(term for term in terms if term not in columns.terms))
        for term in new:
            column = self._own_terms.get(term)
            if column is None or column.shape[0] != columns.capacity:
                column = self._own_terms[term] = np.zeros(columns.capacity, dtype=np.int64)
                self._snapshot.counts_version += 1
            columns.terms[term] = column
        return new

    def _drop_terms(self, new: Iterable[ExistingTerm]) -> None:
        for term in new:
            if term not in self._ledger.terms:
                del self._columns.terms[term]

    def _reserve(self, pod: PodInfo, row: int, view: ClassView) -> Reservations | None:
        node = self._columns.nodes[row]
        assert node is not None, "a feasible row has a node"
        before = self._ledger.sequence
        profile = self._views[pod.scheduler_name].profile
        with self._quietly():
            reservations = reserve(profile, view.filters, pod, node, at=self.at, writes=self._writes)
        self.follow(before)
        return reservations
