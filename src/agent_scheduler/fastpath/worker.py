"""A worker: take a popped pod, look at a snapshot, name candidate nodes.

Workers share one process and one thread, so they do not add CPU. A worker hands its candidates to the binder and does
not wait for the bind; by the time the binder gets to them, another worker may have decided on the same node, which is
what the binder's check is for. When each has its turn is the matter of `worker_pool`.

A cycle is synchronous, so the snapshot cannot change under it, and for the same reason one snapshot, brought up to
date at the start of each cycle, serves all workers: a row that changed is copied and asked about once, not once a
worker. Whatever a cycle raises is that pod's failure: the pod backs off as after an error, and the worker goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from agent_scheduler.engine.classview import ClassView
from agent_scheduler.engine.compiled import first_refusing
from agent_scheduler.engine.decide import Candidate, ClassViews, Placement, decide
from agent_scheduler.engine.dra.demand import Demand
from agent_scheduler.engine.framework import PodUnrankable
from agent_scheduler.engine.podinfo import PodInfo
from agent_scheduler.engine.preemption.message import NO_CLAIMS
from agent_scheduler.engine.preemption.nominated import NO_RIVALS, Rivals
from agent_scheduler.engine.refusals import Refusal
from agent_scheduler.engine.snapshot import Snapshot

from .binder import Binder, ScheduleResult
from .cluster import Cluster
from .failure import FailureHandler
from .feed import Entry
from .lending import Lending
from .preemption import Attempt, Preemption
from .shard import Shard

#: By profile, what is asked one after the other until one has a node; what the last says is told of a pod.
Views = tuple[Mapping[str, ClassViews], ...]


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
        clock: Callable[[], float],
        observer: WorkerObserver,
        preemption: Preemption | None = None,
        deallocate: Callable[[PodInfo, Demand], str] | None = None,
        shard: Shard | None = None,
        lending: Lending | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        """Without `preemption` nobody is evicted, and nobody's nomination is looked at. `deallocate` is told of pods
        with resource claims that no node will do for, and says what is to be told of that. Without
        `shard` all nodes are this scheduler's, and without `lending` all of these are this process's. `now` tells the
        time by which devices may be late to become ready; without it they never are."""
        self._index = index
        self._workers = workers
        self._cluster = cluster
        self._binder = binder
        self._failures = failures
        self._candidates = candidates
        self._clock = clock
        self._observer = observer
        self._preemption = preemption
        self._deallocate = deallocate
        self._shard = shard
        self._lending = lending
        self._now = now
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

    def cycle(self, entry: Entry) -> None:
        """Decide on one popped pod. What a plugin raises is reported, and the pod backs off."""
        pod = self._cluster.pods.get(entry.uid)
        if pod is None or not self._cluster.waits(entry.uid) or entry.uid in self._cluster.ledger.placements:
            self._cluster.queue.done(entry.uid)
            return
        started = self._clock()
        if pod.cls.error:
            self._failures.unreadable(entry, pod, started=started)
            return
        if self._shard is not None and (why := self._shard.unready):
            self._failures.without_shard(
                entry, pod, why, nodes=len(self._cluster.ledger.rows), started=started
            )
            return
        try:
            view, decision = self._decide(pod)
        except PodUnrankable as why:
            self._failures.error(entry, pod, str(why), started=started)
            return
        except Exception as error:
            self._observer.cycle_failed(self._index, pod, error)
            self._failures.error(entry, pod, f"{type(error).__name__}: {error}", started=started)
            return
        self._observer.decided(self._index, pod.scheduler_name, self._clock() - started)
        if isinstance(decision, Refusal):
            self._failures.unschedulable(entry, pod, decision, started=started)
        elif isinstance(decision, Attempt):
            self._refuse(entry, pod, decision, started)
        else:
            ours = decision if self._lending is None else self._lending.ours(decision)
            if ours is None and self._lending is not None:
                self._lending.lend(entry, pod, decision.candidates[0], started=started)
            elif ours is not None:
                self._binder.submit(self._result(entry, pod, view, ours, started))

    def _result(
        self, entry: Entry, pod: PodInfo, view: ClassView, placement: Placement, started: float
    ) -> ScheduleResult:
        version = self._cluster.catalogue.version
        return ScheduleResult(entry, pod, view.pod, placement, view.filters, started, version)

    def on(self, pod: PodInfo, node_name: str) -> ScheduleResult | None:
        """A decision on a pod that is in no queue here, for one node; None where it does not fit."""
        started = self._clock()
        self._snapshot.refresh()
        columns = self._snapshot.columns
        row = self._cluster.ledger.rows.get(node_name)
        view = self._views[-1][pod.scheduler_name].of(self._snapshot.handle.class_of(pod))
        if row is None or pod.cls.error or first_refusing(view.filters, columns, row) is not None:
            return None
        placement = Placement((Candidate(node_name, row, columns.version[row]),), view.seen)
        entry = Entry(uid=pod.uid, pod=pod, timestamp=started)
        return self._result(entry, pod, view, placement, started)

    def _refuse(self, entry: Entry, pod: PodInfo, attempt: Attempt, started: float) -> None:
        candidate, preemption = attempt.candidate, self._preemption
        if candidate is not None and preemption is not None:
            preemption.shut(pod)
        waits = self._failures.unschedulable(
            entry, pod, attempt.refusal, started=started, nominated=attempt.nominated
        )
        if candidate is not None and preemption is not None:
            preemption.start(pod, candidate, waits=waits)

    def _decide(self, pod: PodInfo) -> tuple[ClassView, Placement | Refusal | Attempt]:
        self._snapshot.refresh()
        columns = self._snapshot.columns
        if pod.claims and self._now is not None:
            self._cluster.devices.now = self._now().timestamp()
        cls = self._snapshot.handle.class_of(pod)
        preemption = self._preemption
        against = NO_RIVALS if preemption is None else preemption.nominations.against(pod)
        node_name = self._cluster.queue.nominator.node_of(pod.uid)
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
                return view, decision
        if preemption is not None:
            claims = view.pod.claims
            said = self._deallocate(pod, claims) if claims is not None and self._deallocate else NO_CLAIMS
            return view, self._preempt(preemption, pod, view, against, said)
        return view, decision

    def _preempt(
        self,
        preemption: Preemption,
        pod: PodInfo,
        last: ClassView,
        against: Mapping[int, Rivals],
        claims: str,
    ) -> Attempt:
        """Others are evicted where the pod would rather go; `last` is the view of all nodes that it may go to."""
        for views in self._views[:-1]:
            attempt = preemption.attempt(pod, views[pod.scheduler_name].of(last.pod), against, claims=claims)
            if attempt.candidate is not None:
                return attempt._replace(refusal=last.refusal(self._snapshot.columns))
        return preemption.attempt(pod, last, against, claims=claims)
