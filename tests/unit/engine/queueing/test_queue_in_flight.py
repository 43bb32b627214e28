"""What happens to a pod while it is being tried: cases 13 to 26, but for what the model holds."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.events.hints import QueueingHint
from agent_scheduler.engine.queueing.queue import QueueError

from .queue_world import QUEUE, SKIP, Hint, Pod, World, on, pod, replace

PV_ADD = ClusterEvent(Resource.PERSISTENT_VOLUME, ActionType.ADD)
LABEL = ClusterEvent(Resource.TARGET_POD, ActionType.UPDATE_POD_LABEL)


def every(*events: ClusterEvent) -> World:
    return World({"foo": [on(event) for event in events]})


def in_flight(world: World, *names: str) -> None:
    for name in names:
        world.try_pod(pod(name))


def test_case_14_events_that_no_plugin_registered_are_not_kept():
    world = every(ev.NODE_ADD)
    world.try_pod(pod("a"))
    world.queue.move_all(PV_ADD, None, object())
    assert world.in_flight_timeline() == ["a-uid"]


@pytest.mark.parametrize(
    ("ends", "left"),
    [
        # Case 16: older pods still need the events. Case 17: those before the next pod are pruned.
        ("pod2", ["pod1-uid", PV_ADD, ev.NODE_ADD, "pod3-uid", ev.ASSIGNED_POD_ADD]),
        ("pod1", ["pod2-uid", ev.NODE_ADD, "pod3-uid", ev.ASSIGNED_POD_ADD]),
    ],
)
def test_cases_16_and_17_events_are_kept_from_the_oldest_pod_in_flight_on(ends: str, left: list[object]):
    events = (PV_ADD, ev.NODE_ADD, ev.ASSIGNED_POD_ADD)
    world = every(*events)
    for number, event in enumerate(events, start=1):
        in_flight(world, f"pod{number}")
        world.queue.move_all(event, None, object())
    whole = [each for number, event in enumerate(events, start=1) for each in (f"pod{number}-uid", event)]
    assert world.in_flight_timeline() == whole
    world.queue.done(f"{ends}-uid")
    assert world.in_flight_timeline() == left
    for number in range(1, 4):
        world.queue.done(f"pod{number}-uid")
    assert world.in_flight_timeline() == []
    assert not any(world.queue.kept_in_flight().values())


@pytest.mark.parametrize(
    ("answer", "refused", "pending", "place"),
    [
        pytest.param(QUEUE, (), (), "backoff", id="case 18: nobody refused it, as after an error"),
        pytest.param(SKIP, ("foo",), (), "unschedulable", id="case 20: the hint says skip"),
        pytest.param(QUEUE, ("bar",), (), "unschedulable", id="case 21: another plugin registered it"),
        pytest.param(QUEUE, (), ("foo",), "active", id="case 22: a pending plugin waited for it"),
        pytest.param(QUEUE, ("foo",), (), "backoff", id="case 23: the plugin that refused waited for it"),
    ],
)
def test_cases_18_to_23_what_an_event_in_flight_does_for_a_pod_that_fails(
    answer: QueueingHint, refused: tuple[str, ...], pending: tuple[str, ...], place: str
):
    hint = Hint(answer)
    world = World({"foo": [on(ev.NODE_ADD, hint)], "bar": [on(PV_ADD)]})
    entry = world.try_pod(pod("a"))
    world.queue.move_all(ev.NODE_ADD, None, object())
    assert world.queue.add_unschedulable(entry, unschedulable_plugins=refused, pending_plugins=pending) == place
    assert hint.asked == (["a"] if "foo" in (*refused, *pending) else [])
    if not refused and not pending:
        assert world.queue.pop() is None, "error backoff is never left early"


def test_an_update_in_flight_that_helps_is_not_hidden_by_a_later_one_that_does_not():
    def becomes_x(pod: Pod, old: object | None, new: object | None) -> QueueingHint:
        assert isinstance(old, Pod) and isinstance(new, Pod)
        return QUEUE if "app" in new.labels and "app" not in old.labels else SKIP

    world = World({"foo": [on(LABEL, becomes_x)]})
    one = pod("a")
    entry = world.try_pod(one)
    world.queue.add(replace(one, labels={"app": "x"}))
    world.queue.add(replace(one, labels={"app": "x", "team": "y"}))
    assert world.queue.add_unschedulable(entry, unschedulable_plugins=["foo"]) == "backoff"


def test_case_26_a_pod_that_waits_already_is_not_queued_twice():
    """Where kube-scheduler returns an error this raises. A pod that waits cannot be in flight as well here, so
    what remains of "Done is executed all the same" is that nothing is left in flight."""
    world = every(ev.NODE_ADD)
    one = pod("a")
    entry = world.try_pod(one)
    world.queue.done(entry.uid)
    world.queue.add(one)  # seen again by the watch while its bind was under way
    with pytest.raises(QueueError, match=r"ns/a \(a-uid\) waits already: active"):
        world.queue.add_unschedulable(entry, unschedulable_plugins=["foo"])
    again = world.pop()
    with pytest.raises(QueueError, match="in flight on another attempt"):
        world.queue.add_unschedulable(entry)
    world.queue.add_unschedulable(again, unschedulable_plugins=["foo"])
    with pytest.raises(QueueError, match="waits already: unschedulable"):
        world.queue.add_unschedulable(again, unschedulable_plugins=["foo"])
    world.queue.move_all(ev.NODE_ADD, None, object())
    with pytest.raises(QueueError, match="waits already: backoff"):
        world.queue.requeue_urgent(again)
    assert world.queue.pending() == (0, 1, 0, 0, 0)
    assert world.in_flight_timeline() == []


@pytest.mark.parametrize("gone", ["deleted", "bound"])
@pytest.mark.parametrize("urgent", [False, True])
def test_a_pod_that_is_deleted_or_bound_in_flight_does_not_come_back(gone: str, urgent: bool):
    world = every(ev.NODE_ADD)
    one = pod("a", nominated_node_name="node-1")
    entry = world.try_pod(one)
    if gone == "deleted":
        world.queue.delete(one.uid)
        assert world.queue.nominator.nominated.get(one.uid, "") == ""
    else:
        world.not_pending.add(one.uid)
    if urgent:
        assert not world.queue.requeue_urgent(entry)
    else:
        assert world.queue.add_unschedulable(entry, unschedulable_plugins=["foo"]) is None
    assert world.where(one) is None and world.queue.pending() == (0, 0, 0, 0, 0)
    assert not any(world.recorder.unschedulable_gauge.values())
    assert world.in_flight_timeline() == []


@pytest.mark.parametrize(
    ("events", "answer", "place"),
    [
        ((PV_ADD, ev.NODE_ADD), QUEUE, "active"),
        ((ev.NODE_ADD, PV_ADD), QUEUE, "active"),
        # A later event that helps nobody does not undo an earlier one that did.
        ((PV_ADD, ev.NODE_ADD), SKIP, "backoff"),
    ],
)
def test_of_several_events_in_flight_the_best_counts_in_whatever_order_they_came(
    events: tuple[ClusterEvent, ...], answer: QueueingHint, place: str
):
    world = World({"refuses": [on(PV_ADD)], "waits": [on(ev.NODE_ADD, Hint(answer))]})
    entry = world.try_pod(pod("a"))
    for event in events:
        world.queue.move_all(event, None, object())
    said = world.queue.add_unschedulable(entry, unschedulable_plugins=["refuses"], pending_plugins=["waits"])
    assert said == place


def test_a_pod_that_is_seen_again_after_its_deletion_comes_back():
    """A watch that lost its place may say deleted and then, of the same UID, still there."""
    world = every(ev.NODE_ADD)
    one = pod("a")
    entry = world.try_pod(one)
    world.queue.delete(one.uid)
    world.queue.add(one)
    assert world.queue.add_unschedulable(entry, unschedulable_plugins=["foo"]) == "unschedulable"


def test_a_pod_that_fails_after_it_was_done_comes_back_after_its_backoff():
    """Its events are forgotten, so none of them may be taken for missing."""
    world = every(ev.NODE_ADD)
    entry = world.try_pod(pod("a"))
    world.queue.done(entry.uid)
    assert world.queue.add_unschedulable(entry, unschedulable_plugins=["foo"]) == "backoff"


def test_done_may_be_called_twice_and_for_unknown_pods():
    world = every(ev.NODE_ADD)
    entry = world.try_pod(pod("a"))
    world.queue.done(entry.uid)
    world.queue.done(entry.uid)
    world.queue.done("stranger")
    world.queue.check_invariants()
    assert world.queue.kept_in_flight() == {"PodPopped": 0}


def test_a_slow_pod_does_not_make_the_queue_keep_events_without_bound():
    world = World({"foo": [on(ev.NODE_ADD, Hint(SKIP))]}, max_inflight_events=10)
    slow = world.try_pod(pod("slow"))
    for _ in range(5):
        world.queue.move_all(ev.NODE_ADD, None, object())
    quick = world.try_pod(pod("quick"))
    for _ in range(10):
        world.queue.move_all(ev.NODE_ADD, None, object())
    world.queue.check_invariants()
    assert world.queue.kept_in_flight() == {"PodPopped": 2, "NodeAdd": 10}
    # What the slow pod would have been told is lost, so it is tried again; the other one's history is whole.
    assert world.queue.add_unschedulable(quick, unschedulable_plugins=["foo"]) == "unschedulable"
    assert world.queue.add_unschedulable(slow, unschedulable_plugins=["foo"]) == "backoff"
    world.queue.check_invariants()
    assert not any(world.queue.kept_in_flight().values())


def test_a_slow_pod_does_not_make_the_queue_remember_where_quick_ones_were_popped():
    world = World({"foo": [on(ev.NODE_ADD)]}, max_inflight_events=10)
    world.try_pod(pod("slow"))
    for index in range(500):
        quick = world.try_pod(pod(f"quick-{index}"))
        world.queue.move_all(ev.NODE_ADD, None, object())
        world.queue.done(quick.uid)
    assert len(world.queue.places.in_flight._line) < 100
    world.queue.check_invariants()
