"""Pods that change, vanish, or are asked for: cases 43 to 52, but for what the model holds."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource

from .queue_world import QUEUE, SKIP, Gate, Hint, World, dump, gated_world, on, own_update, pod, replace

LABEL = ClusterEvent(Resource.TARGET_POD, ActionType.UPDATE_POD_LABEL)


@pytest.mark.parametrize(("before", "after", "order"), [(5, 5, "one other"), (1, 9, "one other"), (9, 1, "other one")])
def test_case_43_an_active_pod_is_updated_where_its_priority_belongs(before: int, after: int, order: str):
    world = World()
    one = pod("one", priority=before)
    world.queue.add(one)
    world.queue.add(pod("other", priority=5))
    newer = replace(one, priority=after, labels={"app": "x"})
    world.queue.add(newer)
    popped = [world.pop().pod, world.pop().pod]
    assert [each.name for each in popped] == order.split() and newer in popped


@pytest.mark.parametrize("priority", [0, 7])
def test_case_43_a_pod_in_backoff_is_updated_in_its_place_and_waits_as_long(priority: int):
    world = World()
    one = pod("a")
    entry = world.refuse(one, "foo")
    world.queue.move_all(ev.NODE_ADD, None, object())
    expiration = entry.backoff_expiration
    newer = replace(one, labels={"app": "x"}, priority=priority)
    world.clock.step(0.5)
    world.queue.add(newer)
    assert world.where(one) == "backoff"
    assert entry.pod is newer
    assert entry.backoff_expiration == expiration == 1002.0


def test_a_pod_in_backoff_whose_priority_rose_leaves_before_those_that_wait_as_long():
    world = World()
    one, other = pod("a"), pod("b", priority=5)
    for each in (one, other):
        world.refuse(each, "foo")
    world.queue.move_all(ev.NODE_ADD, None, object())
    world.queue.add(replace(one, priority=7))
    assert [world.where(each) for each in (one, other)] == ["backoff", "backoff"]
    assert world.pop_names() == ["a", "b"]


@pytest.mark.parametrize(
    ("answer", "waited", "expected"), [(QUEUE, 0.0, "backoff"), (QUEUE, 60.0, "active"), (SKIP, 60.0, "unschedulable")]
)
def test_case_44_an_update_of_a_refused_pod_moves_it_when_a_hint_says_so(answer, waited, expected):
    world = World({"foo": [on(LABEL, Hint(answer))]})
    one = pod("a")
    entry = world.refuse(one, "foo")
    world.clock.step(waited)
    ready = world.ready
    newer = replace(one, labels={"app": "x"})
    world.queue.add(newer)
    assert world.where(one) == expected
    assert entry.pod is newer
    assert world.ready - ready == (expected != "unschedulable")


@pytest.mark.parametrize(
    ("registered", "place"), [(LABEL, "unschedulable"), (ClusterEvent(Resource.POD, ActionType.UPDATE), "backoff")]
)
def test_case_46_an_update_that_scheduling_does_not_look_at_wakes_who_registered_every_update_alone(
    registered: ClusterEvent, place: str
):
    world = World({"foo": [on(registered, own_update)]})
    one = pod("a")
    entry = world.refuse(one, "foo")
    newer = replace(one, phase="StillPending")
    world.queue.add(newer)
    assert world.where(one) == place
    assert entry.pod is newer


def test_the_same_version_of_a_pod_is_no_change():
    """A relist repeats what is known; plugins that hear of every update must not be woken by it."""
    world = World({"foo": [on(ClusterEvent(Resource.POD, ActionType.UPDATE))]})
    one = pod("a", resource_version="7")
    world.refuse(one, "foo")
    world.queue.add(replace(one))
    assert world.where(one) == "unschedulable"
    world.queue.add(replace(one, resource_version="8"))
    assert world.where(one) == "backoff"


@pytest.mark.parametrize("change", [{"labels": {"app": "x"}}, {"gates": ("more",)}], ids="".join)
def test_case_47_a_gated_pod_stays_gated_until_its_last_gate_is_gone(change: dict[str, object]):
    world, gate = gated_world()
    one = pod("a", gates=("hold", "more"))
    world.queue.add(one)
    world.queue.add(replace(one, **change))
    assert world.where(one) == "gated"
    assert len(gate.asked) == 1 + ("gates" in change)


def test_the_gate_that_held_a_pod_before_is_asked_first():
    first, second = Gate("first", lambda pod: False), Gate("second", lambda pod: True)
    world = World({"second": [on(ev.NODE_ADD)]}, gates=[first, second])
    world.queue.add(pod("a"))
    assert (len(first.asked), len(second.asked)) == (1, 1)
    world.queue.move_all(ev.NODE_ADD, None, object())
    assert (len(first.asked), len(second.asked)) == (1, 2)


def test_a_gate_that_raises_holds_the_pod_and_is_reported():
    def broken(one: object) -> bool:
        raise RuntimeError("no informer")

    world = World({"gate": [on(ev.NODE_ADD)]}, gates=[Gate("gate", broken)])
    one = pod("a")
    world.queue.add(one)
    assert world.where(one) == "gated"
    assert world.recorder.raised == [("gate", "PreEnqueue", "no informer")]
    [shown] = dump(world.queue)["gated"]
    assert shown.gating_message == "RuntimeError: no informer"


def test_case_49_the_nominator_follows_an_update_and_keeps_what_only_memory_knows():
    world = World()
    one = pod("a")
    world.queue.add(one)
    nominator = world.queue.nominator
    nominator.add(one, "node-1")
    newer = replace(one, labels={"app": "x"})
    world.queue.add(newer)
    assert nominator.pods_for("node-1") == (newer,)
    named = replace(newer, nominated_node_name="node-2")
    world.queue.add(named)
    assert nominator.pods_for("node-1") == ()
    assert nominator.pods_for("node-2") == (named,)
    cleared = replace(named, nominated_node_name="")
    world.queue.add(cleared)
    assert nominator.nominated.get(one.uid, "") == ""
    world.queue.check_invariants()


def test_a_nomination_made_in_memory_outlives_updates_that_do_not_change_what_the_status_names():
    world = World()
    one = pod("a", nominated_node_name="node-0")
    world.queue.add(one)
    nominator = world.queue.nominator
    nominator.add(one, "node-1")
    newer = replace(one, resource_version="2", labels={"a": "b"})
    world.queue.add(newer)
    assert nominator.pods_for("node-1") == (newer,)
    nominator.delete(one.uid)
    world.queue.add(replace(newer, resource_version="3"))
    assert nominator.nominated.get(one.uid, "") == ""


@pytest.mark.parametrize("place", ["active", "backoff", "unschedulable", "in_flight"])
def test_case_49_the_nominator_follows_an_update_wherever_the_pod_is(place: str):
    world = World()
    one = pod("a")
    world.put(one, place)
    named = replace(one, nominated_node_name="node-1")
    world.queue.add(named)
    assert world.where(one) == place
    assert world.queue.nominator.pods_for("node-1") == (named,)


def test_pods_of_the_same_name_with_two_uids_wait_side_by_side():
    world = World()
    old, new = pod("a", uid="old"), pod("a", uid="new")
    world.refuse(old, "foo")
    world.queue.add(new)
    world.queue.delete("old")
    assert (world.where(old), world.where(new)) == (None, "active")


@pytest.mark.parametrize(
    ("place", "asked", "moved", "after"),
    [
        ("unschedulable", 1, 1, "active"),
        ("backoff", 0, 1, "active"),
        ("active", 0, 0, "active"),
        ("gated", 1, 0, "gated"),
        ("nowhere", 0, 0, None),
    ],
)
def test_case_51_an_activated_pod_becomes_active_and_one_from_the_pool_asks_its_gates_again(
    place: str, asked: int, moved: int, after: str | None
):
    world, gate = gated_world()
    one = pod("a", gates=("hold",) if place == "gated" else ())
    if place != "nowhere":
        world.put(one, place)
    before, ready = len(gate.asked), world.ready
    assert world.queue.activate([one.uid]) == moved
    assert world.where(one) == after
    assert (len(gate.asked), world.ready) == (before + asked, ready + moved)
    assert world.incoming("active", "ForceActivate") == moved


def test_case_52_a_pod_that_is_gone_or_bound_is_not_nominated():
    world = World()
    gone = pod("gone", nominated_node_name="node-1")
    world.not_pending.add(gone.uid)
    world.queue.nominator.add(gone)
    world.queue.nominator.add(gone, "node-2")
    assert world.queue.nominator.pods_for("node-1") == ()
    assert world.queue.nominator.pods_for("node-2") == ()
    world.queue.check_invariants()
