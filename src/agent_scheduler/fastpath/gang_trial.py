"""The trial of a group: each member is decided as if the previous ones were placed; then everything is undone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from agent_scheduler.binding.preemption import PreemptionResult
from agent_scheduler.cluster.cluster import Cluster, Entry
from agent_scheduler.cluster.state import SharedState
from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.engine.decide.decide import CandidateNode, CandidateNodes, ClassViews
from agent_scheduler.engine.decide.gang_placing import GangPlacing, given, may_help
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.reserving import Reservations
from agent_scheduler.engine.decide.trial import START, Trial
from agent_scheduler.engine.dra.catalogue import PORTION
from agent_scheduler.engine.dra.gang_search import MemberPlacement
from agent_scheduler.engine.framework.plugin import GANG_SCHEDULING, PodUnrankable
from agent_scheduler.engine.framework.prebind import Writes
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podinfo import PodInfo

from .worker import Decide, WorkerDecision

#: The limit of portions in a search for devices.
_PORTIONS: Final = 8
_NOT_RESERVED: Final = Refusal("none of its nodes still has its other requirements", frozenset({GANG_SCHEDULING}))


class TrialMember(NamedTuple):
    entry: Entry
    pod: PodInfo


class MemberResult(NamedTuple):
    """The result for one member."""

    member: TrialMember
    decided: WorkerDecision
    #: The node in the trial; None without one.
    node_name: str | None
    #: Whether the members placed so far, including this one, were too few for the group.
    waited: bool = False
    #: Its reservations there; only for members that are about to be bound.
    reservations: Reservations = ()

    @property
    def plugins(self) -> Collection[str]:
        """The plugins that rejected nodes; empty for a placed member."""
        decision = self.decided.decision
        if isinstance(decision, PreemptionResult):
            decision = decision.refusal
        return decision.plugins if isinstance(decision, Refusal) else ()

    @property
    def attempt(self) -> PreemptionResult | None:
        """The evictions that it needs, if any."""
        decision = self.decided.decision
        return decision if isinstance(decision, PreemptionResult) and decision.candidate is not None else None


class MemberFailed(Exception):
    """A member, and therefore the group, cannot be decided."""

    def __init__(self, pod: PodInfo, message: str) -> None:
        super().__init__(message)
        self.pod = pod


@dataclass(slots=True)
class DeviceSearch:
    """A group whose members lack devices, while a search for devices for all of them is in progress."""

    decide: Decide
    members: Sequence[TrialMember]
    have: int
    minimum: int
    tried: Sequence[MemberResult]
    placing: GangPlacing


class GroupTrial:
    """Owns the trial on the workers' snapshot, which exists while a group is tried and is empty before and after.

    Evictions are not tried: as in kube-scheduler, victims stay in the snapshot, so a later member that needs the same
    node evicts more.
    """

    def __init__(self, state: SharedState, views: Mapping[str, ClassViews], writes: Writes) -> None:
        cluster, snapshot = state.cluster, state.snapshot
        self._cluster = cluster
        self._snapshot = snapshot
        self._views = views
        self._nominations = state.nominations
        self._trial = Trial(cluster.ledger, snapshot, views, writes, cluster.events.muted)
        snapshot.trial = None

    def run(
        self, decide: Decide, members: Sequence[TrialMember], *, have: int, minimum: int
    ) -> Sequence[MemberResult] | DeviceSearch:
        """Try the members. `have` of the group already have a node, of `minimum`. Raises MemberFailed."""
        tried, found = self._tried(decide, [(each, None) for each in members], have=have, minimum=minimum)
        if found >= minimum or minimum - have < 2:
            return tried
        placed = [each.member.pod for each in tried if each.node_name is not None]
        refused = [(each.member.pod, each.plugins) for each in tried if each.node_name is None]
        if not may_help(placed, refused):
            return tried
        pods = [member.pod for member in members]
        placing = GangPlacing(self._trial, self._snapshot, pods, minimum - have, self._taken)
        return self.go_on(DeviceSearch(decide, members, have, minimum, tried, placing))

    def go_on(self, searching: DeviceSearch) -> Sequence[MemberResult] | DeviceSearch:
        """Search for one more portion. Raises MemberFailed."""
        decide, members, placing = searching.decide, searching.members, searching.placing
        have, minimum = searching.have, searching.minimum
        with self._in_place() as placed:
            for member in members:
                placed(member.pod)
            if not placing.run():
                return searching
        if not placing.found:
            return searching.tried
        others = {member.pod.uid: member for member in members}
        first = [(others.pop(pod.uid), placement) for pod, placement in placing.found]
        left = [(member, None) for member in others.values()]
        tried, found = self._tried(decide, [*first, *left], have=have, minimum=minimum)
        return tried if found >= minimum else searching.tried

    @contextmanager
    def _in_place(self) -> Iterator[Callable[[PodInfo], None]]:
        """Provide the trial on the current snapshot, and undo it at the end."""
        snapshot = self._snapshot
        snapshot.refresh()
        with not_nominated(self._cluster) as placed:
            snapshot.trial = self._trial
            try:
                yield placed
            finally:
                self._trial.rollback(START)
                snapshot.trial = None

    def _taken(self, pod: PodInfo, view: ClassView) -> Sequence[int]:
        nominations = self._nominations
        if not (against := nominations.against(pod)):
            return ()
        return nominations.taken(pod, view, self._snapshot.columns, against)

    def _tried(
        self, decide: Decide, members: Sequence[tuple[TrialMember, MemberPlacement | None]], *, have: int, minimum: int
    ) -> tuple[Sequence[MemberResult], int]:
        """Try the members, with known placements if any.

        Return the results and the number of placed members of the group.
        """
        tried: list[MemberResult] = []
        with self._in_place() as placed:
            for member, placement in members:
                each = self._try(decide, member, placement)
                if each.node_name is not None:
                    placed(member.pod)
                    have += 1
                    each = each._replace(waited=have < minimum)
                tried.append(each)
            if is_feasible(tried):
                hand_over = self._trial.hand_over
                tried = [each._replace(reservations=hand_over(each.member.pod)) for each in tried]
        return tried, have

    def _try(self, decide: Decide, member: TrialMember, placement: MemberPlacement | None) -> MemberResult:
        pod, trial = member.pod, self._trial
        try:
            if placement is not None:
                return self._place_as_found(member, placement)
            cls = self._snapshot.handle.class_of(pod, beside=trial.beside)
            decided = self._decided(decide, pod, cls)
            decision = decided.decision
            if isinstance(decision, CandidateNodes):
                return self._place(member, decided, decision)
            if isinstance(decision, PreemptionResult) and decision.candidate is not None:
                trial.place(pod, decision.candidate.row)
                return MemberResult(member, decided, decision.candidate.node_name)
        except PodUnrankable as why:
            raise MemberFailed(pod, str(why)) from None
        except Exception as error:
            raise MemberFailed(pod, f"{type(error).__name__}: {error}") from error
        return MemberResult(member, decided, None)

    def _place(self, member: TrialMember, decided: WorkerDecision, decision: CandidateNodes) -> MemberResult:
        view = decided.view
        for index, candidate in enumerate(decision.candidates):
            if self._trial.try_place(member.pod, candidate.row, view):
                others = [each for each in decision.candidates if each is not candidate]
                placement = CandidateNodes((candidate, *others), decision.seen, decision.nominated and not index)
                return MemberResult(member, WorkerDecision(view, placement), candidate.node_name)
        return MemberResult(member, WorkerDecision(view, _NOT_RESERVED, True), None)

    def _place_as_found(self, member: TrialMember, placement: MemberPlacement) -> MemberResult:
        pod, columns, node_name = member.pod, self._snapshot.columns, placement.node.name
        row = self._cluster.ledger.rows.get(node_name)
        view = self._trial.view_of(pod)
        if row is not None:
            with given(placement, view, self._cluster.devices):
                if self._trial.try_place(pod, row, view):
                    candidate = CandidateNode(node_name, row, columns.version[row])
                    return MemberResult(
                        member, WorkerDecision(view, CandidateNodes((candidate,), view.seen)), node_name
                    )
        return MemberResult(member, WorkerDecision(view, _NOT_RESERVED, True), None)

    def _decided(self, decide: Decide, pod: PodInfo, cls: PodClass) -> WorkerDecision:
        """Decide on a member.

        A search for devices gets several portions and is then given up, since others must not wait.
        """
        for spent in (*[0.0] * _PORTIONS, inf):
            self._cluster.devices.budget.left = PORTION
            before = self._cluster.ledger.sequence
            decided = decide(pod, spent, cls)
            # The snapshot is not refreshed in between, so the trial must be informed about undecided nodes.
            self._trial.follow(before)
            if decided is not None:
                return decided
        raise AssertionError("it was given up")


def is_reached(tried: Sequence[MemberResult]) -> bool:
    """Return whether enough members for the group have a place, or would have one after evictions."""
    return any(each.node_name is not None and not each.waited for each in tried)


def is_feasible(tried: Sequence[MemberResult]) -> bool:
    """Return whether enough members have a place without evictions."""
    return is_reached(tried) and all(each.attempt is None for each in tried)


@contextmanager
def not_nominated(cluster: Cluster) -> Iterator[Callable[[PodInfo], None]]:
    """Suspend nominations of pods that are placed in the trial, because they would count twice."""
    nominator = cluster.queue.nominator
    before: list[tuple[PodInfo, str]] = []

    def placed(pod: PodInfo) -> None:
        node_name = nominator.nominated.get(pod.uid)
        if node_name is not None:
            before.append((pod, node_name))
            nominator.delete(pod.uid)

    try:
        yield placed
    finally:
        for pod, node_name in before:
            nominator.add(pod, node_name)
