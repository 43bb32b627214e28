"""Executes the decisions of a session: passes gangs to the binder, sends evictions, and handles failed binds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from agent_scheduler.binding.background import Background
from agent_scheduler.binding.failure import SCHEDULER_ERROR
from agent_scheduler.binding.groups import Admission, Member
from agent_scheduler.binding.messenger import KubeMessenger
from agent_scheduler.binding.preemption import EvictCall
from agent_scheduler.binding.result import AttemptOwner, ScheduleResult
from agent_scheduler.cluster.cluster import Cluster, Entry
from agent_scheduler.cluster.groups import Groups
from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.engine.decide.decide import CandidateNode, CandidateNodes
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.reserving import Reservations
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.decide.trial import Trial
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.queues.asks import role_of
from agent_scheduler.engine.queues.shortfall import Shortfall
from agent_scheduler.engine.session.model import JobInfo, TaskInfo
from agent_scheduler.engine.session.session import GroupEvent
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import HAS_GATES, by_nodes
from agent_scheduler.objects.batch import PodGroup
from agent_scheduler.telemetry.batch import BatchReports
from apimachinery.plural import counted
from kube_client.eviction import Evicted


class CommitGroup(Protocol):
    """The signature of `Binder.commit_group`."""

    def __call__(self, members: Sequence[Member], minimum: int, admission: Admission) -> Collection[str]: ...


@dataclass(slots=True, eq=False)
class _Binds:
    """Binds that were committed together: how many of them have no outcome so far, and the nodes of the others."""

    group: GroupKey
    left: int
    bound: int = 0
    nodes: set[str] = field(default_factory=set)


class BindReports:
    """Reports the binds of a PodGroup that were committed together by one event, once each has an outcome.

    Owner of the commits with binds in progress. Invariant: a UID is known from its commit to its first outcome.
    """

    def __init__(self, groups: Groups, tell: Callable[[GroupEvent], None], *, of_members: bool) -> None:
        """Report to `tell` about those of `groups` that have a PodGroup of Volcano.

        `of_members`: nothing is reported, because each member gets an event.
        """
        self._groups = groups
        self._tell = tell
        self._of_members = of_members
        self._in_progress: dict[str, _Binds] = {}

    def reports(self, group: GroupKey) -> bool:
        """Return whether binds of this group are reported: it has an object that can have an event."""
        known = None if self._of_members else self._groups.groups.get(group)
        return known is not None and isinstance(known.object, PodGroup)

    def begin(self, group: GroupKey, pods: Iterable[PodInfo]) -> None:
        """Record a commit. The pods that stand by are bound later, so those of each role are reported by themselves."""
        together: dict[tuple[bool, str], list[str]] = {}
        for pod in pods:
            together.setdefault((pod.stands_by, role_of(pod) if pod.stands_by else ""), []).append(pod.uid)
        for uids in together.values():
            self._in_progress.update(dict.fromkeys(uids, _Binds(group, len(uids))))

    def bound(self, uid: str, node_name: str) -> None:
        binds = self._in_progress.get(uid)
        if binds is not None:
            binds.bound += 1
            binds.nodes.add(node_name)

    def over(self, uid: str) -> None:
        """Record that a bind has an outcome; further calls for the same UID have no effect."""
        binds = self._in_progress.pop(uid, None)
        if binds is None:
            return
        binds.left -= 1
        if not binds.left and binds.bound:
            note = f"Successfully assigned {counted(binds.bound, 'pod')} to {counted(len(binds.nodes), 'node')}"
            self._tell(GroupEvent(binds.group, "Normal", "Scheduled", note))


class Outcomes:
    """Handles the outcomes of members that were passed to the binder: both callbacks of a result's `AttemptOwner`."""

    def __init__(
        self,
        cluster: Cluster,
        messenger: KubeMessenger,
        observer: BatchReports,
        binds: BindReports,
        *,
        try_again: Callable[[], None],
    ) -> None:
        """Report by `messenger`, `observer` and `binds`; `try_again` makes a session due."""
        self._cluster = cluster
        self._messenger = messenger
        self._observer = observer
        self._binds = binds
        self._try_again = try_again

    def reports(self, group: GroupKey) -> bool:
        """See `BindReports.reports`."""
        return self._binds.reports(group)

    def begin(self, group: GroupKey, pods: Sequence[PodInfo]) -> None:
        """Handle that the binder has accepted these members."""
        if self.reports(group):
            self._binds.begin(group, pods)
        for pod in pods:
            if pod.stands_by:
                # The pod has a node now, so an autoscaler must not add one for it.
                self._messenger.gated(pod, HAS_GATES)
            else:
                # A report of an earlier rejection that is still queued must not follow the bind.
                self._messenger.binding(pod)

    def scheduled(self, entry: Entry) -> None:
        placement = self._cluster.ledger.placements.get(entry.uid)
        if placement is not None:
            self._binds.bound(entry.uid, placement.node_name)

    def done(self, uid: str) -> None:
        """End the attempt. The watch delivers the bound pod, or has delivered that it no longer waits."""
        self._binds.over(uid)

    def overcome(self, pod: PodInfo, node_name: str, *, started: float) -> None: ...

    def unschedulable(self, entry: Entry, pod: PodInfo, refusal: Refusal, *, started: float) -> None:
        self._observer.attempted(pod, "unschedulable", started, refusal.plugins, refusal.message)
        verdict = by_nodes(refusal.message, refusal.plugins)
        self._messenger.refused(pod, verdict.reason, verdict.message)
        self._failed(entry)

    def broken(self, entry: Entry, pod: PodInfo, message: str, *, started: float) -> None:
        self.error(entry, pod, message, started=started)

    def error(self, entry: Entry, pod: PodInfo, message: str, *, started: float, tell: bool = True) -> None:
        """Report the failure and make a session due.

        The other members are bound or about to be. If their group now lacks its minimum, a session fills it first.
        """
        self._observer.attempted(pod, "error", started, (), message)
        if tell:
            self._messenger.refused(pod, SCHEDULER_ERROR, message)
        self._failed(entry)

    def queue_full(self, entry: Entry, pod: PodInfo, short: Shortfall, *, started: float) -> None:
        self._failed(entry)

    def outraced(self, entry: Entry, pod: PodInfo, *, started: float) -> None:
        self._failed(entry)

    def outdated(self, entry: Entry) -> None:
        self._failed(entry)

    def _failed(self, entry: Entry) -> None:
        self._binds.over(entry.uid)
        self._try_again()


class GroupCommitter:
    """Passes members to the binder for a session. Stateless."""

    def __init__(
        self,
        cluster: Cluster,
        commit: CommitGroup,
        outcomes: Outcomes,
        *,
        profile: Profile,
        clock: Callable[[], float],
        try_again: Callable[[], None],
    ) -> None:
        """Create the committer; `try_again` makes a session due."""
        self._cluster = cluster
        self._commit = commit
        self.outcomes = outcomes
        self._owner = AttemptOwner(outcomes, outcomes)
        #: The profile by which members are decided.
        self.profile = profile
        self._clock = clock
        self._try_again = try_again
        self._admission = cluster.ledger.usage

    def on(self, snapshot: Snapshot, trial: Trial, session: str) -> TrialCommitter:
        """Return the `Committer` of a session, with this UID, on this trial."""
        return TrialCommitter(self, snapshot, trial, f"session {session}")

    def commit(self, job: JobInfo, members: Sequence[Member], minimum: int) -> Collection[str]:
        refused = self._commit(members, minimum, self._admission)
        accepted = [pod for member in members if (pod := member.result.pod).uid not in refused]
        self.outcomes.begin(job.group.key, accepted)
        if refused:
            self._try_again()
        return refused

    def member(
        self, task: TaskInfo, view: ClassView, snapshot: Snapshot, reserved: Reservations, *, by: str, is_reported: bool
    ) -> Member:
        pod, row = task.pod, task.row
        candidate = CandidateNode(task.node_name, row, snapshot.columns.version[row])
        now = self._clock()
        result = ScheduleResult(
            Entry(uid=pod.uid, pod=pod, timestamp=now, attempts=1),
            pod,
            view.pod,
            CandidateNodes((candidate,), view.seen),
            # The member's own reservations are taken, so the filters as they are now would reject it.
            task.filters if view.rejection is not None else view.filters,
            now,
            self._owner,
            self._cluster.catalogue.version,
            view.reserves,
            True,
            by,
            is_reported,
        )
        return Member(result, self.profile, reserved)


class TrialCommitter:
    """The `Committer` of one session: passes tasks to the binder with what its trial has placed and reserved."""

    def __init__(self, committer: GroupCommitter, snapshot: Snapshot, trial: Trial, by: str) -> None:
        self._committer = committer
        self._by = by
        self._snapshot = snapshot
        self._trial = trial

    def commit(self, job: JobInfo, tasks: Sequence[TaskInfo], minimum: int) -> Collection[str]:
        committer, trial = self._committer, self._trial
        is_reported = committer.outcomes.reports(job.group.key)
        members = [
            committer.member(task, view, self._snapshot, trial.reserved(task.pod), by=self._by, is_reported=is_reported)
            for task, view in zip(tasks, trial.views_of(task.pod for task in tasks), strict=True)
        ]
        refused = committer.commit(job, members, minimum)
        for task in tasks:
            if task.uid not in refused:
                self._trial.hand_over(task.pod)
        return refused


class Evictions:
    """The `Evictor` of sessions. Owner of the evictions in progress.

    Also owns the victims whose deletion the watch has not delivered yet.
    """

    def __init__(
        self, cluster: Cluster, evict: EvictCall, observer: BatchReports, *, try_again: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._evict = evict
        self._observer = observer
        self._try_again = try_again
        self._background = Background()
        self._leaving: set[str] = set()

    def evict(self, task: TaskInfo, reason: str) -> bool:
        pod = self._cluster.pods.get(task.uid)
        if pod is None or pod.deleting:
            return False
        if pod.uid not in self._leaving:
            self._leaving.add(pod.uid)
            self._background.start(partial(self._one, pod, reason), lambda: None)
        return True

    def is_leaving(self, uid: str) -> bool:
        return uid in self._leaving

    async def run(self) -> None:
        """Send evictions until cancelled; those that are not sent by then are dropped."""
        try:
            await self._background.run()
        finally:
            self._leaving.clear()

    async def _one(self, pod: PodInfo, reason: str) -> None:
        evicted, failure = await self._evict(pod, message=reason, wanted=lambda: pod.uid in self._cluster.pods)
        if evicted is Evicted.FAILED:
            self._observer.eviction_failed(pod.key, str(failure))
            self._leaving.discard(pod.uid)
            self._try_again()

    def see(self) -> None:
        """Forget the victims that the watch has delivered as terminating or deleted."""
        pods = self._cluster.pods
        self._leaving = {uid for uid in self._leaving if uid in pods and not pods[uid].deleting}
