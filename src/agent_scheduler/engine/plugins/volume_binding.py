"""VolumeBinding: a pod goes where all its claims can be satisfied.

The rule is in `volumes.binding`. The score, which exists only if the arguments have a `shape`, is the share of a node's
storage that the pod's claims would take (KEP-4049), by a curve. For static volumes it is the share of those that the
claims get there, otherwise the share of the pools where their volumes would be provisioned. All classes have equal
weight. For claims that wait for a consumer the binder reserves the volumes and waits for them to be
bound before it binds the pod.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..events.hints import ClusterEventWithHint
from ..framework.args import VolumeBindingArgs
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter, PodRejected, Score
from ..framework.prebind import Attempt, PreBind, Reserve, Writes
from ..rules.curve import FULL, rates_of
from ..state.columns import Bools, Columns, Ints, Rows
from ..state.nodeinfo import NodeInfo
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo
from ..state.podvolumes import PodVolumes
from ..volumes import binding
from ..volumes.binding import VolumePlan
from ..volumes.catalogue import Catalogue
from ..volumes.claims import Unresolvable
from ..volumes.hints import binding_events, volumes_of
from ..volumes.matching import find_matching_volumes
from ..volumes.provisioning import free_capacity
from ..volumes.reservation import ReservedVolumes, reserve

#: Class -> requested and available bytes.
Shares = dict[str, tuple[int, int]]


def _score(plan: VolumePlan, catalogue: Catalogue, rates: Sequence[int], nodes: Columns, rows: Rows) -> Ints:
    """Score `rows` that passed the filter; `rates` is the value of each share in percent."""
    found: Ints = np.zeros(rows.shape[0], dtype=np.int64)
    for position, row in enumerate(rows.tolist()):
        node = nodes.nodes[row]
        if node is not None:
            found[position] = _mean(rates, _shares(plan, catalogue, node).values())
    return found


def _shares(plan: VolumePlan, catalogue: Catalogue, node: NodeInfo) -> Shares:
    shares: Shares = {}
    for key, volume in (chosen := find_matching_volumes(plan.claims_to_bind, node)).items():
        asked, there = shares.get(volume.class_name, (0, 0))
        asked += catalogue.claims[key].requested or 0
        shares[volume.class_name] = asked, there + volume.capacity
    if chosen:
        return shares
    for claim in (*(claim for claim, _ in plan.selected), *(each.claim for each in plan.claims_to_bind)):
        capacity = free_capacity(claim, catalogue, node)
        if capacity is not None:
            asked, _ = shares.get(claim.class_name, (0, 0))
            # Claims of one class share its pools.
            shares[claim.class_name] = asked + (claim.requested or 0), capacity
    return shares


def _mean(rates: Sequence[int], shares: Iterable[tuple[int, int]]) -> int:
    found = [rates[FULL if asked > there or not there else asked * FULL // there] for asked, there in shares]
    return (2 * sum(found) + len(found)) // (2 * len(found)) if found else 0


class VolumeBindingState(NamedTuple):
    volumes: PodVolumes
    plan: binding.VolumePlan
    catalogue: Catalogue


class VolumeBinding(Filter, Reserve, PreBind):
    name = binding.NAME
    depends = Depends.NODE
    reads_requests = False
    #: PreBind waits for the volume controller and provisioners.
    waits_for_others = True

    def __init__(self, args: VolumeBindingArgs | None = None) -> None:
        self._args = args or VolumeBindingArgs()

    def prepare(self, pod: PodClass, handle: Handle) -> VolumeBindingState | None:
        if pod.volumes is None:
            return None
        catalogue = handle.catalogue
        found = binding.plan(pod.volumes, catalogue)
        if isinstance(found, Unresolvable):
            raise PodRejected(found.message)
        return None if found is None else VolumeBindingState(pod.volumes, found, catalogue)

    def feasible(self, state: VolumeBindingState, nodes: Columns, rows: Rows) -> Bools:
        return binding.feasible(state.plan, state.catalogue, nodes, rows)

    def reasons(self, state: VolumeBindingState, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        return binding.reasons(state.plan, state.catalogue, nodes, rows)

    def reserve(self, state: VolumeBindingState, pod: PodInfo, node: NodeInfo, at: str) -> ReservedVolumes | None:
        found = reserve(state.volumes, state.catalogue, node, pod.uid)
        return None if isinstance(found, Unresolvable) else found

    def unreserve(self, pod: PodInfo, writes: Writes) -> None:
        writes.volumes.give_back(pod.uid)

    # Written volumes are no longer assumed.
    bound = unreserve

    def is_due(self, pod: PodInfo, reservation: ReservedVolumes, writes: Writes) -> bool:
        return not reservation.all_bound

    def pre_bind(self, attempt: Attempt) -> Awaitable[str]:
        return attempt.writes.volumes.bind(attempt, float(self._args.bind_timeout_seconds))

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return binding_events(volumes_of)


class VolumeBindingScore(Score):
    name = binding.NAME
    depends = Depends.NODE
    reads_requests = False
    normalize = None

    def __init__(self, args: VolumeBindingArgs) -> None:
        shape = args.shape
        #: [utilization of a node's storage in percent] its rate; None if storage does not count.
        self._rates = None if shape is None else rates_of([(at.utilization, at.score) for at in shape])

    def prepare(self, pod: PodClass, handle: Handle) -> VolumeBindingState | None:
        if self._rates is None or pod.volumes is None:
            return None
        catalogue = handle.catalogue
        found = binding.plan(pod.volumes, catalogue)
        if found is None or isinstance(found, Unresolvable) or found.all_bound:
            return None
        return VolumeBindingState(pod.volumes, found, catalogue)

    def score(self, state: VolumeBindingState, nodes: Columns, rows: Rows) -> Ints:
        assert self._rates is not None, "without a shape there is no state"
        return _score(state.plan, state.catalogue, self._rates, nodes, rows)
