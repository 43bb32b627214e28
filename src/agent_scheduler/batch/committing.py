"""What a session has carried out: gangs to the binder, evictions to the API server; and what becomes of binds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from agent_scheduler.binding.failure import SCHEDULER_ERROR, Messenger
from agent_scheduler.binding.groups import Admission, Member
from agent_scheduler.binding.preemption import EvictCall
from agent_scheduler.binding.result import Owner, ScheduleResult
from agent_scheduler.cluster.cluster import Cluster, Entry
from agent_scheduler.engine.decide.decide import CandidateNode, CandidateNodes
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.decide.trial import Trial
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.quotas.shortfall import Shortfall
from agent_scheduler.engine.session.close import Result
from agent_scheduler.engine.session.model import Job, Task
from agent_scheduler.engine.session.session import Session, Stage
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import HAS_GATES, by_nodes
from agent_scheduler.kube.eviction import Evicted


class CommitGroup(Protocol):
    """As `Binder.commit_group`."""

    def __call__(self, members: Sequence[Member], minimum: int, admission: Admission) -> Collection[str]: ...


class BatchObserver(Protocol):
    """Is told what the batch scheduler did. Durations in seconds."""

    def malformed(self, kind: str, key: str, problem: str) -> None: ...

    def attempted(
        self, pod: PodInfo, result: str, started: float, plugins: Collection[str], message: str
    ) -> None:
        """An attempt that began at clock `started` ended: `unschedulable`, by `plugins`, or `error`."""

    def bind_failed(self, pod: PodInfo, node_name: str, problem: str) -> None: ...
    def eviction_failed(self, victim: str, problem: str) -> None: ...
    def status_write(self, what: str) -> None: ...
    def event_write(self, what: str) -> None: ...

    def sliced(self, seconds: float) -> None:
        """A session kept the loop for so long."""

    def session_broken(self, result: str) -> None:
        """A session did not come to its end: `given_up`, as the process stops, or `failed`."""

    def session_ended(
        self, session: Session, result: Result, *, seconds: float, spent: Mapping[Stage, float]
    ) -> None:
        """After so many seconds, of which those of each stage are `spent`; the rest had others."""


class Outcomes:
    """What becomes of members that were sent to be bound: both halves of a result's `Owner`."""

    def __init__(
        self, messenger: Messenger, observer: BatchObserver, *, try_again: Callable[[], None]
    ) -> None:
        """`try_again`: a session is due."""
        self._messenger = messenger
        self._observer = observer
        self._try_again = try_again

    def scheduled(self, entry: Entry) -> None:
        """The watch shows it, and says what else that means."""

    def done(self, uid: str) -> None:
        """The watch has shown that it waits no more."""

    def overcome(self, pod: PodInfo, node_name: str, *, started: float) -> None: ...

    def unschedulable(self, entry: Entry, pod: PodInfo, refusal: Refusal, *, started: float) -> None:
        self._observer.attempted(pod, "unschedulable", started, refusal.plugins, refusal.message)
        verdict = by_nodes(refusal.message, refusal.plugins)
        self._messenger.refused(pod, verdict.reason, verdict.message)
        self._try_again()

    def error(self, entry: Entry, pod: PodInfo, message: str, *, started: float, tell: bool = True) -> None:
        """The others of its group are bound, or on their way. Whether its group is below its minimum now is for the
        next session to say, which fills it up first."""
        self._observer.attempted(pod, "error", started, (), message)
        if tell:
            self._messenger.refused(pod, SCHEDULER_ERROR, message)
        self._try_again()

    def queue_full(self, entry: Entry, pod: PodInfo, short: Shortfall, *, started: float) -> None:
        self._try_again()

    def outraced(self, entry: Entry, pod: PodInfo, *, started: float) -> None:
        self._try_again()

    def outdated(self, entry: Entry) -> None:
        self._try_again()


class GroupCommitter:
    """A session's `Committer`. Holds nothing of its own."""

    def __init__(
        self,
        cluster: Cluster,
        commit: CommitGroup,
        outcomes: Outcomes,
        *,
        messenger: Messenger,
        profile: Profile,
        clock: Callable[[], float],
        try_again: Callable[[], None],
        admission: Admission,
    ) -> None:
        self._cluster = cluster
        self._commit = commit
        self._owner = Owner(outcomes, outcomes)
        self._messenger = messenger
        #: By which members are decided.
        self.profile = profile
        self._clock = clock
        self._try_again = try_again
        self._admission = admission

    def on(self, snapshot: Snapshot, trial: Trial) -> OnTrial:
        """For a session on this trial."""
        return OnTrial(self, snapshot, trial)

    def commit(self, members: Sequence[Member], minimum: int) -> Collection[str]:
        refused = self._commit(members, minimum, self._admission)
        for pod in (member.result.pod for member in members):
            if pod.uid in refused:
                continue
            if pod.stands_by:
                # It has a node now, and an autoscaler need not add one.
                self._messenger.gated(pod, HAS_GATES)
            else:
                # What waits to be said about a refusal must not be said after the bind.
                self._messenger.binding(pod)
        if refused:
            self._try_again()
        return refused

    def member(self, task: Task, snapshot: Snapshot, trial: Trial) -> Member:
        pod, row = task.pod, task.row
        view = trial.view_of(pod)
        candidate = CandidateNode(task.node_name, row, snapshot.columns.version[row])
        now = self._clock()
        result = ScheduleResult(
            Entry(uid=pod.uid, pod=pod, timestamp=now, attempts=1),
            pod,
            view.pod,
            CandidateNodes((candidate,), view.seen),
            # What was reserved for it is taken, so that it would be refused now.
            task.filters if view.rejection is not None else view.filters,
            now,
            self._owner,
            self._cluster.catalogue.version,
            view.reserves,
            True,
        )
        return Member(result, self.profile, trial.reserved(pod))


class OnTrial:
    """What is placed in a trial is sent from there."""

    def __init__(self, committer: GroupCommitter, snapshot: Snapshot, trial: Trial) -> None:
        self._committer = committer
        self._snapshot = snapshot
        self._trial = trial

    def commit(self, job: Job, tasks: Sequence[Task], minimum: int) -> Collection[str]:
        members = [self._committer.member(task, self._snapshot, self._trial) for task in tasks]
        refused = self._committer.commit(members, minimum)
        for task in tasks:
            if task.uid not in refused:
                self._trial.hand_over(task.pod)
        return refused


class Evictions:
    """A session's `Evictor`. Owner of the evictions under way, and of the victims not yet seen to be leaving."""

    def __init__(
        self,
        cluster: Cluster,
        evict: EvictCall,
        observer: BatchObserver,
        *,
        try_again: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._evict = evict
        self._observer = observer
        self._try_again = try_again
        self._jobs: asyncio.Queue[tuple[PodInfo, str]] = asyncio.Queue()
        self._leaving: set[str] = set()

    def evict(self, task: Task, reason: str) -> bool:
        pod = self._cluster.pods.get(task.uid)
        if pod is None or pod.deleting:
            return False
        if pod.uid not in self._leaving:
            self._leaving.add(pod.uid)
            self._jobs.put_nowait((pod, reason))
        return True

    def is_leaving(self, uid: str) -> bool:
        return uid in self._leaving

    async def run(self) -> None:
        """Until cancelled; what is not sent by then is not evicted."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    pod, reason = await self._jobs.get()
                    tasks.create_task(self._one(pod, reason))
        finally:
            while not self._jobs.empty():
                self._jobs.get_nowait()
            self._leaving.clear()

    async def _one(self, pod: PodInfo, reason: str) -> None:
        evicted, failure = await self._evict(
            pod, message=reason, wanted=lambda: pod.uid in self._cluster.pods
        )
        if evicted is Evicted.FAILED:
            self._observer.eviction_failed(pod.key, str(failure))
            self._leaving.discard(pod.uid)
            self._try_again()

    def see(self) -> None:
        """Forget those of which the watch shows that they leave, or are gone."""
        pods = self._cluster.pods
        self._leaving = {uid for uid in self._leaving if uid in pods and not pods[uid].deleting}
