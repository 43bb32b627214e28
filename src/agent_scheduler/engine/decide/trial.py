"""Pods that are thought to be placed or gone: columns as they would be, and the journal by which they are put back.

Compiled filters and scores read columns, so a question of the kind "would it fit without these, beside those" is asked
by changing rows, asking, and undoing each change, the latest first.

- `WhatIf`: for one question, on the ledger's columns or a snapshot's, with class views left alone.
- `Trial`: for as long as its owner likes, on a snapshot that nobody else has. Its views are kept up to date, a row a
  change.

Versions of rows are left alone: they say what the ledger has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Final, NamedTuple, NewType

import numpy as np

from ..framework.prebind import Writes
from ..state.columns import Amounts, Columns, Ints
from ..state.gpus import NO_GPUS, Free, Indices, beside, choose, without
from ..state.ledger import Ledger
from ..state.podclass import HostPort, PodClass
from ..state.podcounts import PodsMatching
from ..state.podinfo import PodInfo
from ..state.podterms import ExistingTerm
from .classview import ClassView
from .decide import ClassViews
from .hypothetical import is_hypothetical, note
from .reserving import Reservations, reserve, unreserve
from .snapshot import Snapshot

#: A place in a journal.
Mark = NewType("Mark", int)
Quietly = Callable[[], AbstractContextManager[None]]

START: Final = Mark(0)


class Change(NamedTuple):
    """A pod that came to a row (1) or left it (-1), and what the row was before."""

    pod: PodInfo
    row: int
    sign: int
    taken: Amounts
    ports: frozenset[HostPort] | None
    gpus: Free
    #: The devices that the pod has there, or had.
    given: Indices
    #: Whether `Columns.absent` says it: a placed pod left, or is back.
    of_placed: bool
    #: Those of its terms that nobody had before.
    terms: tuple[ExistingTerm, ...]


class WhatIf:
    """Owner of what is hypothetical in some columns (the ledger's own, or those of a snapshot that is up to date with
    it). Several may be at work on the same columns if the later one ends first.

    Invariant: undone from the last change to a mark, columns are byte for byte what they were at the mark.
    """

    def __init__(self, ledger: Ledger, columns: Columns) -> None:
        self._ledger = ledger
        self._columns = columns
        self._journal: list[Change] = []
        #: The latest place that a rollback may go back to.
        self._marked = START
        #: Class of pods that came and have terms about others -> one of them, and how often one came.
        self._speaking: dict[PodClass, tuple[PodInfo, int]] = {}

    def __enter__(self) -> WhatIf:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rollback(START)

    def place(self, pod: PodInfo, row: int) -> None:
        """The pod stands on `row`, too: one that waits, or one that was taken away."""
        self._change(pod, row, 1)

    def remove(self, pod: PodInfo, row: int) -> None:
        """The pod is gone from `row`: one that is placed there, or one that was put there."""
        journal = self._journal
        if len(journal) > self._marked and journal[-1][:3] == (pod, row, 1):
            # As it came. Else what is tried and discarded again and again would make the journal long.
            self._undo(journal.pop())
        else:
            self._change(pod, row, -1)

    @property
    def beside(self) -> Sequence[PodInfo]:
        """Pods that came and may have something to say about others, one of each class; for `Handle.class_of`."""
        return [each for each, _ in self._speaking.values()] if self._speaking else ()

    def gpus_now(self, row: int) -> Free:
        """What GPUs have free beside placed pods that were taken away, which still have theirs."""
        free, placements = self._columns.gpus.get(row, NO_GPUS), self._ledger.placements
        for uid in self._columns.absent if free else ():
            if self._is_placed_on(uid, row):
                free = without(free, placements[uid].gpus, placements[uid].cls.gpu)
        return free

    def count_anew(self, kinds: Sequence[PodsMatching]) -> None:
        """Columns of these kinds are as the ledger counts them: have the changes in them that it does not show.

        A change that it shows, of a pod that was bound or evicted since, is only undone in them; their rows have
        changed in the ledger, and the next refresh copies them.
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
        """Undo what came after `mark`."""
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
        self._journal.append(Change(pod, row, sign, taken, ports, gpus, given, of_placed, new))

    def _undo(self, change: Change) -> None:
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
        """As `Change.of_placed`."""
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
        """A pod that is placed nowhere, or elsewhere, comes to stand on `row` with these devices, or no longer does."""
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
        """Those that the pod has on a row that it leaves, or is to have where it comes to. One that came in thought may
        be placed there by now, with others."""
        columns, uid = self._columns, pod.uid
        if sign < 0 and (there := columns.hypothetical_gpus.get(row, {}).get(uid)) is not None:
            return there
        if (sign < 0 or uid in columns.absent) and self._is_placed_on(uid, row):
            return self._ledger.placements[uid].gpus
        return choose(free, pod.cls.gpu) if sign > 0 else ()

    def _add_terms(self, terms: Iterable[ExistingTerm]) -> tuple[ExistingTerm, ...]:
        """Those that had no column of counts."""
        columns = self._columns
        new = tuple(dict.fromkeys(term for term in terms if term not in columns.terms))
        for term in new:
            columns.terms[term] = np.zeros(columns.capacity, dtype=np.int64)
        return new

    def _drop_terms(self, new: Iterable[ExistingTerm]) -> None:
        for term in new:
            del self._columns.terms[term]


class Trial(WhatIf):
    """Hypothetical placements on a snapshot of its own. Owner of the snapshot's columns between two refreshes, and of
    what plugins have reserved for its pods until it is handed over.

    Never awaits. Where `place` has had anything reserved, nobody else may have a turn before the pod is handed over or
    rolled back: what is reserved is so for the whole process.
    """

    def __init__(
        self,
        ledger: Ledger,
        snapshot: Snapshot,
        views: Mapping[str, ClassViews],
        writes: Writes,
        quietly: Quietly = nullcontext,
    ) -> None:
        """`views`: by profile, on `snapshot`. `writes`: what plugins give back through. In `quietly` is reserved and
        given back: nobody has seen it, and those who wait must not be told, or its own pods would be tried again and
        again."""
        WhatIf.__init__(self, ledger, snapshot.columns)
        self._snapshot = snapshot
        self._views = views
        self._writes = writes
        self._quietly = quietly
        snapshot.trial = self
        #: The time, for what plugins write, as the API has it. Set by whoever has a clock.
        self.at = ""
        #: UID -> what is reserved for it, by pods that `place` has put somewhere.
        self._reserved: dict[str, Reservations] = {}
        #: Columns of terms that only its pods had. Kept, as answers tell columns apart by identity.
        self._own_terms: dict[ExistingTerm, Ints] = {}

    @property
    def is_empty(self) -> bool:
        return not self._journal

    @property
    def sequence(self) -> int:
        """Of the ledger, for `follow`."""
        return self._ledger.sequence

    @property
    def holds_reservations(self) -> bool:
        """Whether others have to wait."""
        return bool(self._reserved)

    def view_of(self, pod: PodInfo) -> ClassView:
        """The view that the pod is decided in beside those that are thought to be placed, up to date with the trial."""
        cls = self._snapshot.handle.class_of(pod, beside=self.beside)
        return self._views[pod.scheduler_name].of(cls)

    def try_place(self, pod: PodInfo, row: int, view: ClassView) -> bool:
        """`place` for a pod decided in `view`, with Reserve of its plugins. False, and nothing is changed, where one of
        them no longer has what the pod needs."""
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
        """Have views ask anew about rows that the ledger was told of since, for what they ask of live state: devices,
        which reservations change, and for which a search may have come to no end."""
        rows, size = self._ledger.rows_since(sequence), self._columns.size
        self._snapshot.touched.extend(
            list(range(size)) if rows is None else [row for row in rows if row < size]
        )

    def hand_over(self, pod: PodInfo) -> Reservations:
        """What is reserved for the pod is somebody else's to give back from now on."""
        return self._reserved.pop(pod.uid, ())

    def give_back(self, pod: PodInfo) -> None:
        """Others may have what is reserved for the pod, if anything is; it stays where it is put."""
        reservations = self._reserved.pop(pod.uid, None)
        if reservations is not None:
            assert isinstance(pod, PodInfo), "only pods that wait have anything reserved"
            before = self._ledger.sequence
            with self._quietly():
                unreserve(reservations, pod, self._writes)
            self.follow(before)

    def reset(self) -> None:
        """Undo everything, and bring the snapshot up to date with the ledger."""
        self.rollback(START)
        if any(term not in self._ledger.terms for term in self._columns.terms):
            # What journals kept alive, and the ledger has no more.
            self._snapshot.forget_counts()
        self._own_terms.clear()
        self._snapshot.refresh()

    def abandon(self) -> None:
        """Give back what is reserved; the snapshot is not used any more."""
        for uid in list(self._reserved):
            self.give_back(next(change.pod for change in self._journal if change.pod.uid == uid))

    # ---- for the snapshot

    @property
    def terms(self) -> frozenset[ExistingTerm]:
        """Those whose columns the journal goes on to need."""
        return frozenset(term for change in self._journal for term in change.pod.cls.existing)

    # ---- inside

    def _change(self, pod: PodInfo, row: int, sign: int) -> None:
        WhatIf._change(self, pod, row, sign)
        if sign < 0 and self._reserved:
            self.give_back(pod)
        self._snapshot.touched.append(row)

    def _undo(self, change: Change) -> None:
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
