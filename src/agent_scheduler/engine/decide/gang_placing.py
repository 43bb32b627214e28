"""The search for places of all members of a gang together, after members placed one by one lacked devices.

The search (`dra.gang_search`) runs on a trial, and its result is placed in the trial.

    members are tried one by one ──> one is refused for devices that others have ──> all are rolled back
      ──> the search, a portion at a time ──> each member at its place, with these devices; or no change

Nothing is reserved during the search, so other work may run between two portions. A conflict with it is detected when
the members are placed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from ..dra.allocator import answering
from ..dra.catalogue import PORTION, Devices
from ..dra.demand import to_allocate
from ..dra.gang_search import GangMember, GangSearch, MemberPlacement
from ..plugins.dynamic_resources import NAME as DYNAMIC_RESOURCES
from ..plugins.gpu_share import GPUShare
from ..rules.spreading import HOSTNAME
from ..state.columns import Amounts
from ..state.gpus import Free
from ..state.nodeinfo import NodeInfo
from ..state.podinfo import PodInfo
from .classview import ClassView
from .ranking import REFUSED
from .snapshot import Snapshot
from .trial import Mark, Trial

#: Returns rows that must not be used although no filter refuses them.
Taken = Callable[[PodInfo, ClassView], Sequence[int]]

_OF_DEVICES = frozenset((DYNAMIC_RESOURCES, GPUShare.name))


def asks_devices(pod: PodInfo) -> bool:
    return bool(pod.claims or pod.cls.extended or pod.cls.gpu)


def may_help(placed: Iterable[PodInfo], refused: Iterable[tuple[PodInfo, Collection[str]]]) -> bool:
    """Return whether other places for the `placed` pods may free devices for `refused` pods (with their plugins)."""
    lacking = [pod for pod, plugins in refused if asks_devices(pod) and not _OF_DEVICES.isdisjoint(plugins)]
    having = [pod for pod in placed if asks_devices(pod)] if lacking else []
    if any(pod.claims or pod.cls.extended for pod in (*lacking, *having)):
        return bool(having)
    # With equal shares of GPUs no other order helps.
    return len({pod.cls for pod in (*lacking, *having)}) > 1 and bool(having)


class GangPlacing:
    """A search on a trial without reservations. Hypothetical placements exist only during `run`."""

    def __init__(self, trial: Trial, snapshot: Snapshot, pods: Sequence[PodInfo], needed: int, taken: Taken) -> None:
        """Prepare the search: at least `needed` of `pods`, in the order of trying, get places, or no pod does."""
        devices = snapshot.handle.devices
        self._pods = list(pods)
        if needed == len(pods):
            # Large shares of GPUs come first because shares are assigned by best fit, without a search.
            self._pods.sort(key=lambda pod: -pod.cls.gpu)
        self._places = _Places(trial, snapshot, self._pods, taken)
        self._gpus = sum(sorted(pod.cls.gpu for pod in pods)[:needed])
        members = [_wanting(pod, trial, snapshot) for pod in self._pods]
        self._search = GangSearch(members, needed, devices, self._places)

    def run(self) -> bool:
        """Search for one portion. Return whether the search has ended."""
        return not self._places.stand() or self._gpus > self._places.free_gpus() or self._search.run()

    @property
    def found(self) -> Sequence[tuple[PodInfo, MemberPlacement]]:
        """The members and their places in the order of placing; empty if no solution exists or none was found."""
        return [(self._pods[each.member], each) for each in self._search.found]


def given(found: MemberPlacement, view: ClassView, devices: Devices) -> AbstractContextManager[None]:
    """Return a context in which the member reserves the found devices at its node; its `view` must be current."""
    claims = view.pod.claims
    return nullcontext() if claims is None else answering(claims, devices, found.node, found.allocations)


def _wanting(pod: PodInfo, trial: Trial, snapshot: Snapshot) -> GangMember:
    handle = snapshot.handle
    cls = handle.class_of(pod, beside=trial.beside)
    claims = to_allocate(pod.claims, handle.devices, pod.group) if pod.claims else ()
    return GangMember((cls, pod.priority), cls.claims, tuple(each.key for each in claims))


class _Places:
    """The trial behind the interface that `GangSearch` requires."""

    def __init__(self, trial: Trial, snapshot: Snapshot, pods: Sequence[PodInfo], taken: Taken) -> None:
        self._trial = trial
        self._snapshot = snapshot
        self._pods = pods
        self._taken = taken
        self._marks: list[Mark] = []
        #: The rows of nodes that were candidates, and the amounts and GPUs taken there before any member was placed.
        self._rows: dict[str, int] = {}
        self._before: dict[str, tuple[Amounts, Free | None]] = {}

    def stand(self) -> bool:
        """Return whether all these nodes still have their rows."""
        nodes = self._snapshot.columns.nodes
        return all((node := nodes[row]) is not None and node.name == name for name, row in self._rows.items())

    def free_gpus(self) -> int:
        """Return the free thousandths of GPUs of all nodes together."""
        return sum(sum(left for left in free if left > 0) for free in self._snapshot.columns.gpus.values())

    def nodes(self, member: int) -> Collection[NodeInfo]:
        pod, columns = self._pods[member], self._snapshot.columns
        self._snapshot.handle.devices.budget.left = PORTION
        view = self._trial.view_of(pod)
        ranked = view.ranked(columns, self._taken(pod, view))
        rows = np.flatnonzero(ranked != REFUSED)
        return _Ranked(self, rows[np.argsort(-ranked[rows], kind="stable")].tolist())

    def node_at(self, row: int) -> NodeInfo:
        columns = self._snapshot.columns
        node = columns.nodes[row]
        assert node is not None, "a feasible row has a node"
        if node.name not in self._rows:
            self._rows[node.name] = row
            if not self._marks:
                self._before[node.name] = columns.taken[row], columns.gpus.get(row)
        return node

    def place(self, member: int, node: NodeInfo) -> None:
        pod, row = self._pods[member], self._rows[node.name]
        self._marks.append(self._trial.mark())
        self._trial.place(pod, row)

    def take_back(self) -> None:
        self._trial.rollback(self._marks.pop())

    def alike(self, node: NodeInfo) -> Hashable:
        """Return a key by amounts, GPUs and labels: nodes with equal keys are interchangeable for the search.

        If nodes with equal keys differ for a member in something else, and both pass it alone, a solution may be
        missed, but no wrong one is accepted.
        """
        before = self._before.get(node.name)
        if before is None:
            return node.name
        labels = frozenset(each for each in node.labels.items() if each[0] != HOSTNAME)
        return self._snapshot.columns.offers[self._rows[node.name]], before, labels


class _Ranked(Collection[NodeInfo]):
    """Nodes in an order. Usually only the first few of many are read."""

    def __init__(self, places: _Places, rows: Sequence[int]) -> None:
        self._places = places
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[NodeInfo]:
        return map(self._places.node_at, self._rows)

    def __contains__(self, node: object) -> bool:
        return any(each is node for each in self)
