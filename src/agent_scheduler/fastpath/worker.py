"""A worker takes a popped pod, evaluates a snapshot, and names candidate nodes; a pool runs the workers in turn.

Workers share one process and one thread, so they do not add CPU. A worker submits its candidates to the binder and
does not wait for the bind. Until the binder handles them, another worker may have selected the same node, which is
why the binder checks them.

A cycle is synchronous, so the snapshot cannot change during it. Therefore one snapshot, updated at the start of each
cycle, serves all workers: a changed row is copied and evaluated once, not once per worker. Slow searches for devices
are done in portions: several cycles then decide on the pod. An exception of a cycle concerns only its pod, which
backs off as after an error, and the worker continues.
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
from agent_scheduler.binding.preemption import PreemptionResult
from agent_scheduler.binding.result import AttemptOwner, ScheduleResult
from agent_scheduler.binding.runtime import Runtime
from agent_scheduler.cluster.cluster import Entry
from agent_scheduler.cluster.state import SharedState
from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.engine.decide.decide import CandidateNodes, ClassViews, decide
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.dra.catalogue import PORTION, SearchBudget
from agent_scheduler.engine.framework.plugin import PodUnrankable
from agent_scheduler.engine.preemption.evaluator import NO_CLAIMS
from agent_scheduler.engine.preemption.nominated import NO_NOMINATED, NominatedPods
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import Verdict
from agent_scheduler.telemetry.handling import subject_of

from .handlers import DecisionHandlers
from .shard import SchedulerShard

#: Views by profile; consulted one after the other until one has a node. The last one's result is reported.
Views = tuple[Mapping[str, ClassViews], ...]


#: Seconds that a pod with a suitable node waits for the results of the other nodes.
_WITH_A_NODE: Final = 1.0


class WorkerDecision(msgspec.Struct, frozen=True):
    view: ClassView
    decision: CandidateNodes | Refusal | PreemptionResult
    #: Whether searches were given up, so that suitable nodes may have been rejected.
    is_partial: bool = False


class Continuation(Protocol):
    """A decision that another cycle must continue."""

    def go_on(self) -> Continuation | None: ...


class Unfinished(NamedTuple):
    """An unfinished decision on a pod."""

    worker: Worker
    entry: Entry
    began: float

    def go_on(self) -> Continuation | None:
        return self.worker.cycle(self.entry, began=self.began)


#: As `Worker._decide`.
Decide = Callable[[PodInfo, float, PodClass], WorkerDecision | None]


class DecisionRules(NamedTuple):
    """The part of the configuration by which workers decide."""

    views: Views
    #: The limit of candidate nodes of a decision.
    candidates: int
    #: The number of workers. Each begins its search at another node.
    workers: int


class Gangs(Protocol):
    """Decides on pods that are placed together or not at all; see `gangs.GangCycle`."""

    def concerns(self, pod: PodInfo) -> bool: ...
    def lacks(self, pod: PodInfo) -> Verdict | None:
        """Return what its gang lacks besides nodes and room in a queue."""

    def run(
        self, worker: int, decide: Decide, entry: Entry, pod: PodInfo, *, started: float
    ) -> Continuation | None: ...


class Worker:
    """One of N workers. It owns nothing: `views`, one per profile, belong to `snapshot`, and the workers share both."""

    def __init__(
        self,
        index: int,
        rules: DecisionRules,
        runtime: Runtime,
        state: SharedState,
        *,
        handlers: DecisionHandlers,
        gangs: Gangs,
        shard: SchedulerShard | None,
    ) -> None:
        """Create the worker with this index, from 0 on. If `shard` is None, all nodes may be used."""
        self._index = index
        self._name = f"worker {index}"
        self._cluster = state.cluster
        self._binder = handlers.binder
        self._failures = handlers.failures
        self._preemption = handlers.preemption
        self._owner = AttemptOwner(state.cluster.queue, handlers.failures)
        self._clock = runtime.timing.clock
        self._now = runtime.timing.now
        self._observer = runtime.observer
        self._handling = runtime.observer.handling
        self._shard = shard
        self._gangs = gangs
        self._snapshot = state.snapshot
        self._nominations = state.nominations
        self._views, self._candidates, self._workers = rules

    @property
    def views(self) -> Iterator[ClassViews]:
        """All views with cached results."""
        return (each for choice in self._views for each in choice.values())

    def reconfigure(self, rules: DecisionRules) -> None:
        """Use these from the next cycle on."""
        self._views, self._candidates, self._workers = rules

    def cycle(self, entry: Entry, *, began: float | None = None) -> Continuation | None:
        """Decide on one popped pod. Exceptions of plugins are reported, and the pod backs off.

        A result must be continued by another cycle with the same `entry` and `began`.
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
        try:
            return self._attempt(entry, pod, cycle_began, started)
        except Exception as error:
            self._observer.cycle_failed(self._index, pod, error)
            self._failures.broken(entry, pod, f"{type(error).__name__}: {error}", started=started)
            return None

    def _attempt(self, entry: Entry, pod: PodInfo, cycle_began: float, started: float) -> Continuation | None:
        handling = self._handling
        handling.mark(*("decision", "Pod", pod.namespace, pod.name, pod.uid, pod.resource_version), pod.generation)
        if handling.aside.any and (why := handling.why_not(subject_of("decision", "Pod", pod), _looks(pod))):
            self._failures.set_aside(entry, pod, why, started=started)
            return None
        if self._shard is not None and (why := self._shard.unready):
            self._failures.without_shard(entry, pod, why, nodes=len(self._cluster.ledger.rows), started=started)
            return None
        usage = self._cluster.ledger.usage
        if usage.room.active and (short := usage.full(pod)) is not None:
            lacks = self._gangs.lacks(pod) if pod.batch is not None else None
            if lacks is None:
                self._failures.queue_full(entry, pod, short, started=started)
            else:
                self._failures.lacks_others(entry, pod, lacks, started=started)
            return None
        if pod.batch is not None and self._gangs.concerns(pod):
            return self._gangs.run(self._index, self._decide, entry, pod, started=started)
        try:
            decided = self._decide(pod, cycle_began - started)
        except PodUnrankable as why:
            self._failures.error(entry, pod, str(why), started=started)
            return None
        self._observer.decided(self._index, pod.scheduler_name, self._clock() - cycle_began)
        if decided is None:
            return Unfinished(self, entry, started)
        self._carry_out(entry, pod, decided, started)
        return None

    def _carry_out(self, entry: Entry, pod: PodInfo, decided: WorkerDecision, started: float) -> None:
        view, decision = decided.view, decided.decision
        if isinstance(decision, Refusal):
            self._failures.unschedulable(entry, pod, decision, started=started, again=decided.is_partial)
        elif isinstance(decision, PreemptionResult):
            self._refuse(entry, pod, decision, started)
        else:
            version, owner, name = self._cluster.catalogue.version, self._owner, self._name
            self._binder.submit(
                ScheduleResult(
                    entry, pod, view.pod, decision, view.filters, started, owner, version, view.reserves, False, name
                )
            )

    def _refuse(self, entry: Entry, pod: PodInfo, attempt: PreemptionResult, started: float) -> None:
        candidate = attempt.candidate
        if candidate is not None:
            self._preemption.gate(pod)
        waits = self._failures.unschedulable(entry, pod, attempt.refusal, started=started, nominated=attempt.nominated)
        if candidate is not None:
            self._preemption.start(pod, candidate, waits=waits)

    def _decide(self, pod: PodInfo, spent: float, cls: PodClass | None = None) -> WorkerDecision | None:
        """Decide on a pod; None if searches for devices must continue.

        `spent` is the duration of the attempt in seconds. With `cls`, decide in that class on the snapshot as it is.
        """
        devices = self._cluster.devices
        asks_devices = bool(pod.claims or pod.cls.extended)
        if asks_devices:
            # For nodes that were evaluated outside of cycles.
            devices.again()
            # The time that decides which devices are late.
            devices.now = self._now().timestamp()
        snapshot = self._snapshot
        if cls is None:
            snapshot.refresh()
            cls = snapshot.handle.class_of(pod)
        columns = snapshot.columns
        nominated = self._cluster.queue.nominator.nominated
        against = self._nominations.against(pod) if nominated else NO_NOMINATED
        node_name = nominated.get(pod.uid, "")
        for views in self._views:
            view = views[pod.scheduler_name].of(cls)
            taken: Sequence[int] = ()
            if against:
                taken = self._nominations.taken(pod, view, columns, against)
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
            return WorkerDecision(view, decision, is_partial)
        claims = view.pod.claims
        said = NO_CLAIMS if claims is None else self._preemption.deallocate(pod, claims)
        return WorkerDecision(view, self._preempt(pod, view, against, said))

    def _patience(self, pod: PodInfo, *, placed: bool) -> float:
        """Return how long searches for devices may continue, with and without a suitable node, in seconds."""
        longest = self._cluster.devices.filter_timeout(pod.scheduler_name) or inf
        return min(longest, _WITH_A_NODE) if placed else longest

    def _preempt(
        self, pod: PodInfo, last: ClassView, against: Mapping[int, NominatedPods], claims: str
    ) -> PreemptionResult:
        """Select victims on preferred nodes first; `last` is the view of all allowed nodes."""
        for views in self._views[:-1]:
            attempt = self._preemption.attempt(pod, views[pod.scheduler_name].of(last.pod), against, claims=claims)
            if attempt.candidate is not None:
                return attempt._replace(refusal=last.refusal(self._snapshot.columns))
        return self._preemption.attempt(pod, last, against, claims=claims)


def _looks(pod: PodInfo) -> object:
    """Return what a decision on the pod depends on, besides the cluster."""
    return pod.cls, pod.labels, pod.gates, pod.batch, pod.claims, pod.priority


#: The limit of pods decided in one turn of the event loop, unless one round has more; and the seconds after which no
#: other round starts.
_PODS: Final = 16
_SECONDS: Final = 0.002


class Feed:
    """Hands pods of a queue to the waiting pool. `wake` is the queue's signal `ready`.

    A pod is never lost between a wake-up and a cancelled waiter, because it stays in the queue until it is popped.
    """

    def __init__(self) -> None:
        #: Set while the pool waits.
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Wake the pool, because a pod or room for its result may be available, or the queue was closed."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def next(self, queue: SchedulingQueue, room: Callable[[], bool]) -> Entry | None:
        """Return the next pod, if there is one and `room` returns true."""
        return queue.pop() if queue.has_ready and room() else None

    async def pop(self, queue: SchedulingQueue, room: Callable[[], bool]) -> Entry | None:
        """Return the next pod once there is one and `room` returns true; None once the queue is closed."""
        while not queue.closed:
            entry = self.next(queue, room)
            if entry is not None:
                return entry
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return None


class WorkerPool:
    """The workers of one binder, which take pods from one queue.

    In a round each worker decides on one pod, all with the state of the cluster before the round; then the binder
    resolves their races. These are the only conflicts within a process, apart from changes by watches while a result
    waits. A single worker never races. Decisions that take several cycles continue one at a time, one cycle between
    two turns.

    Several rounds make a turn of the event loop, and binds are sent at its end: a turn per pod would cost up to a
    quarter of the total cost of a plain pod (docs/decisions/0014). Deciding on all waiting pods at once would delay
    watches, responses and pods of higher priority too much.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        queue: SchedulingQueue,
        feed: Feed,
        binder: Binder,
        clock: Callable[[], float],
        search: SearchBudget,
    ) -> None:
        """`search` is the budget of decisions in one turn, renewed for each."""
        self._search = search
        #: The next worker. Pods that arrive one at a time go to the workers in turn.
        self._workers = itertools.cycle(workers)
        self._in_a_round = len(workers)
        self._rounds = max(1, _PODS // len(workers))
        self._queue = queue
        self._feed = feed
        self._binder = binder
        self._clock = clock
        #: Unfinished decisions, in the order in which they continue.
        self._unfinished: deque[Continuation] = deque()

    async def run(self) -> None:
        """Run until the queue is closed, or until cancelled."""
        queue, has_room = self._queue, self._binder.has_room
        while True:
            goes_on = bool(self._unfinished) and has_room()
            entry = self._feed.next(queue, has_room) if goes_on else await self._feed.pop(queue, has_room)
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
                # Otherwise other tasks run during the wait for a pod.
                await asyncio.sleep(0)

    def _turn(self, first: Entry) -> bool:
        """Run a turn; return whether there may be more pods."""
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
        """Run a round; return whether there was a pod for each worker. `entry` is the first one if already popped."""
        for place in range(self._in_a_round):
            entry = entry or self._feed.next(self._queue, self._binder.has_room)
            if entry is None:
                if place:
                    self._binder.judge()
                return False
            if (unfinished := next(self._workers).cycle(entry)) is not None:
                self._unfinished.append(unfinished)
            entry = None
        self._binder.judge()
        return True
