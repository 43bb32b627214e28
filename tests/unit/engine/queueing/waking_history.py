"""One random history, told to two scheduling queues that differ in the gate alone: after every step the same pods have
to be in the same places, in the same order.

The pods, nodes and storage objects are real, and so are all hints and pre-hints of the plugins. Who refuses a pod is
drawn by chance, so that every plugin is asked about pods that it would refuse and about others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.framework.plugin import NO_NODES, POD_SPEC
from agent_scheduler.engine.gangs.native import NativeGroups
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.queueing.entry import QueuedPodInfo
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.state.namespaces import NamespaceInfo
from agent_scheduler.engine.state.nodeinfo import NodeInfo, node_change_events
from tests.support.engine import put
from tests.support.queues import scheduling_queue

from .queue_world import Clock, Recorder
from .waking_objects import NAMESPACES, NODES, Json, Objects

Queue = SchedulingQueue

#: How many pods wait at a time, about.
_WAITING = 60


class History:
    """Owner of the two queues and of the cluster that they hear of."""

    def __init__(self, seed: int, *, bursts: bool = False, portion: int = 0) -> None:
        """`bursts`: the queue with pre-hints gathers what happens in a step. `portion`: it asks about so many pods at a
        time, and the rest of it at the end of the step."""
        self.chance = random.Random(seed)
        self.bursts = bursts
        self.portion = portion
        #: How often something was left of an event when the next change came.
        self.left = 0
        self.objects = Objects(self.chance)
        #: What both queues' hints about claims look at.
        self.devices = Devices()
        #: What those about room look at. Somebody of the lowest priority is always there: who may preempt others hears
        #: of more, and the gate goes by what was so when the event was first looked at.
        self.ledger = Ledger()
        lowest = self.objects.pod(node_name="elsewhere")
        lowest["spec"]["priority"] = 0
        self.ledger.set_pod(self.objects.read(lowest), "elsewhere")
        profile = build_profile(ProfileSpec(scheduler_name="agent-scheduler", base="default-scheduler"))
        self.profile = profile.seeing(self.ledger, self.devices, NativeGroups())
        self.clock = Clock()
        self.recorders = (Recorder(), Recorder())
        self.narrowed, self.scanned = (
            self._queue(pre_hints, recorder) for pre_hints, recorder in zip((True, False), self.recorders, strict=True)
        )
        self.queues = (self.narrowed, self.scanned)
        if portion:
            self.narrowed.waker.portion = portion
        hints = self.profile.hint_map()
        self.plugins = sorted({NO_NODES, POD_SPEC, "DefaultPreemption", *(each.name for each in self.profile.filters)})
        assert all(hints.events_of(plugin) for plugin in self.plugins)
        self.waiting: dict[str, Json] = {}
        self.assigned: dict[str, Json] = {}
        self.flying: dict[str, tuple[QueuedPodInfo, QueuedPodInfo]] = {}
        self.nodes: dict[str, NodeInfo] = {}
        self.namespaces: dict[str, NamespaceInfo] = {}
        self.makers = self.objects.storage()
        self.device_makers = self.objects.devices()
        self.stored: dict[tuple[Resource, object], object] = {}
        self.events = 0

    def _queue(self, pre_hints: bool, recorder: Recorder) -> Queue:
        return scheduling_queue(
            {"agent-scheduler": self.profile.hint_map()},
            clock=self.clock,
            pre_enqueue={"agent-scheduler": self.profile.pre_enqueue},
            pre_queueing_hints=pre_hints,
            recorder=recorder,
            max_inflight_events=20,
        )

    # ---- the walk

    def run(self, events: int) -> None:
        """Go on until so many events happened."""
        steps = 0
        while self.events < events:
            self._step()
            self.compare()
            steps += 1
            if steps % 25 == 0:
                for queue in self.queues:
                    queue.check_invariants()

    def _step(self) -> None:
        while len(self.waiting) < _WAITING:
            self._arrive()
        self._attempts()
        several = self.bursts or self.portion
        changes = [self._change() for _ in range(self.chance.randint(2, 6) if several else 1)]
        with self.narrowed.burst() if self.bursts else nullcontext():
            for change in changes:
                for say in change:
                    self.left += bool(self.narrowed.waker.backlog)
                    for queue in self.queues:
                        say(queue)
                    if self.portion and self.chance.random() < 0.3:
                        self.narrowed.go_on()
                        self.narrowed.check_invariants()
        while self.narrowed.waker.backlog:
            self.narrowed.go_on()
        self.clock.step(self.chance.choice((0, 0.2, 1.5)))
        for queue in self.queues:
            queue.flush_backoff()

    def compare(self) -> None:
        # What is asked apart leaves before its turn; of no two pods is the time the same then, which decides.
        order = sorted if self.portion else list
        narrowed, scanned = ([order(each) for each in self._places(queue)] for queue in self.queues)
        assert narrowed == scanned, f"after {self.events} events"

    @staticmethod
    def _places(queue: Queue) -> tuple[list[Any], ...]:
        places = queue.places
        return (
            list(places.unschedulable.entries),
            [(entry.uid, entry.gating_plugin) for entry in places.unschedulable],
            [entry.uid for entry in places.active],
            [(entry.uid, entry.backoff_expiration) for entry in places.backoff],
            [flying.entry.uid for flying in places.in_flight],
        )

    # ---- pods

    def _arrive(self) -> None:
        body = self.objects.pod()
        self.waiting[body["metadata"]["uid"]] = body
        pod = self.objects.read(body)
        self._tick()
        for queue in self.queues:
            queue.add(pod)

    def _tick(self) -> None:
        if self.portion:
            self.clock.step(1e-6)

    def _attempts(self) -> None:
        for _ in range(self.chance.choice((1, 2, 8, 30))):
            first, second = (queue.pop() for queue in self.queues)
            if first is None or second is None:
                assert first is second
                break
            assert first.uid == second.uid and first.pod is second.pod
            self.flying[first.uid] = (first, second)
        for uid in list(self.flying):
            if self.chance.random() < 0.4:
                self._land(uid)

    def _land(self, uid: str) -> None:
        first, second = self.flying.pop(uid)
        if uid in self.waiting and self.chance.random() < 0.05:
            body = self.waiting.pop(uid)
            spec = {**body["spec"], "nodeName": self.chance.choice(NODES)}
            self.assigned[uid] = {**body, "spec": spec}
            pod = self.objects.read(self.assigned[uid])
            self.ledger.set_pod(pod, pod.node_name)
            self.events += 1
            for queue in self.queues:
                queue.done(uid)
                queue.move_all(ev.ASSIGNED_POD_ADD, None, pod)
            return
        self._tick()
        count = self.chance.choice((0, 1, 1, 1, 2, 3))
        # In the order in which they were drawn: that of a set is another in each process.
        drawn = self.chance.sample(self.plugins, count)
        plugins = frozenset(drawn)
        pending = frozenset(each for each in drawn if self.chance.random() < 0.1)
        places = [
            queue.add_unschedulable(entry, unschedulable_plugins=plugins - pending, pending_plugins=pending)
            for queue, entry in zip(self.queues, (first, second), strict=True)
        ]
        assert places[0] == places[1], f"{uid}, refused by {sorted(plugins)}, after {self.events} events"

    # ---- what happens

    def _change(self) -> list[Callable[[Queue], object]]:
        """What to tell each queue of one change."""
        kinds: tuple[tuple[int, Callable[[], Iterator[Callable[[Queue], object]]]], ...] = (
            (6, self._own_update),
            (2, self._deleted),
            (2, self._pod_assigned),
            (6, self._assigned_changes),
            (4, self._assigned_goes),
            (6, self._node),
            (2, self._namespace),
            (12, self._storage),
            # Hints about devices look at them as they are, so that in a burst the last state answers for all.
            (0 if self.bursts or self.portion else 6, self._claimed),
            (1, self._rare),
        )
        weights, changes = zip(*kinds, strict=True)
        (change,) = self.chance.choices(changes, weights)
        said = list(change())
        self.events += len(said)
        return said

    def _own_update(self) -> Iterator[Callable[[Queue], object]]:
        uid = self.chance.choice(list(self.waiting))
        how = self.chance.choice(
            ("labels", "labels", "resources", "tolerations", "gates", "claims", "nominated", "nothing")
        )
        old = self.waiting[uid]
        body = self.waiting[uid] = self.objects.changed(old, how)
        after = self.objects.read(body)
        yield lambda queue: queue.add(after)

    def _deleted(self) -> Iterator[Callable[[Queue], object]]:
        uid = self.chance.choice(list(self.waiting))
        del self.waiting[uid]
        yield lambda queue: queue.delete(uid)

    def _pod_assigned(self) -> Iterator[Callable[[Queue], object]]:
        body = self.objects.pod(node_name=self.chance.choice(NODES))
        self.assigned[body["metadata"]["uid"]] = body
        pod = self.objects.read(body)
        self.ledger.set_pod(pod, pod.node_name)
        yield lambda queue: queue.move_all(ev.ASSIGNED_POD_ADD, None, pod)

    def _assigned_changes(self) -> Iterator[Callable[[Queue], object]]:
        if not self.assigned:
            return
        uid = self.chance.choice(list(self.assigned))
        old = self.assigned[uid]
        body = self.assigned[uid] = self.objects.changed(old, self.chance.choice(("labels", "resources")))
        before, after = self.objects.read(old), self.objects.read(body)
        self.ledger.set_pod(after, after.node_name)
        yield lambda queue: queue.assigned_pod_updated(before, after)

    def _assigned_goes(self) -> Iterator[Callable[[Queue], object]]:
        # Many deletions wake whomever room was lacking, so they are rarer than what is told of here.
        if len(self.assigned) < 15:
            return
        pod = self.objects.read(self.assigned.pop(self.chance.choice(list(self.assigned))))
        self.ledger.remove_pod(pod.uid)
        yield lambda queue: queue.move_all(ev.ASSIGNED_POD_DELETE, pod)

    def _node(self) -> Iterator[Callable[[Queue], object]]:
        name = self.chance.choice(NODES)
        old = self.nodes.pop(name, None)
        if old is not None and self.chance.random() < 0.2:
            self.ledger.remove_node(name)
            yield lambda queue: queue.move_all(ev.NODE_DELETE, old, None)
            return
        new = self.nodes[name] = self.objects.node_info(name)
        self.ledger.set_node(new)
        events = [ev.NODE_ADD] if old is None else node_change_events(new, old)
        for event in events:
            yield lambda queue, event=event: queue.move_all(event, old, new)  # type: ignore[misc]

    def _namespace(self) -> Iterator[Callable[[Queue], object]]:
        name = self.chance.choice(NAMESPACES)
        old = self.namespaces.pop(name, None)
        if old is not None and self.chance.random() < 0.2:
            yield lambda queue: queue.move_all(ev.NAMESPACE_DELETE, old, None)
            return
        new = self.namespaces[name] = self.objects.namespace(name)
        event = ev.NAMESPACE_ADD if old is None else ev.NAMESPACE_UPDATE
        yield lambda queue: queue.move_all(event, old, new)

    def _storage(self) -> Iterator[Callable[[Queue], object]]:
        kind = self.chance.choice(list(self.makers))
        if self.chance.random() < 0.5:
            kind = Resource.PERSISTENT_VOLUME_CLAIM
        name = f"{'claim' if kind is Resource.PERSISTENT_VOLUME_CLAIM else kind}-{self.chance.randrange(8)}"
        old = self.stored.pop((kind, name), None)
        if old is not None and self.chance.random() < 0.3:
            yield lambda queue: queue.move_all(ClusterEvent(kind, ActionType.DELETE), old, None)
            return
        new = self.stored[kind, name] = self.makers[kind](name)
        if old is not None and self.chance.random() < 0.1:
            new = self.stored[kind, name] = old  # what was given back is told once more
            old = None
        action = ActionType.ADD if old is None else ActionType.UPDATE
        yield lambda queue: queue.move_all(ClusterEvent(kind, action), old, new)

    def _claimed(self) -> Iterator[Callable[[Queue], object]]:
        books = self.devices
        kind = self.chance.choice((Resource.RESOURCE_CLAIM, *self.device_makers))
        names: dict[Resource, Sequence[str]] = {
            Resource.RESOURCE_CLAIM: self.objects.device_claims,
            Resource.DEVICE_CLASS: ("gpu", "nic"),
            Resource.RESOURCE_SLICE: ("slice-0", "slice-1", "slice-2"),
        }
        new = self.device_makers[kind](self.chance.choice(names[kind]))
        drop: dict[Resource, Callable[[], object]] = {
            Resource.RESOURCE_CLAIM: lambda: books.delete_claim(new.key),
            Resource.DEVICE_CLASS: lambda: books.delete_class(new.name),
            Resource.RESOURCE_SLICE: lambda: books.pools.delete_slice(new.name),
        }
        key = kind, (new.namespace, new.name)
        old = self.stored.get(key)
        if old is not None and self.chance.random() < 0.3:
            del self.stored[key]
            drop[kind]()
            yield lambda queue: queue.move_all(ClusterEvent(kind, ActionType.DELETE), old, None)
        elif put(books, new):
            self.stored[key] = new
            action = ActionType.ADD if old is None else ActionType.UPDATE
            yield lambda queue: queue.move_all(ClusterEvent(kind, action), old, new)

    def _rare(self) -> Iterator[Callable[[Queue], object]]:
        uids = self.chance.sample(list(self.waiting), 3)
        pod = self.objects.read(self.waiting[uids[0]])
        match self.chance.randrange(4):
            case 0:
                yield lambda queue: queue.activate(uids)
            case 1:
                node_name = self.chance.choice(("", *NODES))
                yield lambda queue: queue.nominate(pod, node_name)
            case 2:
                self.clock.step(400)
                yield lambda queue: queue.flush_unschedulable_leftovers()
            case 3:
                yield lambda queue: queue.move_all(ev.RULES_CHANGED)
