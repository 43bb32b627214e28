"""Nominated pods, which will run on a node once its victims have left, and the room that they take from other pods.

A pod may go to a node only if it fits there with all nominated pods of its priority and above (otherwise it would take
the room that pods were evicted for), and without them (otherwise it might depend on a pod that never arrives).
Nominated pods of lower priority are ignored. These are the rules of kube-scheduler's
`RunFilterPluginsWithNominatedPods`; here only rows with nominated pods are checked, so a cluster without nominations
has no cost.

A nominated pod that the ledger has placed counts there and no longer here.

If a pod's filters read only the amounts of other pods, as usual, the rows with nominated pods are checked at once: the
nominated amounts are added to the taken ones. Other rows are changed one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from ..decide.classview import ClassView
from ..decide.compiled import CompiledFilter, compile_filters, count_reasons, first_refusing
from ..decide.decide import CandidateNode
from ..decide.refusals import Diagnosis
from ..decide.snapshot import Snapshot
from ..decide.trial import WhatIf
from ..framework.plugin import Depends, Profile
from ..ledger import Ledger
from ..queueing.nominator import Nominator
from ..state.columns import Columns, Ints
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo
from ..state.podterms import TermKind

NominatedPods = tuple[PodInfo, ...]

NO_NOMINATED: Mapping[int, NominatedPods] = {}


class Nominations:
    """The nominations of a queue, read beside the ledger. Has no state of its own."""

    def __init__(
        self, nominator: Nominator, ledger: Ledger, snapshot: Snapshot, profile_of: Callable[[str], Profile]
    ) -> None:
        """Store the snapshot of decisions; `profile_of` returns the profile of a schedulerName."""
        self._nominator = nominator
        self._ledger = ledger
        self._snapshot = snapshot
        self._profile_of = profile_of

    def against(self, pod: PodInfo) -> Mapping[int, NominatedPods]:
        """Return row -> the nominated pods for which `pod` has to leave room; only rows that have any."""
        nominator = self._nominator
        if not nominator.nominated:
            return NO_NOMINATED
        found = {}
        for node_name in nominator.nodes():
            row = self._ledger.rows.get(node_name)
            if row is not None and (nominated := self.on(node_name, pod)):
                found[row] = nominated
        return found

    def beside(self, scheduler_name: str) -> dict[str, NominatedPods]:
        """Return node -> its nominated pods of other schedulers or on standby; only nodes that have any."""
        nominator = self._nominator
        found = {}
        for node_name in nominator.nodes() if nominator.nominated else ():
            others = tuple(pod for pod in self._on(node_name) if pod.scheduler_name != scheduler_name or pod.stands_by)
            if others:
                found[node_name] = others
        return found

    def on(self, node_name: str, pod: PodInfo, *, beside: Collection[str] = ()) -> NominatedPods:
        """Return the pods nominated to one node for which `pod` has to leave room.

        Pods with UIDs in `beside` are excluded because they get nodes together with it.
        """
        return tuple(
            other
            for other in self._on(node_name)
            if other.priority >= pod.priority and other.uid != pod.uid and other.uid not in beside
        )

    def free(
        self,
        pod: PodInfo,
        cls: PodClass,
        filters: Sequence[CompiledFilter],
        candidates: Sequence[CandidateNode],
        *,
        beside: Collection[str] = (),
    ) -> Sequence[CandidateNode]:
        """Return the candidates of a pod, decided in class `cls`, whose capacity is not kept for nominated pods.

        `beside` is as in `on`.
        """
        ledger = self._ledger

        def is_held(each: CandidateNode) -> bool:
            nominated = self.on(each.node_name, pod, beside=beside)
            if not nominated or ledger.rows.get(each.node_name) != each.row:
                return False
            return not self.leave_room(pod, cls, filters, ledger.columns, each.row, nominated)

        return [each for each in candidates if not is_held(each)]

    def below(self, node_name: str, pod: PodInfo) -> NominatedPods:
        """Return the pods nominated to a node whose room `pod` may take."""
        return tuple(other for other in self._on(node_name) if other.priority < pod.priority)

    def _on(self, node_name: str) -> list[PodInfo]:
        placements = self._ledger.placements
        return [other for other in self._nominator.pods_for(node_name) if other.uid not in placements]

    def filters_with(
        self, pod: PodInfo, cls: PodClass, filters: Sequence[CompiledFilter], nominated: NominatedPods
    ) -> Sequence[CompiledFilter]:
        """Return `filters` of `pod`, decided in class `cls`, with the terms of `nominated` applied.

        Call before a row is changed: compiling counts on the ledger as it is.
        """
        if not any(map(_repels, nominated)):
            return filters
        handle = self._snapshot.handle
        with_nominated = handle.class_of(pod, beside=nominated)
        if with_nominated is cls:
            return filters
        compiled, _ = compile_filters(self._profile_of(pod.scheduler_name), with_nominated, handle)
        self._snapshot.take_new_counts()
        return compiled

    def leave_room(
        self,
        pod: PodInfo,
        cls: PodClass,
        filters: Sequence[CompiledFilter],
        columns: Columns,
        row: int,
        nominated: NominatedPods,
    ) -> bool:
        """Return whether `pod` passes on `row` with `nominated` in place. It must pass without them."""
        filters = self.filters_with(pod, cls, filters, nominated)
        with WhatIf(self._ledger, columns) as there:
            for other in nominated:
                there.place(other, row)
            return first_refusing(filters, columns, row) is None

    def taken(self, pod: PodInfo, view: ClassView, columns: Columns, against: Mapping[int, NominatedPods]) -> list[int]:
        """Return the rows on which `pod` would fit without the pods that are nominated there."""
        if not against:
            return []
        feasible = np.isin(list(against), view.feasible_rows(columns)).tolist()
        asked = {row: nominated for (row, nominated), passes in zip(against.items(), feasible, strict=True) if passes}
        room, apart = self.split(view.filters, asked)
        full = self._full(view.filters, columns, room) if room else set()
        return [
            row
            for row in asked
            if row in full
            or (row in apart and not self.leave_room(pod, view.pod, view.filters, columns, row, apart[row]))
        ]

    def _full(self, filters: Sequence[CompiledFilter], columns: Columns, room: Mapping[int, NominatedPods]) -> set[int]:
        """Return the rows of `room` that are refused with their nominated pods. They must pass without."""
        rows = np.array(list(room), dtype=np.intp)
        passes = np.ones(rows.shape[0], dtype=np.bool_)
        with self._in_place(columns, room):
            for entry in filters:
                if entry.plugin.reads_amounts_only:
                    passes &= entry.feasible(columns, rows)
        return set(rows[~passes].tolist())

    # ---- many rows at once

    @staticmethod
    def split(
        filters: Sequence[CompiledFilter], against: Mapping[int, NominatedPods]
    ) -> tuple[Mapping[int, NominatedPods], Mapping[int, NominatedPods]]:
        """Split `against`: rows where only the amounts of nominated pods matter to these filters, and the others."""
        if not against or not all(
            each.plugin.depends is Depends.NODE or each.plugin.reads_amounts_only for each in filters
        ):
            return NO_NOMINATED, against
        apart = {
            row: nominated
            for row, nominated in against.items()
            for other in nominated
            if other.cls.existing and _repels(other)
        }
        if not apart:
            return against, NO_NOMINATED
        return {row: nominated for row, nominated in against.items() if row not in apart}, apart

    def add_to(self, usage: Ints, room: Mapping[int, NominatedPods]) -> None:
        """Add the amounts of the pods nominated to some rows to `usage`, which has the shape of `Columns.usage`."""
        if room:
            classes: dict[PodClass, int] = {}
            rows, places = [], []
            for row, nominated in room.items():
                for other in nominated:
                    rows.append(row)
                    places.append(classes.setdefault(other.cls, len(classes)))
            amounts = self._ledger.amounts(classes)
            np.add.at(usage.transpose(2, 0, 1), np.array(rows), amounts[places])

    @contextmanager
    def _in_place(self, columns: Columns, room: Mapping[int, NominatedPods]) -> Iterator[None]:
        """Return a context in which filters that are asked about many rows find nominated pods in place."""
        usage, rows = columns.usage, list(room)
        before = usage[:, :, rows]
        self.add_to(usage, room)
        try:
            yield
        finally:
            usage[:, :, rows] = before

    # ---- refusals

    def refused(
        self, pod: PodInfo, view: ClassView, columns: Columns, against: Mapping[int, NominatedPods]
    ) -> Diagnosis:
        """Return the filters' diagnosis of all nodes, all of which are refused, with nominated pods in place."""
        if not against:
            return view.refused(columns)
        counts: dict[str, int] = {}
        plugins, curable, apart = set(), [], []
        room, others_apart = self.split(view.filters, against)
        for row, nominated in others_apart.items():
            filters = self.filters_with(pod, view.pod, view.filters, nominated)
            with WhatIf(self._ledger, columns) as there:
                for other in nominated:
                    there.place(other, row)
                entry = first_refusing(filters, columns, row)
                if entry is None:
                    continue
                rows = np.array((row,), dtype=np.intp)
                count_reasons(counts, entry, columns, rows)
                plugins.add(entry.plugin.name)
                apart.append(row)
                if entry.plugin.curable(entry.state, columns, rows)[0]:
                    curable.append(row)
        present = np.flatnonzero(columns.present[: columns.size])
        with self._in_place(columns, room):
            others = view.refused(columns, present[~np.isin(present, apart)] if apart else present)
        for reason, count in others.counts.items():
            counts[reason] = counts.get(reason, 0) + count
        rows = np.sort(np.concatenate([others.curable, np.array(curable, dtype=np.intp)]))
        return Diagnosis(counts, others.plugins | plugins, rows)


def _repels(other: PodInfo) -> bool:
    """Return whether the pod's terms may repel others."""
    return any(term.kind is TermKind.REPELS for term in other.cls.existing)
