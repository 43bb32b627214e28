"""DynamicResources: a pod goes where devices are available for its resource claims. The rule is in `dra.allocator`.

For claims without an allocation the binder calls its Reserve and PreBind, which reserve the devices and write the
claims before the pod is bound. A node where early alternatives of a request are available ranks before one with later
ones.

Searches share a budget (`Devices.budget`). A node for which it is exhausted is refused for now with kube-scheduler's
message, and recorded in `Devices.undecided`, so that the caller can ask again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np

from ..dra.allocator import Answer, CannotAllocate, Undecided, answer, lacking
from ..dra.catalogue import Devices, SearchBudget
from ..dra.demand import missing
from ..dra.hints import Hints
from ..dra.plans import plan_of
from ..dra.reservation import ReservedClaims, reserve
from ..events.hints import ClusterEventWithHint
from ..framework.args import DynamicResourcesArgs
from ..framework.handle import Handle
from ..framework.plugin import Depends, Filter, PodRejected, Profile, Score, default_normalize
from ..framework.prebind import Attempt, PreBind, Reserve, Writes
from ..gangs.native import NativeGroups
from ..ledger import Ledger
from ..state.columns import Bools, Columns, Ints, Rows
from ..state.nodeinfo import NodeInfo
from ..state.podclaims import ClaimDemand
from ..state.podclass import PodClass
from ..state.podinfo import PodInfo

NAME = "DynamicResources"

#: The budget of a single row, if less is left.
_ONE_ROW: Final = 500


class DynamicResourcesState(NamedTuple):
    demand: ClaimDemand
    devices: Devices

    def answer(self, nodes: Columns, row: int, budget: SearchBudget) -> Answer:
        node = nodes.nodes[row]
        assert node is not None, "asked about rows with a node"
        found = answer(self.demand, self.devices, node, budget)
        if isinstance(found, Undecided):
            self.devices.undecided.add(node.name)
        return found

    def answer_of_one(self, nodes: Columns, row: int) -> Answer:
        budget = self.devices.budget
        return self.answer(nodes, row, budget if budget.left >= _ONE_ROW else SearchBudget(_ONE_ROW))


class DynamicResources(Filter, Reserve, PreBind):
    """Filters nodes by the devices for resource claims.

    Without `devices`, a pod is kept from the queue only for claims that its own status reports as missing, and every
    event wakes pods.
    """

    name = NAME
    depends = Depends.USAGE
    reads_requests = False
    concerns = attrgetter("claims")
    takes_back = True

    def __init__(self, args: DynamicResourcesArgs | None = None, *, devices: Devices | None = None) -> None:
        self._args = args or DynamicResourcesArgs()
        self._devices = devices
        self._hints = Hints(devices)

    @property
    def filter_timeout(self) -> float:
        """The seconds that a pod's searches may take; 0 for no limit."""
        return self._args.filter_timeout

    @property
    def binding_timeout(self) -> float:
        """The seconds that devices may take to become ready."""
        return self._args.binding_timeout

    def seeing(self, ledger: Ledger, devices: Devices, groups: NativeGroups) -> DynamicResources:
        return type(self)(self._args, devices=devices)

    def pre_enqueue(self, pod: PodInfo) -> str | None:
        """Refuse a pod whose claims do not exist, are being deleted, or were generated for another pod."""
        known = self._devices
        claims = pod.claims if known is not None else [each for each in pod.claims if each.claim is None]
        return missing(claims, known or Devices(), pod.ref) or None

    def prepare(self, pod: PodClass, handle: Handle) -> DynamicResourcesState | None:
        if pod.claims is None:
            return None
        devices = handle.devices
        problem = plan_of(pod.claims, devices).problem
        if problem:
            raise PodRejected(problem)
        if pod.claims.is_empty:
            return None
        return DynamicResourcesState(pod.claims, devices)

    def feasible(self, state: DynamicResourcesState, nodes: Columns, rows: Rows) -> Bools:
        budget, undecided = state.devices.budget, state.devices.undecided
        found = np.zeros(rows.shape[0], dtype=np.bool_)
        for place, row in enumerate(rows.tolist()):
            node = nodes.nodes[row]
            if node is None:
                continue
            if budget.left <= 0:
                # Known answers are included: they cost nothing when asked for again.
                undecided.add(node.name)
            else:
                found[place] = not isinstance(state.answer(nodes, row, budget), CannotAllocate)
        return found

    def feasible_row(self, state: DynamicResourcesState, nodes: Columns, row: int) -> bool:
        return not isinstance(state.answer_of_one(nodes, row), CannotAllocate)

    def reasons(self, state: DynamicResourcesState, nodes: Columns, rows: Rows) -> Mapping[str, int]:
        known = SearchBudget(0)
        answers = [state.answer(nodes, row, known) for row in rows.tolist()]
        return Counter(each.reason for each in answers if isinstance(each, CannotAllocate))

    def curable(self, state: DynamicResourcesState, nodes: Columns, rows: Rows) -> Bools:
        """Return false for every row: as in kube-scheduler, no pod is evicted for devices."""
        return np.zeros(rows.shape[0], dtype=np.bool_)

    def missing(self, state: DynamicResourcesState, nodes: Columns, row: int) -> str:
        node = nodes.nodes[row]
        found = state.answer_of_one(nodes, row)
        if node is None or not isinstance(found, CannotAllocate):
            return ""
        return lacking(found, state.demand, state.devices, node)

    def reserve(self, state: DynamicResourcesState, pod: PodInfo, node: NodeInfo, at: str) -> ReservedClaims | None:
        found = reserve(pod.claims, state.demand, state.devices, node, pod.ref, group=pod.group, at=at)
        return None if isinstance(found, CannotAllocate) else found

    def unreserve(self, pod: PodInfo, writes: Writes) -> None:
        writes.claims.give_back(pod.uid)

    # Written claims are no longer assumed.
    bound = unreserve

    def is_due(self, pod: PodInfo, reservation: ReservedClaims, writes: Writes) -> bool:
        return writes.claims.is_due(pod, reservation)

    def pre_bind(self, attempt: Attempt) -> Awaitable[str]:
        return attempt.writes.claims.write(attempt, self.binding_timeout)

    def take_back(self, attempt: Attempt) -> Awaitable[None]:
        return attempt.writes.claims.take_back(attempt)

    def keep(self, attempt: Attempt) -> None:
        attempt.writes.claims.keep(attempt)

    def in_doubt(self, attempt: Attempt) -> Callable[[], bool] | None:
        return attempt.writes.claims.in_doubt(attempt)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return self._hints.events()


def take_timeouts(profiles: Mapping[str, Profile], devices: Devices) -> None:
    """Set the timeouts of decisions to those of the profiles."""
    plugins = {
        name: plugin
        for name, profile in profiles.items()
        for plugin in profile.filters
        if isinstance(plugin, DynamicResources)
    }
    devices.filter_timeouts = {name: plugin.filter_timeout for name, plugin in plugins.items()}
    devices.binding_timeouts = {name: plugin.binding_timeout for name, plugin in plugins.items()}


class DynamicResourcesScore(Score):
    name = NAME
    depends = Depends.USAGE
    reads_requests = False
    normalize = staticmethod(default_normalize)

    def prepare(self, pod: PodClass, handle: Handle) -> DynamicResourcesState | None:
        if pod.claims is None:
            return None
        devices = handle.devices
        alternatives = any(request.prioritized for each in pod.claims.to_allocate for request in each.spec.requests)
        return DynamicResourcesState(pod.claims, devices) if alternatives else None

    def score(self, state: DynamicResourcesState, nodes: Columns, rows: Rows) -> Ints:
        return np.fromiter(
            (self.score_row(state, nodes, row) for row in rows.tolist()), dtype=np.int64, count=rows.shape[0]
        )

    def score_row(self, state: DynamicResourcesState, nodes: Columns, row: int) -> int:
        if nodes.nodes[row] is None:
            return 0
        found = state.answer_of_one(nodes, row)
        return 0 if isinstance(found, CannotAllocate) else sum(each.preference for each in found)
