"""NodeResourcesFit: refuses nodes without room, and ranks the others by their utilization.

Amounts are exact integers; a pod counts as one unit of the resource `pods`. A resource that devices of a class provide
(KEP-5004) is ignored on nodes that offer none of it: there DynamicResources decides.

The formulas of the scoring strategies are those of kube-scheduler's `noderesources` (`least_allocated.go`,
`most_allocated.go`, `requested_to_capacity_ratio.go`): integer division at both steps, CPU and memory with the default
for containers without requests. A node that does not offer a resource is rated by the others alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

import numpy as np

from apimachinery.quantity import text_of
from apimachinery.validation.names import is_extended_resource

from ..dra.catalogue import Devices
from ..events.hints import ClusterEventWithHint
from ..framework.handle import Handle
from ..framework.plugin import MAX_NODE_SCORE, Depends, Filter
from ..gangs.native import NativeGroups
from ..ledger import Ledger
from ..rules.curve import FULL, rates_of
from ..rules.device_backed import ByFullness
from ..rules.fit_hints import FitHints, met_elsewhere
from ..state.columns import CPU, MEMORY, Bools, Columns, Ints, Rows
from ..state.interns import BASE_RESOURCES
from ..state.podclass import PODS, PodClass


class RequestedResources:
    """Resources, amounts and weights, with the columns of nodes that have them.

    Resources get their columns when a node first offers them, so `resolve` looks them up again if there are more.
    """

    __slots__ = ("_elsewhere", "_wanted", "each", "elsewhere", "known", "missing", "resolved")

    def __init__(self, wanted: Sequence[tuple[str, int, int]], *, elsewhere: Collection[str] = ()) -> None:
        """Store (resource, amount, weight), and the resources `elsewhere` that a node need not offer."""
        self._wanted = tuple(wanted)
        self._elsewhere = elsewhere
        #: The number of columns at the last lookup.
        self.known = -1
        #: (column, amount, weight) of the resources with a column.
        self.each: tuple[tuple[int, int, int], ...] = ()
        #: Names of the resources with a column.
        self.resolved: tuple[str, ...] = ()
        #: Names of resources that no node offers and one would have to.
        self.missing: tuple[str, ...] = ()
        #: The columns of resources that a node need not offer.
        self.elsewhere: frozenset[int] = frozenset()

    def resolve(self, nodes: Columns) -> RequestedResources:
        columns = nodes.resources
        if columns != self.known:
            self.known = columns
            known = nodes.interns.resources
            each, resolved = [], []
            for name, amount, weight in self._wanted:
                index = known.get(name, columns)
                if index < columns:
                    each.append((index, amount, weight))
                    resolved.append(name)
            self.each, self.resolved = tuple(each), tuple(resolved)
            if len(each) < len(self._wanted):
                there_or_elsewhere = {*self.resolved, *self._elsewhere}
                self.missing = tuple(name for name, _, _ in self._wanted if name not in there_or_elsewhere)
            else:
                self.missing = ()
            if self._elsewhere:
                self.elsewhere = frozenset(known[name] for name in self.resolved if name in self._elsewhere)
        return self


_PODS = BASE_RESOURCES.index(PODS)

#: With at most this number of rows left, the other resources are checked row by row, which is faster.
_FEW = 8


def insufficient(resource: str) -> str:
    """Return kube-scheduler's reason."""
    return "Too many pods" if resource == PODS else f"Insufficient {resource}"


class NodeResourcesFit(Filter):
    name = "NodeResourcesFit"
    depends = Depends.ROOM
    reads_amounts_only = True

    def __init__(
        self,
        ignored_resources: Iterable[str] = (),
        ignored_groups: Iterable[str] = (),
        *,
        ledger: Ledger | None = None,
        devices: Devices | None = None,
    ) -> None:
        """Ignore extended resources that another component handles, by name and by prefix before the slash.

        Hints read `ledger` and `devices`; without a ledger they wake more pods.
        """
        self._ignored = frozenset(ignored_resources)
        self._ignored_groups = frozenset(ignored_groups)
        ignores = self._ignored or self._ignored_groups
        #: Returns the requests of a class that are checked.
        self._wanted: Callable[[PodClass], Mapping[str, int]] = self._not_ignored if ignores else attrgetter("requests")
        self._hints = FitHints(self._wanted, ledger, devices)

    def seeing(self, ledger: Ledger, devices: Devices, groups: NativeGroups) -> NodeResourcesFit:
        return type(self)(self._ignored, self._ignored_groups, ledger=ledger, devices=devices)

    def prepare(self, pod: PodClass, handle: Handle) -> RequestedResources:
        wanted = [(resource, amount, 0) for resource, amount in self._wanted(pod).items()]
        if pod.claims is None or pod.claims.extended is None:
            return RequestedResources(wanted)
        # Devices provide some of it, so the demand has been computed before.
        return RequestedResources(wanted, elsewhere=met_elsewhere(pod.requests, handle.devices))

    def _not_ignored(self, pod: PodClass) -> Mapping[str, int]:
        return {name: amount for name, amount in pod.requests.items() if not self._ignores(name)}

    def _ignores(self, resource: str) -> bool:
        return is_extended_resource(resource) and (
            resource in self._ignored or resource.partition("/")[0] in self._ignored_groups
        )

    def feasible(self, state: RequestedResources, nodes: Columns, rows: Rows) -> Bools:
        if state.resolve(nodes).missing:
            return np.zeros(rows.shape[0], dtype=np.bool_)
        found = np.ones(rows.shape[0], dtype=np.bool_)
        for asked, enough in enumerate(self._enough(state, nodes, rows), start=1):
            found &= enough
            if np.count_nonzero(found) <= _FEW:
                others = state.each[asked:]
                for place in found.nonzero()[0].tolist():
                    found[place] = _has(state, others, nodes, rows.item(place))
                break
        return found

    def feasible_row(self, state: RequestedResources, nodes: Columns, row: int) -> bool:
        if state.known != nodes.resources:
            state.resolve(nodes)
        if state.missing:
            return False
        offered, taken = nodes.offers[row], nodes.taken[row]
        for index, amount, _ in state.each:
            if offered[index] - taken[index] < amount:
                if index in state.elsewhere and not offered[index]:
                    continue
                return False
        return True

    def reasons(self, state: RequestedResources, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        state.resolve(nodes)
        counts: dict[str, int] = {insufficient(resource): rows.shape[0] for resource in state.missing}
        for resource, passed in zip(state.resolved, self._enough(state, nodes, rows), strict=True):
            short = rows.shape[0] - int(np.count_nonzero(passed))
            if short:
                counts[insufficient(resource)] = short
        return counts

    def curable(self, state: RequestedResources, nodes: Columns, rows: Rows) -> Bools:
        """Return where evictions may help: a node's capacity must suffice; the number of pods is ignored."""
        if state.resolve(nodes).missing:
            return np.zeros(rows.shape[0], dtype=np.bool_)
        wanted = [each for each in state.each if each[0] != _PODS]
        return _all(
            rows,
            (
                _or_elsewhere(state, index, offered, offered >= amount)
                for index, amount, offered in _offered(wanted, nodes, rows)
            ),
        )

    def nearest(self, state: RequestedResources, nodes: Columns, rows: Rows) -> Rows:
        """Sort by the missing share of the requests, summed over all resources."""
        share = np.zeros(rows.shape[0])
        for index, amount, offered in _offered(state.resolve(nodes).each, nodes, rows):
            room = np.maximum(offered - nodes.requested[index][rows], 0)
            short = np.maximum(amount - room, 0) / max(amount, 1)
            share += np.where(_or_elsewhere(state, index, offered, short == 0), 0, short)
        return rows[np.argsort(share, kind="stable")]

    def missing(self, state: RequestedResources, nodes: Columns, row: int) -> str:
        state.resolve(nodes)
        found = [f"{resource}: no node offers it" for resource in state.missing]
        for resource, (index, amount, _) in zip(state.resolved, state.each, strict=True):
            offered = nodes.offers[row][index]
            free = offered - nodes.taken[row][index]
            if free < amount and (offered or index not in state.elsewhere):
                wanted, left, whole, short = (
                    text_of(resource, each) for each in (amount, max(free, 0), offered, amount - free)
                )
                found.append(f"{resource}: {short} more (wants {wanted}, {left} of {whole} is free)")
        return "; ".join(found)

    @staticmethod
    def _enough(state: RequestedResources, nodes: Columns, rows: Rows) -> Iterator[Bools]:
        """Yield for each resource [row] whether the remaining amount, which may be negative, is enough."""
        for index, amount, offered in _offered(state.each, nodes, rows):
            enough = offered - nodes.requested[index][rows] >= amount
            yield _or_elsewhere(state, index, offered, enough)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return self._hints.events_to_register()


def _offered(wanted: Iterable[tuple[int, int, int]], nodes: Columns, rows: Rows) -> Iterator[tuple[int, int, Ints]]:
    """Yield (column, amount, [row] offered amounts) of each resource.

    One by one, because selecting rows of one column costs a fraction of selecting resources and rows together.
    """
    for index, amount, _ in wanted:
        yield index, amount, nodes.allocatable[index][rows]


def _has(state: RequestedResources, wanted: Iterable[tuple[int, int, int]], nodes: Columns, row: int) -> bool:
    """Return whether enough of each of these resources is left on one row."""
    for index, amount, _ in wanted:
        offered = nodes.allocatable.item(index, row)
        if offered - nodes.requested.item(index, row) < amount and (offered or index not in state.elsewhere):
            return False
    return True


def _or_elsewhere(state: RequestedResources, index: int, offered: Ints, enough: Bools) -> Bools:
    """Return `enough`, or true where devices have to provide the resource."""
    return enough | (offered == 0) if index in state.elsewhere else enough


def _all(rows: Rows, passing: Iterable[Bools]) -> Bools:
    found = np.ones(rows.shape[0], dtype=np.bool_)
    for each in passing:
        found &= each
    return found


class _Allocation(ByFullness):
    """Common part of the strategies: a weighted mean over resources of the result of `_rate`."""

    name = "NodeResourcesFit"
    depends = Depends.ROOM
    normalize = None

    def __init__(self, resources: Mapping[str, int] | None = None) -> None:
        #: Resource -> weight. Extended resources and huge pages count only for pods that request them.
        self.resources = dict(resources or {"cpu": 1, "memory": 1})
        super().__init__(self.resources)

    def state_of(self, pod: PodClass) -> RequestedResources | None:
        counted = {"ephemeral-storage": 0, **pod.requests}
        counted |= {"cpu": pod.nonzero[CPU], "memory": pod.nonzero[MEMORY]}
        if pod.by_containers is not None:
            counted = {"ephemeral-storage": 0, "cpu": 0, "memory": 0}
            counted |= {resource: amount for resource, amount in pod.by_containers.items() if amount}
        wanted = [
            (resource, counted[resource], weight)
            for resource, weight in self.resources.items()
            if resource in counted and resource != PODS
        ]
        return RequestedResources(wanted) if wanted else None

    def score(self, state: RequestedResources, nodes: Columns, rows: Rows) -> Ints:
        total: Ints = np.zeros(rows.shape[0], dtype=np.int64)
        # A plain number as long as all nodes offer all resources so far, because it divides faster.
        weights: Ints | int = 0
        for index, amount, weight in state.resolve(nodes).each:
            offered = nodes.allocatable[index][rows]
            rates = self._rate(nodes.scored[index][rows] + amount, np.maximum(offered, 1))
            counts = self._counts(rates, offered)
            counted = weight if counts.all() else weight * counts
            total += rates * counted
            weights = weights + counted
        return self._mean(total, np.maximum(weights, 1))

    def score_row(self, state: RequestedResources, nodes: Columns, row: int) -> int:
        offers, taken, scored = nodes.offers[row], nodes.taken[row], nodes.resources
        if state.known != scored:
            state.resolve(nodes)
        total = weights = 0
        for index, amount, weight in state.each:
            offered = offers[index]
            if offered > 0:
                total += weight * self._rate_one(taken[scored + index] + amount, offered)
                weights += weight
        return total // weights if weights else 0

    def _rate(self, requested: Ints, offered: Ints) -> Ints:
        raise NotImplementedError

    def _rate_one(self, requested: int, offered: int) -> int:
        raise NotImplementedError

    @staticmethod
    def _counts(rates: Ints, offered: Ints) -> Bools:
        """Return [row] whether a resource counts in the mean."""
        return offered > 0

    @staticmethod
    def _mean(total: Ints, weights: Ints | int) -> Ints:
        mean: Ints = total // weights
        return mean


class LeastAllocated(_Allocation):
    """Prefers empty nodes: spreads."""

    def _rate(self, requested: Ints, offered: Ints) -> Ints:
        rate: Ints = np.maximum(offered - requested, 0) * MAX_NODE_SCORE // offered
        return rate

    def _rate_one(self, requested: int, offered: int) -> int:
        return (offered - requested) * MAX_NODE_SCORE // offered if requested < offered else 0


class MostAllocated(_Allocation):
    """Prefers full nodes: packs, so that large pods still find a whole one."""

    def _rate(self, requested: Ints, offered: Ints) -> Ints:
        rate: Ints = np.minimum(requested, offered) * MAX_NODE_SCORE // offered
        return rate

    def _rate_one(self, requested: int, offered: int) -> int:
        return requested * MAX_NODE_SCORE // offered if requested < offered else MAX_NODE_SCORE


class RequestedToCapacityRatio(_Allocation):
    """Prefers nodes by a curve over their utilization, in percent.

    Unlike in the other strategies, a resource that rates 0 is left out of the mean, and the mean is rounded.
    """

    def __init__(self, shape: Sequence[tuple[int, int]], resources: Mapping[str, int] | None = None) -> None:
        """Create the strategy from (utilization, score from 0 to 10) by ascending utilization."""
        super().__init__(resources)
        #: [utilization] its rate.
        self._curve: tuple[int, ...] = rates_of(shape)
        self._rates: Ints = np.array(self._curve, dtype=np.int64)

    def score_row(self, state: RequestedResources, nodes: Columns, row: int) -> int:
        offers, taken, scored = nodes.offers[row], nodes.taken[row], nodes.resources
        if state.known != scored:
            state.resolve(nodes)
        total = weights = 0
        for index, amount, weight in state.each:
            offered = offers[index]
            if offered > 0 and (rate := self._rate_one(taken[scored + index] + amount, offered)):
                total += weight * rate
                weights += weight
        return (2 * total + weights) // (2 * weights) if weights else 0

    def _rate(self, requested: Ints, offered: Ints) -> Ints:
        return self._rates[np.minimum(requested, offered) * FULL // offered]

    def _rate_one(self, requested: int, offered: int) -> int:
        return self._curve[min(requested, offered) * FULL // offered]

    @staticmethod
    def _counts(rates: Ints, offered: Ints) -> Bools:
        return (offered > 0) & (rates > 0)

    @staticmethod
    def _mean(total: Ints, weights: Ints | int) -> Ints:
        mean: Ints = (2 * total + weights) // (2 * weights)
        return mean
