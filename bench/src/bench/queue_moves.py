"""Measures what the scheduling queue costs: adding and popping pods, and moving those that an event wakes.

Mirrors kube-scheduler's benchmark of moves, with 1000 and 5000 unschedulable pods rejected by 20 plugins. Run it with
`python -m bench.queue_moves`. Every figure is CPU time, the median of several runs in this process; absolute numbers
depend on the machine.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.hints import ClusterEventWithHint, HintMap, QueueingHint
from agent_scheduler.engine.queueing.queue import QueueSignals, SchedulingQueue
from agent_scheduler.engine.queueing.record import NullRecorder
from agent_scheduler.engine.queueing.subqueues import QueueSettings
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, pod_info
from agent_scheduler.objects import wire
from bench.tables import table

PROFILE = "agent-scheduler"
PLUGINS = 20


def _queue(hint: QueueingHint) -> SchedulingQueue:
    """Return a queue with 20 plugins, all registered for nodes, each with a hint that returns `hint`."""

    def hint_fn(pod: PodInfo, old: object | None, new: object | None) -> QueueingHint:
        return hint

    registered = [ClusterEventWithHint(ev.NODE_ADD, hint_fn)]
    plugins = {f"plugin-{index}": registered for index in range(PLUGINS)}
    # Only one of them is registered for assigned pods, as InterPodAffinity is for pods without affinity.
    plugins["plugin-0"] = [*registered, ClusterEventWithHint(ev.ASSIGNED_POD_ADD, hint_fn)]
    return SchedulingQueue(
        clock=time.monotonic,
        hint_maps={PROFILE: HintMap(plugins)},
        pre_enqueue={},
        settings=QueueSettings(),
        signals=QueueSignals(ready=lambda: None, deadline_moved=lambda: None),
        recorder=NullRecorder(),
        is_pending=lambda uid: True,
    )


def _pods(count: int) -> list[PodInfo]:
    classes = PodClasses()
    return [
        pod_info(
            wire.Pod(
                metadata=wire.PodMetadata(namespace="bench", name=f"pod-{index}", uid=f"uid-{index}"),
                spec=wire.PodSpec(scheduler_name=PROFILE, priority=index % 10),
            ),
            classes,
        )
        for index in range(count)
    ]


def _timed(action: Callable[[], object]) -> float:
    """Return the CPU seconds of `action`, which other work on the machine affects least."""
    gc.collect()
    started = time.process_time()
    action()
    return time.process_time() - started


def add_pop_done(count: int) -> float:
    """Return microseconds per pod for add, pop and done, with all pods in the queue at once."""
    queue = _queue(QueueingHint.QUEUE)
    pods = _pods(count)

    def run() -> None:
        for pod in pods:
            queue.add(pod)
        while (entry := queue.pop()) is not None:
            queue.done(entry.uid)

    return _timed(run) / count * 1e6


def steady(count: int, waiting: int) -> float:
    """Return microseconds per pod for add, pop and done if each arrives behind `waiting` others."""
    queue = _queue(QueueingHint.QUEUE)
    pods = _pods(count + waiting)
    for pod in pods[:waiting]:
        queue.add(pod)

    def run() -> None:
        for pod in pods[waiting:]:
            queue.add(pod)
            entry = queue.pop()
            assert entry is not None
            queue.done(entry.uid)

    return _timed(run) / count * 1e6


def fail(count: int) -> float:
    """Return microseconds per pod for pop and add_unschedulable into the pool."""
    queue = _queue(QueueingHint.QUEUE)
    for pod in _pods(count):
        queue.add(pod)

    def run() -> None:
        for index in range(count):
            entry = queue.pop()
            assert entry is not None
            queue.add_unschedulable(entry, unschedulable_plugins=(f"plugin-{index % PLUGINS}",))

    return _timed(run) / count * 1e6


def _refused(count: int, hint: QueueingHint) -> SchedulingQueue:
    """Return a queue with `count` pods in the pool, each rejected by one of the plugins."""
    queue = _queue(hint)
    for pod in _pods(count):
        queue.add(pod)
    for index in range(count):
        entry = queue.pop()
        assert entry is not None
        queue.add_unschedulable(entry, unschedulable_plugins=(f"plugin-{index % PLUGINS}",))
    return queue


def move(count: int, hint: QueueingHint, event: ev.ClusterEvent) -> float:
    """Return milliseconds for one event while `count` pods wait."""
    queue = _refused(count, hint)
    queue.waker.hints.registered(event)  # the first look-up of an event builds its entry in the hint map
    return _timed(lambda: queue.move_all(event, None, object())) * 1e3


def report(runs: int) -> dict[str, float]:
    def med(measure: Callable[[], float]) -> float:
        return round(median(measure() for _ in range(runs)), 3)

    figures = {
        "add+pop+done, 10000 at once [us/pod]": med(lambda: add_pop_done(10_000)),
        "add+pop+done, behind 1000 [us/pod]": med(lambda: steady(20_000, 1000)),
        "pop+add_unschedulable [us/pod]": med(lambda: fail(5000)),
    }
    moves = (
        ("event wakes all of {} [ms]", QueueingHint.QUEUE, ev.NODE_ADD),
        ("event checks all of {}, wakes none [ms]", QueueingHint.SKIP, ev.NODE_ADD),
        ("event concerns 1 plugin in 20 of {} [ms]", QueueingHint.SKIP, ev.ASSIGNED_POD_ADD),
        ("event no plugin registered, {} wait [ms]", QueueingHint.QUEUE, ev.NODE_UPDATE_CONDITION),
    )
    for count in (1000, 5000):
        for name, hint, event in moves:
            figures[name.format(count)] = med(partial(move, count, hint, event))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs a figure is the median of")
    args = parser.parse_args()
    figures = report(args.runs)
    print(table(("CPU time", "figure"), figures.items()))


if __name__ == "__main__":
    main()
