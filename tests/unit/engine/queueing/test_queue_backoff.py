"""Time: backoff, flushes and deadlines; cases 53 to 60."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.queueing.subqueues import QueueSettings
from tests.support.queues import scheduling_queue

from .queue_world import Gate, World, gated_world, on, pod


def waits_of(world, *, failures):
    """Seconds of backoff after each failure of the one pod, which is tried again the moment that it may be."""
    waits = []
    for _ in range(failures):
        entry = world.pop()
        world.queue.add_unschedulable(entry)
        waits.append(entry.backoff_expiration - world.clock.now)
        world.clock.now = entry.backoff_expiration
        assert world.queue.flush_backoff() == 1
    return waits


@pytest.mark.parametrize(
    ("windows", "at", "waits"), [(True, 1000.0, [2, 3, 5, 9, 11, 11, 11]), (False, 1000.25, [1, 2, 4, 8, 10, 10, 10])]
)
def test_case_53_the_penalty_doubles_up_to_its_maximum(windows: bool, at: float, waits: list[int]):
    """With windows every failure happens on a whole second and a window lasts one, so each wait is a second longer."""
    world = World(settings=QueueSettings(pop_from_backoff=windows))
    world.clock.now = at
    world.queue.add(pod("a"))
    assert waits_of(world, failures=7) == waits


def test_a_pod_that_failed_thousands_of_times_waits_the_maximum():
    world = World(settings=QueueSettings(pop_from_backoff=False))
    entry = world.try_pod(pod("a"))
    entry.consecutive_errors_count = 5000
    world.queue.add_unschedulable(entry)
    assert entry.backoff_expiration == world.clock.now + 10


def test_case_54_errors_and_refusals_are_counted_apart_and_a_refusal_ends_a_row_of_errors():
    world = World(settings=QueueSettings(pop_from_backoff=False))
    one = pod("a")
    entry = world.try_pod(one)
    counts = []
    for plugins in ((), (), ("foo",), (), ("foo",)):
        world.queue.add_unschedulable(entry, unschedulable_plugins=plugins)
        world.queue.move_all(ev.NODE_ADD, None, object())
        counts.append(
            (entry.consecutive_errors_count, entry.unschedulable_count, entry.backoff_expiration - world.clock.now)
        )
        world.clock.now = entry.backoff_expiration
        world.queue.flush_backoff()
        assert world.pop() is entry
    assert counts == [(1, 0, 1), (2, 0, 2), (0, 1, 1), (1, 1, 1), (0, 2, 2)]


def test_case_55_without_a_maximum_there_is_no_backoff():
    world = World(settings=QueueSettings(max_backoff=0))
    assert world.queue.add_unschedulable(world.try_pod(pod("error"))) == "active"
    world.pop_names()
    refused = pod("refused")
    world.refuse(refused, "foo")
    world.queue.move_all(ev.NODE_ADD, None, object())
    assert world.where(refused) == "active"


def test_a_pod_popped_before_its_time_backs_off_from_its_new_failure():
    world = World()
    entry = world.try_pod(pod("a"))
    entry.unschedulable_count = 10
    world.queue.add_unschedulable(entry, unschedulable_plugins=["foo"])
    world.queue.move_all(ev.NODE_ADD, None, object())
    first = entry.backoff_expiration
    assert world.pop() is entry
    world.clock.step(5)
    world.queue.add_unschedulable(entry, unschedulable_plugins=["foo"])
    world.queue.move_all(ev.NODE_ADD, None, object())
    assert entry.backoff_expiration == first + 5


def test_case_56_a_flush_before_the_window_ends_moves_nothing():
    world = World()
    one, other = pod("a"), pod("b")
    world.clock.now = 1000.3
    for each in (one, other):
        world.queue.add_unschedulable(world.try_pod(each))
    for at in (1001.0, 1001.3, 1001.999):
        world.clock.now = at
        assert world.queue.flush_backoff() == 0
        assert world.where(one) == "backoff"
    world.clock.now = 1002.0
    ready = world.ready
    assert world.queue.flush_backoff() == 2
    assert world.where(one) == world.where(other) == "active"
    assert world.ready == ready + 1, "waiters are told once"
    assert world.incoming("active", "BackoffComplete") == 2


def test_case_57_leftovers_are_flushed_after_five_minutes_best_first():
    world = World({"foo": []})
    world.refuse(pod("low", priority=1), "foo")
    world.refuse(pod("high", priority=10), "foo")
    world.clock.step(299)
    assert world.queue.flush_unschedulable_leftovers() == 0
    assert world.queue.pending().unschedulable == 2
    world.clock.step(2)
    ready = world.ready
    assert world.queue.flush_unschedulable_leftovers() == 2
    assert world.ready == ready + 1
    assert world.incoming("active", "UnschedulableTimeout") == 2
    assert world.pop_names() == ["high", "low"]


def test_case_59_a_flushed_pod_is_marked_until_it_fails_again_and_counts_when_it_is_bound():
    world = World({"foo": []})
    entry = world.refuse(pod("a"), "foo")
    world.clock.step(301)
    world.queue.flush_unschedulable_leftovers()
    assert world.pop() is entry
    assert entry.was_flushed
    world.queue.add_unschedulable(entry, unschedulable_plugins=["foo"])
    assert not entry.was_flushed
    assert entry.flush_timestamp == 0
    world.clock.step(301)
    world.queue.flush_unschedulable_leftovers()
    assert world.recorder.bound == []
    world.queue.scheduled(world.pop())
    assert [after_flush for _, _, after_flush in world.recorder.bound] == [True]


def test_case_60_a_gated_pod_that_is_flushed_is_asked_again_stays_and_waits_as_long_anew():
    world, gate = gated_world()
    one = pod("a", gates=("hold",))
    world.queue.add(one)
    for asked in (2, 3):
        world.clock.step(299)
        world.queue.flush_unschedulable_leftovers()
        assert len(gate.asked) == asked - 1
        world.clock.step(2)
        assert world.queue.flush_unschedulable_leftovers() == 0
        assert len(gate.asked) == asked
        assert world.where(one) == "gated"
    assert world.incoming("unschedulable", "UnscheduledPodAdd") == 1
    assert world.incoming("unschedulable", "UnschedulableTimeout") == 0


def test_a_pod_whose_gate_an_event_lifts_after_a_flush_does_not_count_as_missed():
    held = {"a"}
    gate = Gate("gate", lambda pod: pod.name in held)
    world = World({"gate": [on(ev.NODE_ADD)]}, gates=[gate])
    world.queue.add(pod("a"))
    world.clock.step(301)
    world.queue.flush_unschedulable_leftovers()
    held.clear()
    world.queue.move_all(ev.NODE_ADD, None, object())
    world.queue.scheduled(world.pop())
    assert [after_flush for _, _, after_flush in world.recorder.bound] == [False]


def test_the_next_deadline_is_when_a_flush_has_something_to_do():
    """A caller that sleeps until the deadline and flushes never finds nothing to do."""
    world = World()
    assert world.queue.next_deadline() is None
    world.refuse(pod("stale"), "foo")
    assert world.queue.next_deadline() == 1300.0
    world.clock.step(0.3)
    world.queue.add_unschedulable(world.try_pod(pod("error")))
    assert world.queue.next_deadline() == 1002.0
    world.clock.now = 1002.0
    assert world.queue.flush_backoff() == 1
    assert world.queue.next_deadline() == 1300.0
    world.clock.now = 1300.0
    assert world.queue.flush_unschedulable_leftovers() == 1
    assert world.queue.next_deadline() is None


@pytest.mark.parametrize("window", [0.1, 0.3, 1.0])
def test_a_flush_at_the_deadline_always_finds_its_pod(window: float):
    """Windows are multiples of a float: a deadline that rounding puts a hair early would never be met."""
    world = World(settings=QueueSettings(initial_backoff=0.1, max_backoff=0.1, backoff_window=window))
    for step in range(200):
        world.clock.step(0.0371)
        world.queue.add_unschedulable(world.try_pod(pod(f"pod-{step}")))
        deadline = world.queue.next_deadline()
        assert deadline is not None
        assert deadline > world.clock.now
        world.clock.now = deadline
        assert world.queue.flush_backoff() == 1
        world.pop_names()


def test_a_sleeper_is_told_of_an_earlier_deadline_and_only_of_that():
    world = World()
    world.refuse(pod("stale"), "foo")
    assert world.deadlines == 1
    world.queue.next_deadline()
    world.clock.step(1)
    world.refuse(pod("later"), "foo")
    assert world.deadlines == 1, "it becomes stale after what the caller sleeps for"
    world.queue.add_unschedulable(world.try_pod(pod("error")))
    assert world.deadlines == 2
    world.clock.step(5)
    world.queue.flush_backoff()
    assert world.queue.next_deadline() == 1300.0


def queue_with(**arguments: Any) -> SchedulingQueue:
    return scheduling_queue({}, **arguments)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: QueueSettings(initial_backoff=0), "initial_backoff is 0: it must be above 0 seconds"),
        (
            lambda: QueueSettings(initial_backoff=5, max_backoff=2),
            "max_backoff is 2: it must be 0 .* or at least initial_backoff, 5",
        ),
        (lambda: QueueSettings(backoff_window=0), "backoff_window is 0: it must be above 0 seconds"),
        (lambda: QueueSettings(max_in_unschedulable=0), "max_in_unschedulable is 0"),
        (lambda: QueueSettings(max_urgent_retries=-1), "max_urgent_retries is -1"),
        (lambda: queue_with(max_inflight_events=0), "max_events is 0"),
        (lambda: queue_with(pre_enqueue={"nobody": ()}), r"profiles \['nobody'\]: known profiles are \[\]"),
    ],
)
def test_settings_and_arguments_that_make_no_sense_are_refused(made: Callable[[], object], says: str):
    with pytest.raises(ValueError, match=says):
        made()
