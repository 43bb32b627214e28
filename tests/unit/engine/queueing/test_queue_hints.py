"""Which pods an event wakes: cases 28 to 42."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.events.hints import ClusterEventWithHint, HintMap, QueueingHint
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.queueing.views import find
from tests.support.queues import scheduling_queue

from .queue_world import PROFILE, QUEUE, SKIP, Clock, Gate, Hint, Pod, World, on, pod

NODE = object()


def test_case_28_a_pre_check_leaves_out_the_pods_that_it_refuses():
    world = World({"foo": [on(ev.NODE_ADD)]})
    low, high = pod("low", priority=1), pod("high", priority=10)
    world.refuse(low, "foo")
    world.refuse(high, "foo")
    moved = world.queue.move_all(ev.NODE_ADD, None, NODE, pre_check=lambda candidate: candidate.priority >= 10)
    assert moved == 1
    assert (world.where(low), world.where(high)) == ("unschedulable", "backoff")
    assert world.queue.move_all(ev.NODE_ADD, None, NODE) == 1
    assert world.where(low) == "backoff"


def test_case_29_only_the_hints_of_plugins_that_refused_the_pod_are_asked():
    hints = {name: Hint(SKIP) for name in ("foo", "bar", "baz")}
    world = World({name: [on(ev.NODE_ADD, hint)] for name, hint in hints.items()})
    world.refuse(pod("a"), "foo", "bar")
    world.refuse(pod("b"), "bar")
    world.queue.move_all(ev.NODE_ADD, None, NODE)
    assert {name: sorted(hint.asked) for name, hint in hints.items()} == {"foo": ["a"], "bar": ["a", "b"], "baz": []}


@pytest.mark.parametrize(
    ("refused_by", "moved"),
    [
        pytest.param("other", 0, id="case 30: only another plugin registered the event"),
        pytest.param("silent", 1, id="it does not say what may cure its refusal"),
        pytest.param("mute", 0, id="it registers nothing"),
    ],
)
def test_an_event_moves_a_pod_only_if_the_plugin_that_refused_it_may_be_helped(refused_by: str, moved: int):
    world = World({"foo": [on(ev.NODE_ADD)], "other": [on(ev.ASSIGNED_POD_DELETE)], "silent": None, "mute": []})
    one = pod("a")
    world.refuse(one, refused_by)
    assert world.queue.move_all(ev.NODE_ADD, None, NODE) == moved
    assert world.where(one) == ("backoff" if moved else "unschedulable")


def test_case_31_a_hint_that_raises_counts_as_queue_and_is_reported():
    world = World({"foo": [on(ev.NODE_ADD, Hint(RuntimeError("broken plugin")))]})
    one = pod("a")
    world.refuse(one, "foo")
    world.queue.move_all(ev.NODE_ADD, None, NODE)
    assert world.where(one) == "backoff"
    assert world.recorder.hints == [("foo", "NodeAdd", "Error")]
    assert world.recorder.raised == [("foo", "QueueingHint", "broken plugin")]


@pytest.mark.parametrize("pre_hints", [False, True])
@pytest.mark.parametrize("in_flight", [False, True])
def test_an_event_helps_a_pod_if_any_of_the_plugins_that_refused_it_says_so(in_flight: bool, pre_hints: bool):
    plugins = {"a": [on(ev.NODE_ADD, Hint(SKIP))], "b": [on(ev.NODE_ADD, Hint(QUEUE))]}
    world = World(plugins, pre_queueing_hints=pre_hints)
    one = pod("a")
    entry = world.try_pod(one)
    if in_flight:
        world.queue.move_all(ev.NODE_ADD, None, NODE)
    world.queue.add_unschedulable(entry, unschedulable_plugins=["a", "b"])
    if not in_flight:
        world.queue.move_all(ev.NODE_ADD, None, NODE)
    assert world.where(one) == "backoff"
    assert world.recorder.hints == [("a", "NodeAdd", "QueueSkip"), ("b", "NodeAdd", "Queue")]


def test_case_32_a_wildcard_moves_every_pod_and_asks_no_hint():
    hint = Hint(SKIP)
    world = World({"foo": [on(ev.NODE_ADD, hint)], "bar": []})
    one, other = pod("a"), pod("b")
    world.refuse(one, "foo")
    world.refuse(other, "bar")
    assert world.queue.move_all(ev.UNSCHEDULABLE_TIMEOUT) == 2
    assert (world.where(one), world.where(other)) == ("backoff", "backoff")
    assert hint.asked == [] and world.recorder.pre_hints == []


def test_case_33_a_wildcard_that_carries_a_pod_concerns_that_pod_alone():
    world = World()
    one, other = pod("a"), pod("b")
    world.refuse(one, "foo")
    world.refuse(other, "foo")
    assert world.queue.move_all(ev.FORCE_ACTIVATE, None, one) == 1
    assert (world.where(one), world.where(other)) == ("backoff", "unschedulable")


@pytest.mark.parametrize(
    ("answer", "place", "asked"),
    [
        pytest.param(QUEUE, "active", [], id="case 34: it skips backoff and ends the asking"),
        pytest.param(SKIP, "backoff", ["a"], id="case 35: another may still lead to backoff"),
    ],
)
def test_cases_34_and_35_the_pending_plugin_is_asked_first(answer: QueueingHint, place: str, asked: list[str]):
    pending, refusing = Hint(answer), Hint(QUEUE)
    world = World({"a-refuses": [on(ev.NODE_ADD, refusing)], "z-waits": [on(ev.NODE_ADD, pending)]})
    one = pod("a")
    world.refuse(one, "a-refuses", pending=("z-waits",))
    world.queue.move_all(ev.NODE_ADD, None, NODE)
    assert world.where(one) == place
    assert (pending.asked, refusing.asked) == (["a"], asked)


ALL_NODE_UPDATES = ClusterEvent(Resource.NODE, ActionType.UPDATE)
LABEL_OR_TAINT = ClusterEvent(Resource.NODE, ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_TAINT)


@pytest.mark.parametrize(
    ("registered", "happened", "wakes"),
    [
        (ALL_NODE_UPDATES, ev.NODE_UPDATE_LABEL, True),
        (ALL_NODE_UPDATES, ev.NODE_ADD, False),
        (ClusterEvent(Resource.WILDCARD, ActionType.UPDATE), ev.NODE_UPDATE_LABEL, True),
        (ClusterEvent(Resource.WILDCARD, ActionType.ADD), ev.NODE_UPDATE_LABEL, False),
        (ev.ANY, ev.ASSIGNED_POD_DELETE, True),
        (ev.NODE_UPDATE_LABEL, ev.NODE_UPDATE_TAINT, False),
        (ev.NODE_UPDATE_LABEL, LABEL_OR_TAINT, True),
        (ClusterEvent(Resource.POD, ActionType.DELETE), ev.ASSIGNED_POD_DELETE, True),
        (ClusterEvent(Resource.POD, ActionType.DELETE), ev.UNSCHEDULED_POD_DELETE, True),
        (ev.UNSCHEDULED_POD_DELETE, ev.ASSIGNED_POD_DELETE, False),
        (ev.NODE_ADD, ClusterEvent(Resource.CSI_NODE, ActionType.ADD), False),
    ],
    ids=lambda value: str(value) if isinstance(value, ClusterEvent) else None,
)
def test_case_36_a_registered_event_matches_those_that_it_includes(
    registered: ClusterEvent, happened: ClusterEvent, wakes: bool
):
    """kube-scheduler does not match an event that is broader than what was registered; see the decision record."""
    world = World({"foo": [on(registered)]})
    world.refuse(pod("a"), "foo")
    assert bool(world.queue.move_all(happened, None, NODE)) is wakes


def test_case_37_a_pod_that_still_backs_off_goes_to_backoff_and_otherwise_to_active():
    """Refused at 1000.0 for one second, a pod waits the window of 1001 out: it is free at 1002."""
    for at, expected in ((1000.5, "backoff"), (1001.0, "backoff"), (1001.999, "backoff"), (1002.0, "active")):
        world = World()
        one = pod("a")
        world.refuse(one, "foo")
        world.clock.now = at
        world.queue.move_all(ev.NODE_ADD, None, NODE)
        assert world.where(one) == expected, f"at {at}"


def test_case_38_a_gated_pod_hears_only_of_events_that_its_gate_registered():
    gate_hint, other_hint = Hint(SKIP), Hint(QUEUE)
    gate = Gate("gate", lambda pod: True)
    world = World({"gate": [on(ev.ASSIGNED_POD_ADD, gate_hint)], "foo": [on(ev.NODE_ADD, other_hint)]}, gates=[gate])
    one = pod("a")
    world.queue.add(one)
    assert world.where(one) == "gated"
    world.queue.move_all(ev.NODE_ADD, None, NODE)
    assert (gate_hint.asked, other_hint.asked) == ([], [])
    world.queue.move_all(ev.ASSIGNED_POD_ADD, None, NODE)
    assert gate_hint.asked == ["a"]
    assert world.where(one) == "gated"


def test_a_gate_that_activates_whom_it_lets_in_is_asked_about_no_event():
    hint = Hint(QUEUE)
    shut = {"a"}
    gate = Gate("gate", lambda pod: pod.name in shut)
    gate.activates = True
    world = World({"gate": [on(ev.ASSIGNED_POD_DELETE, hint)]}, gates=[gate])
    one = pod("a")
    world.queue.add(one)
    world.queue.move_all(ev.ASSIGNED_POD_DELETE, NODE, None)
    assert (hint.asked, gate.asked) == ([], ["a"])
    assert find(world.queue, one.uid).wakes == {"gate": ()}
    shut.clear()
    world.queue.activate([one.uid])
    assert world.where(one) == "active"
    # What refuses it under that name afterwards is no gate.
    world.queue.add_unschedulable(world.pop(), unschedulable_plugins={"gate"})
    world.queue.move_all(ev.ASSIGNED_POD_DELETE, NODE, None)
    assert hint.asked == ["a"]
    assert world.where(one) == "backoff"


def test_a_pod_refused_before_it_was_gated_is_not_woken_past_its_gate():
    """A pod refused by foo and then held by a gate: what foo waits for cannot let it in."""
    hint = Hint(QUEUE)
    closed: set[str] = set()
    gate = Gate("gate", lambda pod: pod.name in closed)
    world = World({"gate": [on(ev.ASSIGNED_POD_ADD)], "foo": [on(ev.NODE_ADD, hint)]}, gates=[gate])
    one = pod("a")
    world.refuse(one, "foo")
    closed.add("a")
    world.queue.move_all(ev.NODE_ADD, None, NODE)
    assert world.where(one) == "gated"
    asked = len(gate.asked)
    world.queue.move_all(ev.NODE_ADD, None, NODE)
    assert (len(hint.asked), len(gate.asked)) == (1, asked)
    closed.clear()
    world.queue.move_all(ev.ASSIGNED_POD_ADD, None, NODE)
    assert world.where(one) == "backoff"


def scale_down_hint(waiting: Pod, old: Any, new: Any) -> QueueingHint:
    """NodeResourcesFit on a scaled-down neighbour: a resource that the pod requests was given back."""
    freed = {name for name, amount in old.requests.items() if new.requests.get(name, 0) < amount}
    return QUEUE if freed & waiting.requests.keys() else SKIP


def test_case_40_an_assigned_pod_that_shrinks_wakes_those_refused_for_that_resource():
    shrinks = ClusterEvent(Resource.ASSIGNED_POD, ActionType.UPDATE_POD_SCALE_DOWN)
    world = World({"NodeResourcesFit": [on(shrinks, scale_down_hint)]})
    wants_cpu, wants_gpu = pod("cpu", requests={"cpu": 100}), pod("gpu", requests={"nvidia.com/gpu": 1})
    world.refuse(wants_cpu, "NodeResourcesFit")
    world.refuse(wants_gpu, "NodeResourcesFit")
    before = pod("neighbour", requests={"cpu": 500, "memory": 1})
    after = pod("neighbour", requests={"cpu": 200, "memory": 1})
    assert world.queue.assigned_pod_updated(before, after) == 1
    assert (world.where(wants_cpu), world.where(wants_gpu)) == ("backoff", "unschedulable")


def test_case_41_pods_in_backoff_stay_there_until_their_time_whatever_happens():
    world = World()
    early, late = pod("early"), pod("late")
    world.refuse(early, "foo")
    world.queue.move_all(ev.NODE_ADD, None, NODE)
    world.clock.step(0.5)
    world.refuse(late, "foo")
    assert (world.where(early), world.where(late)) == ("backoff", "unschedulable")
    assert world.queue.move_all(ev.NODE_ADD, None, NODE) == 1
    assert world.queue.move_all(ev.NODE_ADD, None, NODE) == 0
    assert world.queue.flush_backoff() == 0
    assert (world.where(early), world.where(late)) == ("backoff", "backoff")
    world.clock.now = 1002.0
    assert world.queue.flush_backoff() == 2


def test_case_42_waiters_are_told_once_and_after_all_pods_have_moved():
    world = World()
    for index in range(20):
        world.refuse(pod(f"pod-{index}", priority=index), "foo")
    world.clock.step(60)
    seen: list[int] = []
    world.when_ready = lambda: seen.append(world.queue.pending().active)
    world.queue.move_all(ev.NODE_ADD, None, NODE)
    assert seen == [20]
    assert world.pop().pod.name == "pod-19"


def test_an_event_is_put_only_to_pods_of_profiles_whose_plugins_registered_it():
    """Two profiles with a plugin of one name: what one registered says nothing about the other."""
    hint = Hint(QUEUE)
    queue: SchedulingQueue = scheduling_queue(
        {PROFILE: HintMap({"fit": [ClusterEventWithHint(ev.NODE_ADD, hint)]}), "batch": HintMap({"fit": []})},
        clock=Clock(),
    )
    for one in (pod("a"), pod("b", scheduler_name="batch")):
        queue.add(one)
        entry = queue.pop()
        assert entry is not None
        queue.add_unschedulable(entry, unschedulable_plugins=["fit"])
    assert queue.move_all(ev.NODE_ADD, None, NODE) == 1
    assert hint.asked == ["a"]
    queue.check_invariants()


def test_an_event_costs_what_it_can_wake_and_not_what_waits():
    """200 pods wait for a plugin that does not care; none of them is looked at."""
    world = World({"busy": [on(ev.NODE_ADD)], "idle": [on(ev.ASSIGNED_POD_ADD)]})
    for index in range(200):
        world.refuse(pod(f"pod-{index}"), "busy")
    looked_at: list[str] = []

    def pre_check(candidate: Pod) -> bool:
        looked_at.append(candidate.name)
        return True

    assert world.queue.move_all(ev.ASSIGNED_POD_ADD, None, NODE, pre_check=pre_check) == 0
    assert looked_at == []


def test_a_gate_is_not_asked_about_pods_that_it_does_not_concern_and_those_after_it_are():
    class Concerned(Gate):
        def concerns(self, one: Pod) -> bool:
            return one.priority > 0

    first, second = Concerned("first", lambda pod: True), Gate("second", lambda pod: True)
    world = World({"first": [on(ev.NODE_ADD)], "second": [on(ev.NODE_ADD)]}, gates=[first, second])
    world.queue.add(pod("plain"))
    world.queue.add(pod("asked", priority=1))
    assert (first.asked, second.asked) == (["asked"], ["plain"])
