"""Runs controllers that reconcile objects, each identified by a key.

    watches ─> a reconciler's state ─> its keys in a queue ─> reconcile ─> writes

All controllers of a process share one set of watches: a kind that several need is watched once. Nothing is queued
before this process leads; then every key is, since the previous leader may have left any of them incomplete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from agent_scheduler.objects.wire import Metadata
from agent_scheduler.telemetry.controllers import ControllersMetrics
from agent_scheduler.telemetry.handling import subject_of
from agent_scheduler.telemetry.set_aside import SECONDS, StepSubject
from agent_scheduler.telemetry.steps import Stepwise
from kube_client.dispatch import Dispatcher
from kube_client.errors import StoreWentBack
from kube_client.informers import Informers, Kind, merged
from kube_client.recorder import ObjectReference
from kube_client.reflector import WatchTimes
from kube_client.retry import REAL, Timing
from kube_client.transport import Transport
from kube_client.watch_events import Change, ChangeType, Object

#: The usual `Reconciler.patience`.
PATIENCE: Final = 30.0


class KeyQueue(Protocol):
    """Queues a key: after a number of seconds, or by default after the reconciler's `settle`."""

    def __call__(self, key: str, seconds: float | None = None, /) -> None: ...


class CreationReceiver(Protocol):
    """Receives the API server's response to a creation, with the name of the kind; see `CollectionView.learn`."""

    def __call__(self, kind: str, made: Object, /) -> bool: ...


class Reconciled(NamedTuple):
    """The object of a key."""

    reference: ObjectReference
    metadata: Metadata


class Reconciler(Protocol):
    """One controller. Its state comes from its watches only, so a restart loses nothing."""

    #: The name for `--enable`.
    name: str
    #: The number of keys that are reconciled concurrently.
    workers: int
    #: Seconds between a change and its reconciliation.
    settle: float
    #: Seconds that the writes of one key may take before it is queued again.
    patience: float
    #: The kinds that it requires.
    needs: tuple[str, ...]

    def kinds(self, put: KeyQueue, learn: CreationReceiver, absent: Set[str], /) -> Iterable[Kind]:
        """Return the kinds to watch; changes call `put` with a key, and created objects are passed to `learn`.

        `absent` has the kinds that the API server does not serve, at all times.
        """

    def all_keys(self) -> Iterable[str]:
        """Return the keys of all objects that the watches have delivered; called when this process begins to lead."""

    def about(self, key: str) -> Reconciled | None:
        """Return the object of a key as observed; None if there is none, or if the key is not of a single object."""

    def reconcile(self, key: str, wanted: Callable[[], bool]) -> Coroutine[Any, Any, bool]:
        """Reconcile the object. Returns whether it is in its desired state, as far as is known; if not, it is retried.

        `wanted` returns whether the next request may still be sent.
        """


@dataclass(slots=True)
class _Running:
    reconciler: Reconciler
    queue: Dispatcher[str, None]


class Reconciling:
    """Runs reconcilers. Owner of their watches and queues.

    Run `watch` at all times, and `lead`, once, while this process may write.
    """

    def __init__(
        self,
        reconcilers: Sequence[Reconciler],
        *,
        transport: Transport,
        metrics: ControllersMetrics,
        timing: Timing = REAL,
    ) -> None:
        self._metrics = metrics
        self._handling = metrics.handling
        self.unreadable = metrics.handling.unreadable
        #: Count changes of watches, by kind and type.
        self._counts: dict[tuple[str, ChangeType], Callable[[], None]] = {}
        #: Kind and UID of the objects whose last change could not be applied.
        self._unapplied: set[tuple[str, str]] = set()
        self._timing = timing
        self._leading = self._stopping = False
        #: The kinds that the server does not serve.
        self._absent: set[str] = set()
        self._needed = {kind for each in reconcilers for kind in each.needs}
        self._running = [self._started(each) for each in reconcilers]
        self._informers = Informers(
            merged(
                kind
                for each in self._running
                for kind in each.reconciler.kinds(self._putting(each), self._learn, self._absent)
            ),
            transport=transport,
            times=WatchTimes(),
            timing=timing,
            observer=self,
        )

    def _started(self, reconciler: Reconciler) -> _Running:
        counts, took = self._metrics.reconciles_total, self._metrics.steps.of("reconcile")

        async def work(key: str, _: None) -> bool:
            found = reconciler.about(key)
            if found is not None and not self._may_handle(found):
                counts.labels(reconciler.name, "set_aside").inc()
                # It is reconciled again when it changes, at the latest then.
                self._putting(running)(key, SECONDS)
                return True
            ends = self._timing.clock() + reconciler.patience
            begins = self._handling.clear if found is None else partial(self._handling.mark_subject, _subject(found))
            try:
                work = reconciler.reconcile(key, lambda: not self._stopping and self._timing.clock() < ends)
                done = await Stepwise(work, took, clock=self._timing.clock, begins=begins, ended=self._handling.clear)
            except StoreWentBack:
                raise
            except Exception as error:
                about = None if found is None else found.reference
                subject = StepSubject("reconcile", reconciler.name, "", key, key, "")
                self._handling.failed(subject if found is None else _subject(found), error, about=about)
                done = False
            counts.labels(reconciler.name, "done" if done else "again").inc()
            return done

        running = _Running(reconciler, Dispatcher(work, concurrency=reconciler.workers, timing=self._timing))
        return running

    def _may_handle(self, found: Reconciled) -> bool:
        if self._unapplied and (found.reference.kind, found.reference.uid) in self._unapplied:
            # Its state lacks that change.
            return False
        if not self._handling.aside.any:
            return True
        metadata = found.metadata
        looks = metadata.generation or metadata.resource_version, metadata.annotations, metadata.labels
        return not self._handling.why_not(_subject(found), looks, about=found.reference)

    def _putting(self, running: _Running) -> KeyQueue:
        def put(key: str, seconds: float | None = None, /) -> None:
            if self._leading:
                settle = running.reconciler.settle
                running.queue.put_later(key, None, settle if seconds is None else seconds)

        return put

    def _learn(self, kind: str, made: Object) -> bool:
        return self._informers.learn(kind, made)

    @property
    def waiting(self) -> dict[str, float]:
        """The number of keys that wait or are reconciled, by the controller's name."""
        return {each.reconciler.name: each.queue.unfinished for each in self._running}

    # ---- watches

    async def watch(self) -> None:
        """Watch the cluster until cancelled."""
        await self._informers.run()

    async def synced(self) -> None:
        """Wait until all objects that existed at the start have been received."""
        await self._informers.synced()

    @property
    def is_synced(self) -> bool:
        return self._informers.is_synced

    @property
    def stale(self) -> list[str]:
        """The kinds whose watch has received nothing from the API server for too long."""
        return self._informers.stale

    @property
    def missing(self) -> list[str]:
        """The required kinds that the API server does not serve."""
        return sorted(self._absent & self._needed)

    def watched(self, kind: str, what: str) -> None:
        if what == "absent":
            self._absent.add(kind)
        elif what == "watch":
            self._absent.discard(kind)
        self._metrics.watched(kind, what)

    def received(self, kind: str, changes: Sequence[Change[Any]], began: float) -> None:
        for change in changes:
            count = self._counts.get((kind, change.type))
            if count is None:
                # Computed once: in Python 3.11 the value of an Enum's member is computed in Python.
                child = self._metrics.watch_events_total.labels(kind, change.type.value)
                count = self._counts[kind, change.type] = child.inc
            count()
        self._handling.clear()

    def applies(self, kind: Kind, item: Object) -> bool:
        if self._unapplied:
            self._unapplied.discard(_place(kind, item))
        return self._handling.applies(kind, item)

    def change_failed(self, kind: Kind, item: Object, error: Exception) -> None:
        # Other objects see an older state of this one, as if its watch were late.
        self._unapplied.add(_place(kind, item))
        self._handling.change_failed(kind, item, error)

    # ---- what is done

    def stop(self) -> None:
        """Make `lead` return after the current writes."""
        self._stopping = True
        for each in self._running:
            each.queue.stop()

    async def lead(self) -> None:
        """Write until `stop` is called, or until cancelled. Requires `synced`."""
        # The previous leader no longer writes, so the next lists have all its writes.
        await self._informers.renew()
        self._leading = True
        try:
            async with asyncio.TaskGroup() as tasks:
                for each in self._running:
                    put = self._putting(each)
                    for key in each.reconciler.all_keys():
                        put(key)
                    tasks.create_task(each.queue.run())
        finally:
            self._leading = False


def _subject(found: Reconciled) -> StepSubject:
    return subject_of("reconcile", found.reference.kind, found.metadata)


def _place(kind: Kind, item: Object) -> tuple[str, str]:
    return kind.name.partition(".")[0], item.metadata.uid
