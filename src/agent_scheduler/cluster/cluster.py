"""What the schedulers of a process know of the cluster, and how each change of it reaches ledger and queues.

Every change comes in here, from the watches, one at a time and in the order of the API server; everything below
is synchronous, so between two awaits the state is whole.

Invariants:
- a pod that exists and has no node is known to the subscriber of its profile, if there is one, and is never in the
  ledger except as assumed; a pod on a node is in the ledger, and no subscriber waits with it;
- the ledger counts every pod on a node, whoever put it there; a profile has one subscriber at most;
- every subscriber is told of every event, whatever pods are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from msgspec.structs import replace

from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.events import events
from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.gangs.native import NativeGroup, NativeGroups
from agent_scheduler.engine.queueing.entry import QueuedPodInfo
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.state.labelselector import Labels
from agent_scheduler.engine.state.ledger import Ledger
from agent_scheduler.engine.state.namespaces import Namespaces
from agent_scheduler.engine.state.nodeinfo import NodeInfo, node_change_events
from agent_scheduler.engine.state.owners import Owners
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.targetworkload import TargetWorkload
from agent_scheduler.engine.volumes.catalogue import Catalogue
from agent_scheduler.objects.batch import Queue

from .standing_by import StandingBy
from .subscribers import Events, Subscriber

#: A pod that was popped, or waits.
Entry = QueuedPodInfo[PodInfo]


class ClusterObserver(Protocol):
    """Is told of what is wrong in the cluster's objects, once an object and version."""

    def malformed(self, kind: str, key: str, problem: str) -> None: ...


class Cluster:
    """Owner of the pods and nodes as last seen; feeds the ledger and whoever finds nodes for pods."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        queue: SchedulingQueue[PodInfo],
        profiles: Collection[str],
        observer: ClusterObserver,
        settled: Callable[[PodInfo], None],
        devices: Devices | None = None,
        groups: NativeGroups | None = None,
        group_gone: Callable[[NativeGroup], None] = lambda group: None,
        seen: Callable[[PodInfo], None] = lambda pod: None,
        counts_others: bool = False,
    ) -> None:
        """`settled` is called once for a pod of ours that got a node or went away without one; `group_gone` for a
        PodGroup of Kubernetes' own that went; `seen` for each change of a pod of ours that waits. `counts_others`:
        others have nodes of the same cluster, and their pods room in the same queues, also before they have a node."""
        self.ledger = ledger
        self._counts_others = counts_others
        self.namespaces = Namespaces()
        #: Storage as last seen, and what decisions assume of it.
        self.catalogue = Catalogue()
        #: Whom pods are spread among by default, for the profiles that do so.
        self.owners = Owners()
        #: What resource claims are allocated from, as last seen, and what decisions assume of it.
        self.devices = devices or Devices(ledger.touch)
        #: Kubernetes' own PodGroups as last seen, and their members.
        self.groups = NativeGroups() if groups is None else groups
        #: What pods come, counted while a profile asks.
        self.target_workload = TargetWorkload()
        self.handle = Handle(
            ledger,
            namespaces=self.namespaces,
            owners=self.owners,
            catalogue=self.catalogue,
            devices=self.devices,
            target_workload=self.target_workload,
        )
        #: The fast path's.
        self.queue = queue
        self.events = Events(queue)
        #: Profile -> who finds nodes for its pods.
        self._subscribers: dict[str, Subscriber] = dict.fromkeys(profiles, queue)
        #: Every pod that is not finished, by UID, at its last seen version.
        self.pods: dict[str, PodInfo] = {}
        #: Those of them that wait, and ask for none of our profiles; and names of profiles that were ours.
        self.strangers: dict[str, PodInfo] = {}
        self.released: set[str] = set()
        self.standing_by = StandingBy()
        self._observer = observer
        self._settled = settled
        self._seen = seen
        self._group_gone = group_gone
        #: Called with each PodGroup that was added or changed.
        self.on_group_seen: list[Callable[[NativeGroup], object]] = []

    def subscribe(self, subscriber: Subscriber, profiles: Collection[str]) -> None:
        """The pods of these profiles, which are nobody's yet, are this subscriber's. Before the first pod is seen."""
        assert not self._subscribers.keys() & set(profiles), "a pod has one who finds it a node"
        self._subscribers.update(dict.fromkeys(profiles, subscriber))
        self.events.also_tell(subscriber)

    # ---- questions

    @property
    def profiles(self) -> Collection[str]:
        """Names of all that this process has."""
        return self._subscribers.keys()

    def waits(self, uid: str) -> bool:
        """Whether the pod exists, has no node and asks for one of our profiles."""
        pod = self.pods.get(uid)
        return pod is not None and self.is_ours(pod)

    def is_ours(self, pod: PodInfo) -> bool:
        """Whether the pod, as it is given, has no node and asks for one of our profiles."""
        return not (pod.node_name or pod.deleting or pod.finished) and pod.scheduler_name in self._subscribers

    def is_beside(self, pod: PodInfo) -> bool:
        """Whether it is for another scheduler of this process than the fast path to find the pod a node."""
        return self._subscribers.get(pod.scheduler_name, self.queue) is not self.queue

    def activate(self, pod: PodInfo) -> None:
        """Have a pod tried again that waits, whatever it was refused for."""
        if self.waits(pod.uid):
            self._subscribers[pod.scheduler_name].activate((pod.uid,))

    def _is_bound(self, pod: PodInfo) -> bool:
        """Whether its bind has been answered, though the watch may not have shown it yet."""
        placement = self.ledger.placements.get(pod.uid)
        return placement is not None and not placement.assumed

    def release(self, profiles: Collection[str]) -> None:
        """The pods of these profiles of the fast path are no longer ours: they leave the queue, and binds under way go
        on."""
        for pod in self.pods.values():
            if pod.scheduler_name in profiles and self.is_ours(pod):
                self._leave_queue(pod)
        for name in profiles:
            del self._subscribers[name]
            self.released.add(name)
        self._look_for_strangers()
        for pod in self.pods.values():
            if pod.scheduler_name in profiles and self._counts_of_others(pod):
                self.ledger.usage.seen(pod)

    def take_on(self, profiles: Collection[str]) -> None:
        """The pods of these profiles are the fast path's from now on. The queue knows the profiles already."""
        new = frozenset(profiles) - self._subscribers.keys()
        self._subscribers.update(dict.fromkeys(new, self.queue))
        self.released -= new
        self._look_for_strangers()
        for pod in self.pods.values():
            if pod.scheduler_name in new and self.is_ours(pod) and not self._is_bound(pod):
                if pod.cls.error:
                    self._observer.malformed("Pod", pod.key, pod.cls.error)
                self.queue.add(pod)

    def _look_for_strangers(self) -> None:
        self.strangers = {uid: pod for uid, pod in self.pods.items() if self._is_stranger(pod)}

    def _is_stranger(self, pod: PodInfo) -> bool:
        return not (pod.node_name or pod.deleting) and pod.scheduler_name not in self._subscribers

    # ---- pods

    def set_pod(self, pod: PodInfo) -> None:
        """A pod was added or changed."""
        if pod.finished:
            # It holds nothing any more, though its object may stay for long.
            self.delete_pod(pod.uid)
            return
        old = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        if old is None and self.target_workload.wanted:
            self.target_workload.seen(pod.cls)
        joins = pod.batch is not None and self.groups.see(pod)
        if pod.batch is not None:
            self.standing_by.pod_changed(pod.uid)
            self._gang_changed(pod)
        if self._is_stranger(pod):
            self.strangers[pod.uid] = pod
        elif self.strangers:
            self.strangers.pop(pod.uid, None)
        if pod.node_name:
            self._set_assigned(pod, old)
            return
        if old is not None and old.node_name and self.ledger.remove_pod(pod.uid) is not None:
            # Only a store that was restored from a backup takes a binding back.
            self.events.move_all(events.ASSIGNED_POD_DELETE, old)
        if self.is_ours(pod):
            if self._is_bound(pod):
                # This was said before that: it waits for nothing any more.
                return
            if pod.cls.error and (old is None or old.cls is not pod.cls):
                self._observer.malformed("Pod", pod.key, pod.cls.error)
            waiting = self._as_it_waits(pod) if pod.nominated_node_name else pod
            self._subscribers[pod.scheduler_name].add(waiting)
            if pod.condition is not None or (old is not None and old.condition is not None):
                self._seen(pod)
            if self.ledger.usage.active or pod.batch is not None:
                self.ledger.usage.seen(pod)
        elif self._counts_of_others(pod):
            self.ledger.usage.seen(pod)
        elif old is not None:
            # It is being deleted while it waits: nobody needs a node for it.
            self._leave_queue(old)
        if joins:
            self.events.move_all(events.UNSCHEDULED_POD_ADD, None, pod)

    def _set_assigned(self, pod: PodInfo, old: PodInfo | None) -> None:
        if pod.cls.error and (old is None or old.cls is not pod.cls):
            self._observer.malformed("Pod", pod.key, pod.cls.error)
        before = self.ledger.placements.get(pod.uid)
        changed = self.ledger.set_pod(pod, pod.node_name)
        if old is not None and old.node_name == pod.node_name:
            self.events.assigned_pod_updated(old, pod)
            if changed and old.gpus != pod.gpus:
                # The devices that it was counted on may be free.
                self.events.move_all(events.ASSIGNED_POD_DELETE, old)
            return
        if old is not None and not old.node_name:
            self._leave_queue(old, pod.node_name)
        self.events.move_all(events.ASSIGNED_POD_ADD, None, pod)
        if before is not None and changed:
            # It was assumed on another node, or at another size: some of that room is free now.
            self.events.move_all(events.ASSIGNED_POD_DELETE, old or replace(pod, node_name=""))

    def _leave_queue(self, pod: PodInfo, node_name: str = "") -> None:
        subscriber = self._subscribers.get(pod.scheduler_name)
        if subscriber is not None:
            subscriber.delete(pod.uid, node_name=node_name)
            self._settled(pod)
        elif self._counts_others:
            self.ledger.usage.left(pod.uid)

    def _counts_of_others(self, pod: PodInfo) -> bool:
        """Whether it is another scheduler's, waits, and asks for the gate of its queue's capacity, or did so."""
        if (
            not self._counts_others
            or pod.node_name
            or pod.deleting
            or pod.scheduler_name in self._subscribers
        ):
            return False
        return pod.uid in self.ledger.usage.gated or (pod.batch is not None and pod.batch.gate_managed)

    def delete_pod(self, uid: str) -> None:
        """A pod is gone or finished. Unknown is fine."""
        pod = self.pods.pop(uid, None)
        self.strangers.pop(uid, None)
        if pod is None:
            return
        if pod.batch is not None:
            self.standing_by.pod_changed(uid)
            self.groups.drop(pod)
            self._gang_changed(pod)
        placement = self.ledger.remove_pod(uid)
        if not pod.node_name:
            self._leave_queue(pod)
        if placement is not None:
            self.events.move_all(events.ASSIGNED_POD_DELETE, pod)

    def forget(self, pod: PodInfo) -> None:
        """A bind came to nothing: give the room back and tell those who may use it."""
        # Before others of its gang have the room, as if it still counted for the minimum.
        self._gang_changed(pod)
        if self.ledger.forget(pod.uid) is not None:
            self.standing_by.member_lost_room(pod, self.pods.values(), self.ledger.placements)
            self.events.move_all(events.ASSIGNED_POD_DELETE, pod)
            seen = self.pods.get(pod.uid)
            if (
                seen is not None
                and seen.nominated_node_name
                and not self.queue.nominator.nominated.get(pod.uid, "")
            ):
                self.queue.nominate(seen, seen.nominated_node_name)

    def _as_it_waits(self, pod: PodInfo) -> PodInfo:
        """Without a nomination to the node where it is assumed: its room there is taken, and need not be kept."""
        placement = self.ledger.placements.get(pod.uid)
        if placement is None or placement.node_name != pod.nominated_node_name:
            return pod
        return replace(pod, nominated_node_name="")

    # ---- groups

    def set_native_group(self, group: NativeGroup) -> None:
        """A PodGroup was added or changed."""
        old = self.groups.get(group.key)
        self.ledger.usage.set_native_group(group.key, exists=True)
        self.ledger.usage.gated.group_changed(group.key)
        for seen in self.on_group_seen:
            seen(group)
        if self.groups.set(group):
            self.events.move_all(events.POD_GROUP_ADD if old is None else events.POD_GROUP_UPDATE, old, group)

    def delete_native_group(self, group: NativeGroup) -> None:
        """A PodGroup is gone. What of its members is bound stays so, and the others wait for another one."""
        self.groups.delete(group)
        self.ledger.usage.set_native_group(group.key, exists=self.groups.get(group.key) is not None)
        self.ledger.usage.gated.group_changed(group.key)
        self._group_gone(group)

    def _gang_changed(self, member: PodInfo) -> None:
        """Others of its gang may be let past the gate of their queue, or no more."""
        gated = self.ledger.usage.gated
        if gated.held and member.batch is not None and member.batch.group is not None:
            gated.group_changed(member.batch.group)

    # ---- queues

    def set_queue(self, queue: Queue) -> None:
        """A queue was added or changed."""
        problems = self.ledger.usage.set_queue(queue)
        if problems:
            self._observer.malformed("Queue", queue.name, "; ".join(problems))

    def delete_queue(self, queue: Queue) -> None:
        self.ledger.usage.delete_queue(queue.name)

    # ---- namespaces

    def set_namespace(self, name: str, labels: Labels | None, queue: str = "") -> None:
        """A namespace was added or changed; None: it is gone. `queue` is that of its pods that name none."""
        if self.ledger.usage.set_namespace(name, queue):
            for pod in self.pods.values():
                if pod.namespace == name and self.is_beside(pod) and self.is_ours(pod):
                    # Who finds nodes for it is not told by the usage, as the fast path is.
                    self.activate(pod)
                    break
        old = self.namespaces.get(name)
        if labels is None:
            self.namespaces.delete(name)
        else:
            self.namespaces.set(name, labels)
        new = self.namespaces.get(name)
        if new == old:
            return
        event = events.NAMESPACE_ADD if old is None else events.NAMESPACE_UPDATE
        self.events.move_all(events.NAMESPACE_DELETE if new is None else event, old, new)

    # ---- nodes

    def set_node(self, node: NodeInfo) -> None:
        """A node was added or changed."""
        old = self.ledger.node(node.name)
        if node.errors and (old is None or old.errors != node.errors):
            self._observer.malformed("Node", node.name, "; ".join(node.errors))
        if old is not None and old.uid != node.uid:
            self.delete_node(node.name)
            old = None
        self.ledger.set_node(node)
        if old is None:
            self.events.move_all(events.NODE_ADD, None, node)
            return
        for event in node_change_events(node, old):
            self.events.move_all(event, old, node)

    def delete_node(self, name: str) -> None:
        """A node is gone. Its pods stay known until the API server drops them."""
        old = self.ledger.node(name)
        if self.ledger.remove_node(name):
            self.devices.forget_node(name)
            self.standing_by.node_gone()
            self.events.move_all(events.NODE_DELETE, old, None)
