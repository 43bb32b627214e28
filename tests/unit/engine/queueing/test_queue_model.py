"""The queue against a model: whatever is done to it in whatever order, no pod and no event is lost."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.queueing.entry import QueuedPodInfo
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.queueing.subqueues import QueueSettings
from agent_scheduler.engine.queueing.views import find
from tests.support.examples import examples

from .queue_world import Gate, Pod, World, dump, on, own_update, pod, replace, scheduling_gates

pytestmark = pytest.mark.promise("S6", "S11", "S12")

LABEL = ClusterEvent(Resource.TARGET_POD, ActionType.UPDATE_POD_LABEL)
#: What each plugin waits for; its hints always say Queue, so that what must happen is known.
CURES = {
    "nodes": {ev.NODE_ADD},
    "pods": {ev.ASSIGNED_POD_DELETE},
    "labels": {LABEL},
    "both": {ev.NODE_ADD, ev.ASSIGNED_POD_DELETE},
    "nothing": set(),
}
PLUGINS = st.frozensets(st.sampled_from(sorted(CURES)), max_size=3)
EVENTS = st.sampled_from([ev.NODE_ADD, ev.ASSIGNED_POD_DELETE, ev.NODE_UPDATE_TAINT])


class QueueMachine(RuleBasedStateMachine):
    """Knows which pods wait or are in flight, and what happened to each attempt; not how the queue does it."""

    attempts = Bundle("attempts")

    def __init__(self) -> None:
        super().__init__()
        gate, gate_events = scheduling_gates()
        plugins = {
            name: [on(cure, own_update if cure == LABEL else None) for cure in sorted(cures, key=str)]
            for name, cures in CURES.items()
        }
        self.world = World(
            {**plugins, gate.name: gate_events},
            gates=[gate, Gate("open", lambda one: False)],
            settings=QueueSettings(max_urgent_retries=2),
        )
        self.queue = self.world.queue
        self.waiting: dict[str, Pod] = {}
        self.flying: dict[str, Pod] = {}
        self.gone: set[str] = set()
        self.happened: dict[str, set[ClusterEvent]] = {}
        self.count = 0
        self.bound: set[str] = set()

    # -- the watch ---------------------------------------------------------------------------------------

    @rule(priority=st.integers(0, 3), gated=st.booleans(), node=st.sampled_from(["", "node-1", "node-2"]))
    def add(self, priority: int, gated: bool, node: str) -> None:
        self.count += 1
        one = pod(f"pod-{self.count}", priority=priority, gates=("hold",) if gated else (), nominated_node_name=node)
        self.waiting[one.uid] = one
        self.queue.add(one)
        assert self.queue.where(one.uid) == ("gated" if gated else "active")

    def any_known(self, data: st.DataObject) -> Pod | None:
        known = {**self.waiting, **self.flying}
        if not known:
            return None
        return known[data.draw(st.sampled_from(sorted(known)))]

    @rule(data=st.data(), change=st.sampled_from(["labels", "gates", "nothing", "priority"]))
    def update(self, data: st.DataObject, change: str) -> None:
        old = self.any_known(data)
        if old is None:
            return
        before = self.queue.where(old.uid)
        diagnose = self.diagnose(old.uid)
        self.count += 1
        new = {
            "labels": replace(old, labels={"version": str(self.count)}),
            "gates": replace(old, gates=()),
            "priority": replace(old, priority=old.priority + 1),
            "nothing": old,
        }[change]
        self.queue.add(new)
        if old.uid in self.flying:
            self.flying[old.uid] = new
            self.gone.discard(old.uid)
            if change == "labels":
                self.happened[old.uid].add(LABEL)
            assert self.queue.where(old.uid) == "in_flight"
        else:
            self.waiting[old.uid] = new
        if change == "gates" and before == "gated":
            assert self.queue.where(old.uid) == "active"
        if before == "unschedulable":
            woken = change == "labels" and "labels" in diagnose
            assert (self.queue.where(old.uid) != "unschedulable") is woken

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        one = self.any_known(data)
        if one is None:
            return
        nominated = self.queue.nominator.nominated.get(one.uid, "")
        self.queue.delete(one.uid)
        if one.uid in self.flying:
            self.gone.add(one.uid)
        else:
            del self.waiting[one.uid]
        assert self.queue.nominator.nominated.get(one.uid, "") == ""
        if nominated:
            # The room that was kept for it is there for those who had to leave it.
            for events in self.happened.values():
                events.add(ev.ASSIGNED_POD_DELETE)
            for shown in dump(self.queue, limit=10_000)["unschedulable"]:
                cured = [name for name in shown.unschedulable_plugins if ev.ASSIGNED_POD_DELETE in CURES[name]]
                assert not cured or shown.priority > one.priority

    @rule(event=EVENTS)
    def event_happens(self, event: ClusterEvent) -> None:
        for events in self.happened.values():
            events.add(event)
        self.queue.move_all(event, None, object())
        for shown in dump(self.queue, limit=10_000)["unschedulable"]:
            cured = [name for name in shown.unschedulable_plugins if event in CURES[name]]
            assert not cured, f"{shown.key} slept through {event}, which {cured} waited for"

    @rule(data=st.data())
    def activate(self, data: st.DataObject) -> None:
        one = self.any_known(data)
        if one is None:
            return
        before = self.queue.where(one.uid)
        self.queue.activate([one.uid])
        if before in ("backoff", "unschedulable", "active"):
            assert self.queue.where(one.uid) == "active"
        elif one.uid in self.flying:
            self.happened[one.uid].add(ev.FORCE_ACTIVATE)

    # -- the loop ----------------------------------------------------------------------------------------

    @rule(target=attempts)
    def pop(self):
        page = dump(self.queue, limit=10_000)
        active = [self.entry_key(shown.uid) for shown in page["active"]]
        counts = {shown.uid: shown.attempts for shown in [*page["active"], *page["backoff"]]}
        ready = self.queue.has_ready
        entry = self.queue.pop()
        assert ready is (entry is not None)
        if entry is None:
            assert not active
            return multiple()
        if active:
            assert entry.uid == min(active)[-1]
        assert entry.attempts == counts[entry.uid] + 1
        assert entry.initial_attempt_timestamp is not None
        assert entry.pod is self.waiting[entry.uid], "an old version of the pod was popped"
        self.flying[entry.uid] = self.waiting.pop(entry.uid)
        self.happened[entry.uid] = set()
        return entry

    def land(self, entry: QueuedPodInfo) -> bool:
        """The attempt is over; whether its pod still wants a node."""
        one = self.flying.pop(entry.uid)
        if entry.uid in self.gone:
            self.gone.discard(entry.uid)
            return False
        self.waiting[entry.uid] = one
        return True

    @rule(entry=consumes(attempts))
    def bind(self, entry: QueuedPodInfo) -> None:
        self.queue.done(entry.uid)
        self.queue.scheduled(entry)
        self.queue.nominator.delete(entry.uid)
        self.flying.pop(entry.uid)
        self.gone.discard(entry.uid)
        del self.happened[entry.uid]

    @rule(entry=consumes(attempts), plugins=PLUGINS, pending=PLUGINS)
    def refuse(self, entry: QueuedPodInfo, plugins: frozenset[str], pending: frozenset[str]) -> None:
        happened = self.happened.pop(entry.uid)
        cured = {name for name in plugins | pending if CURES[name] & happened}
        wants = self.land(entry)
        place = self.queue.add_unschedulable(entry, unschedulable_plugins=plugins, pending_plugins=pending)
        if not wants:
            assert place is None
        elif not plugins | pending:
            assert place == "backoff"
        elif cured & pending:
            assert place == "active"
        elif cured or ev.FORCE_ACTIVATE in happened:
            assert place == "backoff"
        else:
            assert place == "unschedulable"

    @rule(entry=consumes(attempts))
    def lose_the_race(self, entry: QueuedPodInfo) -> None:
        del self.happened[entry.uid]
        wants = self.land(entry)
        spent = entry.urgent_retries == 2
        assert self.queue.requeue_urgent(entry) is (wants and not spent)
        if wants:
            assert self.queue.where(entry.uid) == ("backoff" if spent else "active")

    # -- time --------------------------------------------------------------------------------------------

    @rule(seconds=st.floats(0, 20, allow_nan=False))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.step(seconds)
        self.queue.flush_backoff()
        for shown in dump(self.queue, limit=10_000)["backoff"]:
            assert shown.backoff_expiration > self.world.clock.now

    @rule()
    def a_long_time_passes(self) -> None:
        self.world.clock.step(400)
        self.queue.flush_unschedulable_leftovers()
        self.queue.flush_backoff()
        counts = self.queue.pending()
        assert counts.unschedulable == counts.backoff == 0, "a pod was forgotten"

    # -- what always holds -------------------------------------------------------------------------------

    def diagnose(self, uid: str) -> set[str]:
        for shown in dump(self.queue, limit=10_000)["unschedulable"]:
            if shown.uid == uid:
                return {*shown.unschedulable_plugins, *shown.pending_plugins}
        return set()

    def entry_key(self, uid: str) -> tuple[int, int, float, int, str]:
        order = [shown.uid for shown in dump(self.queue, limit=10_000)["active"]]
        for shown in dump(self.queue, limit=10_000)["active"]:
            if shown.uid == uid:
                return (-shown.urgent, -shown.priority, shown.timestamp, order.index(uid), uid)
        raise AssertionError(uid)

    @invariant()
    def every_pod_is_in_exactly_one_place(self) -> None:
        self.queue.check_invariants()
        page = dump(self.queue, limit=10_000)
        shown = [(one.uid, str(place)) for place, pods in page.items() for one in pods]
        assert len(shown) == len({uid for uid, _ in shown})
        # Counted are active, backoff, unschedulable, gated and in flight, in that order.
        assert self.queue.pending() == tuple(len(page[place]) for place in Place)
        flying = {uid for uid, place in shown if place == "in_flight"}
        assert flying == self.flying.keys()
        assert {uid for uid, _ in shown} - flying == self.waiting.keys()
        for uid, place in shown:
            found = find(self.queue, uid)
            assert self.queue.where(uid) == place and found is not None and found.pod.uid == uid
            assert (place == "gated") == (uid in self.waiting and bool(self.waiting[uid].gates))

    @invariant()
    def the_gauges_agree_with_the_queue(self) -> None:
        recorder = self.world.recorder
        assert all(count >= 0 for count in recorder.unschedulable_gauge.values())
        kept = self.queue.kept_in_flight()
        assert kept["PodPopped"] == len(self.flying)
        if not self.flying:
            assert kept == {"PodPopped": 0}
        if not self.waiting:
            assert not any(recorder.unschedulable_gauge.values())


TestQueueModel = QueueMachine.TestCase
TestQueueModel.settings = settings(examples(150), stateful_step_count=60)
