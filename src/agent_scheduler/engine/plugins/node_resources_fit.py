"""NodeResourcesFit: refuses nodes without room.

Rooms are exact integers; a pod counts as one unit of the resource `pods`. How full a node gets ranks it in
`node_resources_fit_score`. A resource that devices of some class stand for (KEP-5004) is not looked at on nodes that
offer none of it: there it is the matter of DynamicResources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from agent_scheduler.objects.quantity import MAX_INT64, text_of

from ..dra.catalogue import Devices
from ..dra.records import DeviceClassInfo, same
from ..events.events import ActionType, ClusterEvent, Resource
from ..events.hints import ClusterEventWithHint, QueueingHint
from ..events.prehints import ANYWAY, Amount, ByKeys, Key, Own, PodIndex, UpTo
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter
from ..rules.capacity_hints import RoomHints, fits, preempting_key
from ..rules.wanted import Wanted
from ..state.columns import Bools, Columns, Ints, Rows
from ..state.extended import is_extended as may_be_devices
from ..state.interns import BASE_RESOURCES
from ..state.ledger import Ledger
from ..state.nodeinfo import NodeInfo
from ..state.podclass import PODS, PodClass
from ..state.podinfo import PodInfo

_PODS = BASE_RESOURCES.index(PODS)

#: Where so few rows are left after some resources, the others are looked up one by one, which is sooner done.
_FEW = 8


def insufficient(resource: str) -> str:
    """kube-scheduler's reason."""
    return "Too many pods" if resource == PODS else f"Insufficient {resource}"


def is_extended(resource: str) -> bool:
    """Whether it is neither Kubernetes' own nor a quota's name."""
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


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
        """`ignored_resources`, `ignored_groups`: extended resources that somebody else looks after, by name and by
        what stands before the slash. `ledger`, `devices`: what hints look at; without a ledger they wake more."""
        self._devices = devices
        self._ignored = frozenset(ignored_resources)
        self._ignored_groups = frozenset(ignored_groups)
        self._by_amount = PodIndex(
            keys_of=self._amounts, shared=lambda pod: (pod.cls, pod.priority, pod.preempts)
        )
        self._freed = RoomHints(ledger, self._wanted, self._elsewhere_now, self._keys_of_room)

    def seeing(self, ledger: Ledger, devices: Devices) -> NodeResourcesFit:
        return type(self)(self._ignored, self._ignored_groups, ledger=ledger, devices=devices)

    def prepare(self, pod: PodClass, handle: Handle) -> Wanted:
        wanted = [(resource, amount, 0) for resource, amount in self._wanted(pod)]
        if pod.claims is None or pod.claims.extended is None:
            return Wanted(wanted)
        # As devices stand for some of it, this has been asked before.
        return Wanted(wanted, elsewhere=_met_elsewhere(pod.requests, handle.devices))

    def _wanted(self, pod: PodClass) -> Iterable[tuple[str, int]]:
        if not self._ignored and not self._ignored_groups:
            return pod.requests.items()
        return [each for each in pod.requests.items() if not self._ignores(each[0])]

    def _ignores(self, resource: str) -> bool:
        return is_extended(resource) and (
            resource in self._ignored or resource.partition("/")[0] in self._ignored_groups
        )

    def feasible(self, state: Wanted, nodes: Columns, rows: Rows) -> Bools:
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

    def feasible_row(self, state: Wanted, nodes: Columns, row: int) -> bool:
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

    def reasons(self, state: Wanted, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        state.resolve(nodes)
        counts: dict[str, int] = {insufficient(resource): rows.shape[0] for resource in state.missing}
        for resource, passed in zip(state.resolved, self._enough(state, nodes, rows), strict=True):
            short = rows.shape[0] - int(np.count_nonzero(passed))
            if short:
                counts[insufficient(resource)] = short
        return counts

    def curable(self, state: Wanted, nodes: Columns, rows: Rows) -> Bools:
        """Others that go make room, but a node gets no larger; the number of pods is never held against it."""
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

    def nearest(self, state: Wanted, nodes: Columns, rows: Rows) -> Rows:
        """By the share of what is wanted that is not there, over all resources."""
        share = np.zeros(rows.shape[0])
        for index, amount, offered in _offered(state.resolve(nodes).each, nodes, rows):
            room = np.maximum(offered - nodes.requested[index][rows], 0)
            short = np.maximum(amount - room, 0) / max(amount, 1)
            share += np.where(_or_elsewhere(state, index, offered, short == 0), 0, short)
        return rows[np.argsort(share, kind="stable")]

    def missing(self, state: Wanted, nodes: Columns, row: int) -> str:
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
    def _enough(state: Wanted, nodes: Columns, rows: Rows) -> Iterator[Bools]:
        """Of each resource, [row] whether what is left, which may be negative, is as much as wanted."""
        for index, amount, offered in _offered(state.each, nodes, rows):
            enough = offered - nodes.requested[index][rows] >= amount
            yield _or_elsewhere(state, index, offered, enough)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                ClusterEvent(Resource.ASSIGNED_POD, ActionType.DELETE),
                self._freed.helps,
                ByKeys(self._by_amount, self._freed.whom, once=True),
            ),
            ClusterEventWithHint(
                ClusterEvent(Resource.POD, ActionType.UPDATE_POD_SCALE_DOWN),
                _scaled_down,
                ByKeys(self._by_amount, _less_taken),
            ),
            ClusterEventWithHint(
                ClusterEvent(Resource.DEVICE_CLASS, ActionType.ADD | ActionType.UPDATE),
                _by_devices,
                ByKeys(self._by_amount, _resources_of, once=True),
            ),
            ClusterEventWithHint(
                ClusterEvent(Resource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE),
                self._more_room,
                ByKeys(self._by_amount, self._room, once=True),
            ),
        )

    def _amounts(self, pod: PodInfo) -> list[Key]:
        """What the pod wants of each resource, and once more of the one that fewest others want."""
        wanted = dict(self._wanted(pod.cls))
        keys: list[Key] = [Amount(resource, amount) for resource, amount in wanted.items()]
        # A resource of its own tells nodes apart best, then processors and memory; a place for a pod everybody wants.
        rarest = min(wanted, key=lambda each: (each in BASE_RESOURCES, each == PODS, each), default=None)
        keys.append(ANYWAY if rarest is None else Amount((_RAREST, rarest), wanted[rarest]))
        keys.extend(preempting_key(pod))
        # Scaling down is read from all that it asks for, ignored or not.
        keys.extend(
            Amount(resource, amount) for resource, amount in pod.requests.items() if resource not in wanted
        )
        return keys

    def _more_room(self, pod: object, old: object | None, new: object | None) -> QueueingHint:
        """The pod fits the node when empty, and the node is new or offers more of something that is wanted."""
        assert isinstance(pod, PodInfo) and isinstance(new, NodeInfo)
        offered, wanted = new.allocatable, dict(self._wanted(pod.cls))
        elsewhere: set[str] = set()
        if pod.cls.extended:
            elsewhere = {each for each in self._elsewhere_now(wanted) if not offered.get(each)}
        if not fits(wanted, offered, elsewhere):
            return QueueingHint.SKIP
        if not isinstance(old, NodeInfo):
            return QueueingHint.QUEUE
        before = old.allocatable
        more = any(offered.get(resource, 0) > before.get(resource, 0) for resource in wanted)
        # What the node no longer offers is the matter of devices from now on.
        more = more or any(before.get(resource, 0) for resource in elsewhere)
        return QueueingHint.QUEUE if more else QueueingHint.SKIP

    def _room(self, event: ClusterEvent, old: NodeInfo | None, new: NodeInfo) -> list[Key]:
        """A new node: all that want no more of their rarest resource than it offers. A larger one: those who want some
        of what it has more of, and no more than it offers. Either: those for whom devices may be there instead."""
        offered, before = new.allocatable, {} if old is None else old.allocatable
        if old is None:
            return self._keys_of_room(offered, offered)
        gone = [resource for resource in self._left_to_devices(offered) if before.get(resource)]
        more = [each for each in offered.items() if each[1] > before.get(each[0], 0)]
        return [*(UpTo(resource, MAX_INT64) for resource in gone), *(UpTo(*each) for each in more)]

    def _keys_of_room(self, offered: Mapping[str, int], free: Mapping[str, int]) -> list[Key]:
        """All that want no more of their rarest resource than a node has free, or for whom devices may be there."""
        room = [UpTo((_RAREST, resource), amount) for resource, amount in free.items()]
        return [ANYWAY, *room, *(UpTo(resource, MAX_INT64) for resource in self._left_to_devices(offered))]

    def _left_to_devices(self, offered: Mapping[str, int]) -> list[str]:
        """The resources that devices may stand for on a node that offers these."""
        devices = self._devices
        known = devices.resources() if devices is not None and devices.classes else ()
        return [resource for resource in known if not offered.get(resource)]

    def _elsewhere_now(self, resources: Iterable[str]) -> frozenset[str]:
        return frozenset() if self._devices is None else _met_elsewhere(resources, self._devices)


def _offered(
    wanted: Iterable[tuple[int, int, int]], nodes: Columns, rows: Rows
) -> Iterator[tuple[int, int, Ints]]:
    """(column, amount, [row] what nodes offer) of each resource. One by one, as arrays of rows alone are taken from
    columns at a fraction of what it costs to take resources and rows together."""
    for index, amount, _ in wanted:
        yield index, amount, nodes.allocatable[index][rows]


def _has(state: Wanted, wanted: Iterable[tuple[int, int, int]], nodes: Columns, row: int) -> bool:
    """Whether enough of each of these resources is left on one row, as the arrays have it."""
    for index, amount, _ in wanted:
        offered = nodes.allocatable.item(index, row)
        if offered - nodes.requested.item(index, row) < amount and (offered or index not in state.elsewhere):
            return False
    return True


def _or_elsewhere(state: Wanted, index: int, offered: Ints, enough: Bools) -> Bools:
    """`enough`, or else devices have to meet it there."""
    return enough | (offered == 0) if index in state.elsewhere else enough


def _all(rows: Rows, passing: Iterable[Bools]) -> Bools:
    found = np.ones(rows.shape[0], dtype=np.bool_)
    for each in passing:
        found &= each
    return found


#: Dimension under which each pod is filed once.
_RAREST = "rarest"


def _met_elsewhere(resources: Iterable[str], devices: Devices) -> frozenset[str]:
    """Which of them are the matter of devices where a node offers none."""
    return frozenset(
        each for each in resources if may_be_devices(each) and devices.class_of_resource(each) is not None
    )


def _by_devices(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """Devices stand now for a resource that the pod asks for, or no longer do."""
    assert isinstance(pod, PodInfo) and isinstance(new, DeviceClassInfo)
    before = old if isinstance(old, DeviceClassInfo) else None
    names = new.resources | (before.resources if before is not None else frozenset())
    changed = before is None or not same(new, before)
    return QueueingHint.QUEUE if changed and names & pod.requests.keys() else QueueingHint.SKIP


def _resources_of(event: ClusterEvent, old: DeviceClassInfo | None, new: DeviceClassInfo) -> list[Key]:
    return [UpTo(name, MAX_INT64) for each in (old, new) if each is not None for name in each.resources]


def _less_taken(event: ClusterEvent, old: PodInfo, new: PodInfo) -> list[Key]:
    """Itself, and those who want any of what a pod on a node asks less of."""
    keys: list[Key] = [Own(new.uid)]
    if new.node_name:
        keys.extend(
            UpTo(resource, MAX_INT64)
            for resource, amount in old.requests.items()
            if new.requests.get(resource, 0) < amount
        )
    return keys


def _scaled_down(pod: object, old: object | None, new: object | None) -> QueueingHint:
    """Own requests went down, or another pod on a node asks for less of something that this one wants."""
    assert isinstance(pod, PodInfo) and isinstance(old, PodInfo) and isinstance(new, PodInfo)
    if new.uid == pod.uid:
        return QueueingHint.QUEUE
    if not new.node_name:
        return QueueingHint.SKIP
    wanted = pod.requests
    less = any(
        resource in wanted and new.requests.get(resource, 0) < amount
        for resource, amount in old.requests.items()
    )
    return QueueingHint.QUEUE if less else QueueingHint.SKIP
