"""What the queue reports: cases 62 to 64."""

from __future__ import annotations

from agent_scheduler.engine.events import events as ev

from .queue_world import World, dump, gated_world, on, pod, replace


def test_case_62_each_transition_is_counted_once_and_an_update_in_place_is_none():
    world = World()
    one = pod("a")
    world.queue.add(one)
    world.queue.add(replace(one, labels={"app": "x"}))
    world.queue.add_unschedulable(world.pop(), unschedulable_plugins=["foo"])
    world.queue.add(replace(one, labels={"app": "y"}))
    world.queue.move_all(ev.NODE_ADD, None, object())
    world.queue.add(replace(one, labels={"app": "z"}))
    world.clock.step(5)
    world.queue.flush_backoff()
    world.queue.add_unschedulable(world.pop())
    assert world.recorder.incoming_total == {
        ("active", "UnscheduledPodAdd"): 1,
        ("unschedulable", "ScheduleAttemptFailure"): 1,
        ("backoff", "NodeAdd"): 1,
        ("active", "BackoffComplete"): 1,
        ("backoff", "ScheduleAttemptFailure"): 1,
    }


def test_case_63_unschedulable_pods_are_counted_by_plugin_until_they_are_popped_or_deleted():
    world = World({"foo": [on(ev.NODE_ADD)], "bar": []})
    waiting = world.recorder.waiting_because_of
    world.refuse(pod("a"), "foo", "bar")
    world.refuse(pod("b"), "foo")
    assert (waiting("foo"), waiting("bar")) == (2, 1)
    world.clock.step(5)
    world.queue.move_all(ev.NODE_ADD, None, object())
    assert (waiting("foo"), waiting("bar")) == (2, 1)
    popped = world.pop()
    assert popped.pod.name == "a"
    assert (waiting("foo"), waiting("bar")) == (1, 0)
    world.queue.delete("b-uid")
    assert (waiting("foo"), waiting("bar")) == (0, 0)


def test_case_63_a_gate_counts_while_it_holds_a_pod_however_often_it_is_asked():
    world, _ = gated_world()
    held = pod("held", gates=("hold",))
    world.queue.add(held)
    world.queue.activate([held.uid])
    world.queue.activate([held.uid])
    assert world.recorder.waiting_because_of("SchedulingGates") == 1
    world.queue.add(replace(held, gates=()))
    assert world.recorder.waiting_because_of("SchedulingGates") == 0


def test_case_64_the_time_to_schedule_leaves_out_time_behind_a_gate():
    world, _ = gated_world()
    held = pod("held", gates=("hold",))
    world.queue.add(held)
    world.clock.step(100)
    free = replace(held, gates=())
    world.queue.add(free)
    world.clock.step(7)
    world.queue.add_unschedulable(world.pop(), unschedulable_plugins=["foo"])
    world.clock.step(5)
    world.queue.move_all(ev.NODE_ADD, None, object())
    entry = world.pop()
    world.queue.done(entry.uid)
    world.queue.scheduled(entry)
    assert world.recorder.bound == [(2, 12.0, False)]


def test_the_debug_page_shows_each_place_in_its_order_and_no_more_than_asked_for():
    world = World()
    for index in range(5):
        world.queue.add(pod(f"pod-{index}", priority=index))
    page = dump(world.queue, limit=2)
    assert [shown.key for shown in page["active"]] == ["ns/pod-4", "ns/pod-3"]
    assert {place: len(pods) for place, pods in page.items()} == {
        "active": 2,
        "backoff": 0,
        "unschedulable": 0,
        "gated": 0,
        "in_flight": 0,
    }
    entry = world.pop()
    world.queue.add_unschedulable(entry, unschedulable_plugins=["foo"], pending_plugins=["bar"])
    [refused] = dump(world.queue)["unschedulable"]
    assert (refused.unschedulable_plugins, refused.pending_plugins) == (("foo",), ("bar",))
    assert (refused.uid, refused.attempts, refused.priority) == ("pod-4-uid", 1, 4)
