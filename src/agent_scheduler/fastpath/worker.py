"""A worker takes a popped pod, looks at a snapshot, and names candidate nodes; a pool gives each worker its turn.

Workers share one process and one thread, so they do not add CPU. A worker hands its candidates to the binder and does
not wait for the bind; by the time the binder gets to them, another worker may have decided on the same node, which is
what the binder's check is for.

A cycle is synchronous, so the snapshot cannot change under it, and for the same reason one snapshot, brought up to
date at the start of each cycle, serves all workers: a row that changed is copied and asked about once, not once a
worker. What takes long, searches for devices, is done a portion at a time: the pod is then decided on by several
cycles. Whatever a cycle raises is that pod's failure: the pod backs off as after an error, and the worker goes on.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple, Protocol

import msgspec

from agent_scheduler.binding.binder import Binder
from agent_scheduler.binding.failure import FailureHandler
from agent_scheduler.binding.preemption import Attempt, Preemption
from agent_scheduler.binding.result import Owner, ScheduleResult
from agent_scheduler.cluster.cluster import Cluster, Entry
from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.engine.decide.decide import CandidateNodes, ClassViews, decide
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.dra.catalogue import PORTION, SearchBudget
from agent_scheduler.engine.framework.plugin import PodUnrankable
from agent_scheduler.engine.preemption.evaluator import NO_CLAIMS
from agent_scheduler.engine.preemption.nominated import NO_NOMINATED, NominatedPods
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import Verdict
from agent_scheduler.kube.retry import Timing

from .shard import Shard

#: By profile, what is asked one after the other until one has a node; what the last says is told of a pod.
Views = tuple[Mapping[str, ClassViews], ...]


#: Seconds for which a pod that has a node already waits until it is known of all nodes whether they would do.
_WITH_A_NODE: Final = 1.0


class Decided(msgspec.Struct, frozen=True):
    view: ClassView
    decision: CandidateNodes | Refusal | Attempt
    #: Whether searches were given up, so that nodes were refused that might do.
    is_partial: bool = False


class GoesOn(Protocol):
    """A decision that another cycle has to go on with."""

    def go_on(self) -> GoesOn | None: ...


class Unfinished(NamedTuple):
    """One on a pod."""

    worker: Worker
    entry: Entry
    began: float

    def go_on(self) -> GoesOn | None:
        return self.worker.cycle(self.entry, began=self.began)


#: As `Worker._decide`.
Decide = Callable[[PodInfo, float, PodClass], Decided | None]


class Gangs(Protocol):
    """Decides on pods that are placed with others or not at all; see `gangs.GangCycle`."""

    def concerns(self, pod: PodInfo) -> bool: ...
    def lacks(self, pod: PodInfo) -> Verdict | None:
        """What its gang lacks that no node, nor room in a queue, would help."""

    def run(
        self, worker: int, decide: Decide, entry: Entry, pod: PodInfo, *, started: float
    ) -> GoesOn | None: ...


class WorkerObserver(Protocol):
    """Is told what a worker did. Durations in seconds."""

    def decided(self, worker: int, profile: str, seconds: float) -> None:
        """A cycle named at least one candidate, or refused the pod."""

    def cycle_failed(self, worker: int, pod: PodInfo, error: Exception) -> None:
        """A cycle raised. The pod is in backoff."""


class Worker:
    """One of N. Owns nothing: `views`, one a profile, are those of `snapshot`, and both are the workers' in common."""

    def __init__(
        self,
        index: int,
        *,
        workers: int,
        cluster: Cluster,
        snapshot: Snapshot,
        views: Views,
        binder: Binder,
        failures: FailureHandler,
        candidates: int,
        timing: Timing,
        observer: WorkerObserver,
        preemption: Preemption | None = None,
        shard: Shard | None = None,
        gangs: Gangs | None = None,
    ) -> None:
        """Without `preemption` nobody is evicted, and nobody's nomination is looked at. Without `shard` all nodes are
        this scheduler's. Without `gangs` each pod is decided on alone."""
        self._index = index
        self._workers = workers
        self._cluster = cluster
        self._binder = binder
        self._failures = failures
        self._owner = Owner(cluster.queue, failures)
        self._candidates = candidates
        self._clock = timing.clock
        self._now = timing.now
        self._observer = observer
        self._preemption = preemption
        self._shard = shard
        self._gangs = gangs
        self._snapshot = snapshot
        self._views = views

    @property
    def views(self) -> Iterator[ClassViews]:
        """All that answers are kept in."""
        return (each for choice in self._views for each in choice.values())

    def reconfigure(self, *, views: Views, candidates: int) -> None:
        """From the next cycle on decide by these."""
        self._views = views
        self._candidates = candidates

    def cycle(self, entry: Entry, *, began: float | None = None) -> GoesOn | None:
        """Decide on one popped pod. What a plugin raises is reported, and the pod backs off.

        What it returns is still to be decided, by another cycle with the same `entry` and `began`.
        """
        pod = self._cluster.pods.get(entry.uid)
        if pod is None or not self._cluster.is_ours(pod) or entry.uid in self._cluster.ledger.placements:
            self._cluster.queue.done(entry.uid)
            return None
        cycle_began = self._clock()
        started = cycle_began if began is None else began
        if pod.cls.error:
            self._failures.unreadable(entry, pod, started=started)
            return None
        if self._shard is not None and (why := self._shard.unready):
            self._failures.without_shard(
                entry, pod, why, nodes=len(self._cluster.ledger.rows), started=started
            )
            return None
        usage = self._cluster.ledger.usage
        if usage.active and (short := usage.full(pod)) is not None:
            lacks = self._gangs.lacks(pod) if self._gangs is not None and pod.batch is not None else None
            if lacks is None:
                self._failures.queue_full(entry, pod, short, started=started)
            else:
                self._failures.lacks_others(entry, pod, lacks, started=started)
            return None
        if pod.batch is not None and self._gangs is not None and self._gangs.concerns(pod):
            return self._gangs.run(self._index, self._decide, entry, pod, started=started)
        try:
            decided = self._decide(pod, cycle_began - started)
        except PodUnrankable as why:
            self._failures.error(entry, pod, str(why), started=started)
            return None
        except Exception as error:
            self._observer.cycle_failed(self._index, pod, error)
            self._failures.error(entry, pod, f"{type(error).__name__}: {error}", started=started)
            return None
        self._observer.decided(self._index, pod.scheduler_name, self._clock() - cycle_began)
        if decided is None:
            return Unfinished(self, entry, started)
        self._carry_out(entry, pod, decided, started)
        return None

    def _carry_out(self, entry: Entry, pod: PodInfo, decided: Decided, started: float) -> None:
        view, decision = decided.view, decided.decision
        if isinstance(decision, Refusal):
            self._failures.unschedulable(entry, pod, decision, started=started, again=decided.is_partial)
        elif isinstance(decision, Attempt):
            self._refuse(entry, pod, decision, started)
        else:
            version = self._cluster.catalogue.version
            self._binder.submit(
                ScheduleResult(
                    entry, pod, view.pod, decision, view.filters, started, self._owner, version, view.reserves
                )
            )

    def _refuse(self, entry: Entry, pod: PodInfo, attempt: Attempt, started: float) -> None:
        candidate, preemption = attempt.candidate, self._preemption
        if candidate is not None and preemption is not None:
            preemption.gate(pod)
        waits = self._failures.unschedulable(
            entry, pod, attempt.refusal, started=started, nominated=attempt.nominated
        )
        if candidate is not None and preemption is not None:
            preemption.start(pod, candidate, waits=waits)

    def _decide(self, pod: PodInfo, spent: float, cls: PodClass | None = None) -> Decided | None:
        """None: searches for devices have to be gone on with, after the `spent` seconds that the attempt has taken.
        `cls`: the class to decide in, on the snapshot as it stands."""
        devices = self._cluster.devices
        asks_devices = bool(pod.claims or pod.cls.extended)
        if asks_devices:
            # Of nodes that others than cycles have asked about.
            devices.again()
            # By which devices may be late to become ready.
            devices.now = self._now().timestamp()
        snapshot = self._snapshot
        if cls is None:
            snapshot.refresh()
            cls = snapshot.handle.class_of(pod)
        columns = snapshot.columns
        preemption = self._preemption
        nominated = self._cluster.queue.nominator.nominated
        against = NO_NOMINATED
        if preemption is not None and nominated:
            against = preemption.nominations.against(pod)
        node_name = nominated.get(pod.uid, "")
        for views in self._views:
            view = views[pod.scheduler_name].of(cls)
            taken: Sequence[int] = ()
            if against and preemption is not None:
                taken = preemption.nominations.taken(pod, view, columns, against)
            decision = decide(
                view,
                columns,
                candidates=self._candidates,
                offset=self._index * columns.size // self._workers,
                nominated=self._cluster.ledger.rows.get(node_name) if node_name else None,
                taken=taken,
            )
            if not isinstance(decision, Refusal):
                break
        is_partial = asks_devices and devices.again()
        placed = not isinstance(decision, Refusal)
        if is_partial and spent < self._patience(pod, placed=placed):
            return None
        if placed or is_partial:
            return Decided(view, decision, is_partial)
        if preemption is not None:
            claims = view.pod.claims
            said = NO_CLAIMS if claims is None else preemption.deallocate(pod, claims)
            return Decided(view, self._preempt(preemption, pod, view, against, said))
        return Decided(view, decision)

    def _patience(self, pod: PodInfo, *, placed: bool) -> float:
        """Seconds for which searches for devices are gone on with, if there is a node already and if not."""
        longest = self._cluster.devices.filter_timeout(pod.scheduler_name) or inf
        return min(longest, _WITH_A_NODE) if placed else longest

    def _preempt(
        self,
        preemption: Preemption,
        pod: PodInfo,
        last: ClassView,
        against: Mapping[int, NominatedPods],
        claims: str,
    ) -> Attempt:
        """Others are evicted where the pod would rather go; `last` is the view of all nodes that it may go to."""
        for views in self._views[:-1]:
            attempt = preemption.attempt(pod, views[pod.scheduler_name].of(last.pod), against, claims=claims)
            if attempt.candidate is not None:
                return attempt._replace(refusal=last.refusal(self._snapshot.columns))
        return preemption.attempt(pod, last, against, claims=claims)


#: Pods that are decided on in one turn of the event loop, unless one round has more; and seconds after which no further
#: round is begun.
_PODS: Final = 16
_SECONDS: Final = 0.002


class Feed:
    """Hands pods to the one who waits for them. `wake` is the queue's `on_ready`.

    A pod is never lost between a wake-up and a cancelled waiter: until somebody pops it, it stays in the queue.
    """

    def __init__(self) -> None:
        self._queue: SchedulingQueue[PodInfo] | None = None
        #: Set while somebody waits.
        self._waiter: asyncio.Future[None] | None = None

    def attach(self, queue: SchedulingQueue[PodInfo]) -> None:
        self._queue = queue

    def wake(self) -> None:
        """Something may be poppable now, or the queue was closed."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def next(self, room: Callable[[], bool]) -> Entry | None:
        """The next pod, if there is one and `room` is true."""
        assert self._queue is not None, "attached before the first worker starts"
        return self._queue.pop() if self._queue.has_ready and room() else None

    async def pop(self, room: Callable[[], bool]) -> Entry | None:
        """The next pod, as soon as there is one and `room` is true; None once the queue is closed."""
        queue = self._queue
        assert queue is not None, "attached before the first worker starts"
        while not queue.closed:
            entry = self.next(room)
            if entry is not None:
                return entry
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return None


class WorkerPool:
    """The workers of one binder, which take pods from one feed.

    In a round each of them decides on one pod, all on the cluster as it is before the round; then the binder settles
    what races there were between them. That is where conflicts come from in one process, apart from what watches bring
    while a result waits. One worker alone never races. Decisions that take more than one cycle are gone on with one at
    a time, one cycle between two turns.

    Several rounds make a turn of the event loop, and binds are sent when it ends: to go through the loop for each pod
    costs as much as a quarter of all that is done for a plain one (docs/decisions/0014). To place all that wait would
    let watches, answers and pods of higher priority wait for too long.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        feed: Feed,
        binder: Binder,
        clock: Callable[[], float],
        search: SearchBudget | None = None,
    ) -> None:
        """`search`: what decisions may cost in one turn, theirs anew in each; None: nobody counts."""
        self._search = search or SearchBudget()
        #: Whose turn it is. Pods that come one at a time go to one after the other.
        self._workers = itertools.cycle(workers)
        self._in_a_round = len(workers)
        self._rounds = max(1, _PODS // len(workers))
        self._feed = feed
        self._binder = binder
        self._clock = clock
        #: Pods that are in flight, in the order in which they are gone on with.
        self._unfinished: deque[GoesOn] = deque()

    async def run(self) -> None:
        """Until the queue is closed, or cancelled."""
        has_room = self._binder.has_room
        while True:
            goes_on = bool(self._unfinished) and has_room()
            entry = self._feed.next(has_room) if goes_on else await self._feed.pop(has_room)
            more = goes_on
            if entry is not None:
                self._search.left = PORTION
                more = self._turn(entry) or goes_on
            elif not goes_on:
                return
            if goes_on:
                self._search.left = PORTION
                if (unfinished := self._unfinished.popleft().go_on()) is not None:
                    self._unfinished.append(unfinished)
                self._binder.judge()
            self._binder.send()
            if more or self._unfinished:
                # Otherwise it is the wait for a pod that gives others their turn.
                await asyncio.sleep(0)

    def _turn(self, first: Entry) -> bool:
        """Whether it ended though there may be more pods."""
        ends = self._clock() + _SECONDS
        entry: Entry | None = first
        for _ in range(self._rounds):
            if not self._round(entry):
                return False
            if self._clock() >= ends:
                return True
            entry = None
        return True

    def _round(self, entry: Entry | None) -> bool:
        """Whether there was a pod for each worker; `entry` is the first's, where it has been popped already."""
        for place in range(self._in_a_round):
            entry = entry or self._feed.next(self._binder.has_room)
            if entry is None:
                if place:
                    self._binder.judge()
                return False
            if (unfinished := next(self._workers).cycle(entry)) is not None:
                self._unfinished.append(unfinished)
            entry = None
        self._binder.judge()
        return True
