"""A small world around one scheduling queue: pods, a clock that tests move, plugins, and what was recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.hints import ClusterEventWithHint, HintMap, QueueingHint
from agent_scheduler.engine.queueing.entry import QueuedPodInfo
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.queueing.queue import QueueSignals, SchedulingQueue
from agent_scheduler.engine.queueing.views import PodView, page
from tests.support.queues import scheduling_queue

PROFILE = "agent-scheduler"

QUEUE, SKIP = QueueingHint.QUEUE, QueueingHint.SKIP


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    name: str
    uid: str
    namespace: str = "ns"
    priority: int = 0
    resource_version: str = ""
    scheduler_name: str = PROFILE
    nominated_node_name: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    gates: tuple[str, ...] = ()
    requests: dict[str, int] = field(default_factory=dict)
    tolerations: Any = ()
    claim_statuses: tuple[Any, ...] = ()
    #: Something that scheduling does not look at.
    phase: str = "Pending"
    #: What only the plugins of one test read.
    spec: Any = None


def pod(name: str, **fields: Any) -> Pod:
    return Pod(name=name, uid=fields.pop("uid", f"{name}-uid"), **fields)


class Clock:
    """Seconds that pass only when told to. Starts on a whole window."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def step(self, seconds: float) -> None:
        self.now += seconds


class Recorder:
    """Keeps everything that a queue reports, as the metrics would."""

    def __init__(self) -> None:
        self.incoming_total: Counter[tuple[str, str]] = Counter()
        self.unschedulable_gauge: Counter[tuple[str, str]] = Counter()
        self.hints: list[tuple[str, str, str]] = []
        self.bound: list[tuple[int, float, bool]] = []
        self.urgent: list[bool] = []
        self.raised: list[tuple[str, str, str]] = []
        #: (plugin, event, how many pods were named; None: all)
        self.pre_hints: list[tuple[str, str, int | None]] = []
        self.forgotten = 0

    def incoming(self, queue: str, event: str, entry: Any) -> None:
        self.incoming_total[(str(queue), event)] += 1

    def unschedulable(self, plugin: str, profile: str, delta: int) -> None:
        self.unschedulable_gauge[(plugin, profile)] += delta

    def hint_evaluated(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        assert seconds >= 0
        self.hints.append((plugin, event, hint))

    def pre_hint_evaluated(self, plugin: str, event: str, named: int | None, waiting: int) -> None:
        assert named is None or named <= waiting
        self.pre_hints.append((plugin, event, named))

    def events_forgotten(self, count: int) -> None:
        self.forgotten += count

    def plugin_raised(self, plugin: str, where: str, error: Exception) -> None:
        self.raised.append((plugin, where, str(error)))

    def scheduled(self, attempts: int, sli_seconds: float, after_flush: bool) -> None:
        self.bound.append((attempts, sli_seconds, after_flush))

    def urgent_retry(self, granted: bool) -> None:
        self.urgent.append(granted)

    def waiting_because_of(self, plugin: str) -> int:
        return self.unschedulable_gauge[(plugin, PROFILE)]


class Hint:
    """A hint function that answers the same always, and counts."""

    def __init__(self, answer: QueueingHint | Exception) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def __call__(self, pod: Pod, old: object | None, new: object | None) -> QueueingHint:
        self.asked.append(pod.name)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def on(
    event: ev.ClusterEvent, hint: Callable[..., QueueingHint] | None = None, named: Any = None
) -> ClusterEventWithHint:
    """`named`: the pre-hint."""
    return ClusterEventWithHint(event, hint, named)


class Gate:
    """A PreEnqueue plugin that holds back the pods for which `holds` says so, and counts how often it was asked."""

    activates = False

    def __init__(self, name: str, holds: Callable[[Pod], bool]) -> None:
        self.name = name
        self.holds = holds
        self.asked: list[str] = []

    def pre_enqueue(self, pod: Pod) -> str | None:
        self.asked.append(pod.name)
        return f"held by {self.name}" if self.holds(pod) else None


def own_update(pod: Pod, old: object | None, new: object | None) -> QueueingHint:
    """The hint of a plugin that cares about the waiting pod itself."""
    return QUEUE if isinstance(new, Pod) and new.uid == pod.uid else SKIP


GATES_ELIMINATED = ev.ClusterEvent(ev.Resource.TARGET_POD, ev.ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)


def scheduling_gates() -> tuple[Gate, list[ClusterEventWithHint]]:
    """The SchedulingGates plugin and what it registers."""
    return Gate("SchedulingGates", lambda pod: bool(pod.gates)), [on(GATES_ELIMINATED, own_update)]


def dump(queue: SchedulingQueue, limit: int = 100) -> dict[Place, list[PodView]]:
    """The first `limit` pods of each place."""
    return {place: page(queue, place, limit) for place in Place}


class World:
    """One queue and all that it was given. Its invariants are checked by `check` and whenever a place is asked."""

    def __init__(
        self,
        plugins: dict[str, Iterable[ClusterEventWithHint] | None] | None = None,
        *,
        gates: Sequence[Gate] = (),
        **settings: Any,
    ) -> None:
        self.clock = Clock()
        self.recorder = Recorder()
        self.ready = 0
        self.deadlines = 0
        self.when_ready: Callable[[], None] = lambda: None
        self.not_pending: set[str] = set()
        registered = {"foo": [on(ev.NODE_ADD)]} if plugins is None else plugins
        self.queue: SchedulingQueue = scheduling_queue(
            {PROFILE: HintMap(registered)},
            clock=self.clock,
            pre_enqueue={PROFILE: gates},
            signals=QueueSignals(ready=self._on_ready, deadline_moved=self._on_deadline),
            recorder=self.recorder,
            is_pending=lambda uid: uid not in self.not_pending,
            **settings,
        )

    def _on_ready(self) -> None:
        self.ready += 1
        self.when_ready()

    def _on_deadline(self) -> None:
        self.deadlines += 1

    def pop(self) -> QueuedPodInfo:
        entry = self.queue.pop()
        assert entry is not None, "nothing to pop"
        return entry

    def pop_names(self) -> list[str]:
        """Pop all that can be popped, and be done with them."""
        names = []
        while (entry := self.queue.pop()) is not None:
            names.append(entry.pod.name)
            self.queue.done(entry.uid)
        return names

    def try_pod(self, one: Pod) -> QueuedPodInfo:
        """Add `one` and pop it."""
        self.queue.add(one)
        entry = self.pop()
        assert entry.uid == one.uid, f"{entry.pod.name} was popped in its place"
        return entry

    def refuse(self, one: Pod, *plugins: str, pending: tuple[str, ...] = ()) -> QueuedPodInfo:
        """Add `one`, try it and have `plugins` refuse it."""
        entry = self.try_pod(one)
        self.queue.add_unschedulable(entry, unschedulable_plugins=plugins, pending_plugins=pending)
        return entry

    def put(self, one: Pod, place: str) -> None:
        """Bring `one`, of which the queue has not heard yet, to this place."""
        if place in ("active", "gated"):
            self.queue.add(one)
        elif place == "in_flight":
            self.try_pod(one)
        else:
            self.refuse(one, "foo")
            if place == "backoff":
                self.queue.move_all(ev.NODE_ADD, None, object())
        assert self.where(one) == place

    def where(self, one: Pod) -> str | None:
        self.queue.check_invariants()
        place = self.queue.where(one.uid)
        return None if place is None else str(place)

    def in_flight_timeline(self) -> list[str | ev.ClusterEvent]:
        """The UIDs in flight and the events kept for them, interleaved as they came."""
        flying = self.queue.places.in_flight
        line: list[tuple[int, bool, str | ev.ClusterEvent]] = [(one.position, False, one.entry.uid) for one in flying]
        events = enumerate(flying.events_from(flying.begin), start=flying.begin)
        line += [(position, True, event) for position, (event, _, _) in events]
        return [each for _, _, each in sorted(line, key=lambda each: each[:2])]

    def incoming(self, queue: str, event: str) -> int:
        return self.recorder.incoming_total[(queue, event)]


def gated_world() -> tuple[World, Gate]:
    """A world whose pods wait until they have no scheduling gates, and for nodes if `foo` refuses them."""
    gate, registered = scheduling_gates()
    return World({"foo": [on(ev.NODE_ADD)], gate.name: registered}, gates=[gate]), gate


__all__ = ["replace"]
