"""The cluster's state as known to the schedulers of a process, and the paths of its changes to ledger and queues.

All changes arrive here from the watches, one at a time and in the order of the API server. Everything below is
synchronous, so the state is consistent between two awaits.

Invariants:
- the subscriber of a profile, if any, knows every existing pod of the profile without a node; such a pod is in the
  ledger only if assumed; a pod on a node is in the ledger, and waits in no subscriber;
- the ledger counts every pod on a node, regardless of who put it there; a profile has at most one subscriber;
- every subscriber receives every event, regardless of its own pods.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msgspec.structs import replace

from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.events import events
from agent_scheduler.engine.events.signals import Signal
from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.gangs.native import NativeGroup, NativeGroups
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.queueing.entry import QueuedPodInfo
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.state.namespaces import Namespaces
from agent_scheduler.engine.state.nodeinfo import NodeInfo, node_change_events
from agent_scheduler.engine.state.owners import Owners
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.targetworkload import TargetWorkload
from agent_scheduler.engine.volumes.catalogue import Catalogue
from agent_scheduler.objects.batch import Queue
from agent_scheduler.telemetry.observers import MetricsObserver
from apimachinery.labels import Labels

from .standing_by import StandingBy
from .subscribers import EventReceivers, Subscriber

#: A waiting pod, or one taken off the queue.
Entry = QueuedPodInfo


class PodListener(Protocol):
    """Receives changes of our waiting pods and of Kubernetes' own PodGroups, after the cluster has applied them."""

    def settled(self, pod: PodInfo, node_name: str) -> None:
        """Handle a pod that no longer waits: it got a node, or left without one, and then `node_name` is empty."""

    def seen(self, pod: PodInfo) -> None:
        """Handle a change of a waiting pod that has, or had, a condition."""

    def group_seen(self, group: NativeGroup) -> None:
        """Handle an added or changed PodGroup."""

    def group_gone(self, group: NativeGroup) -> None:
        """Handle a deleted PodGroup."""


class KnownPods:
    """The pods and PodGroups as last seen, and the schedulers that pods belong to. Only the cluster changes them.

    They exist before the queues, which ask whether a pod still waits, and before the cluster.
    """

    def __init__(self) -> None:
        #: All unfinished pods by UID, in their last seen version.
        self.pods: dict[str, PodInfo] = {}
        #: Kubernetes' own PodGroups and their members, as last seen.
        self.groups = NativeGroups()
        #: Profile -> the scheduler of its pods.
        self.subscribers: dict[str, Subscriber] = {}

    def waits(self, uid: str) -> bool:
        """Return whether the pod exists, has no node and names one of our profiles."""
        pod = self.pods.get(uid)
        return pod is not None and self.is_ours(pod)

    def is_ours(self, pod: PodInfo) -> bool:
        """Return whether this version of the pod has no node and names one of our profiles."""
        return not (pod.node_name or pod.deleting or pod.finished) and pod.scheduler_name in self.subscribers


class Cluster:
    """Owns the last seen pods and nodes; informs the ledger and the schedulers."""

    def __init__(
        self,
        *,
        known: KnownPods,
        ledger: Ledger,
        devices: Devices,
        queue: SchedulingQueue,
        listener: PodListener,
        observer: MetricsObserver,
        counts_others: bool = False,
    ) -> None:
        """Give the pods of the queue's profiles to the queue.

        With `counts_others`, other schedulers use nodes of the same cluster, and their pods count in the same queues,
        even before they have a node.
        """
        self.ledger = ledger
        self._counts_others = counts_others
        self.namespaces = Namespaces()
        #: The last seen storage objects, and the assumptions of decisions about them.
        self.catalogue = Catalogue()
        #: The owners by which pods are spread by default, for profiles that do so.
        self.owners = Owners()
        #: The last seen devices, and the assumptions of decisions about them.
        self.devices = devices
        #: Kubernetes' own PodGroups and their members, as last seen.
        self.groups = known.groups
        #: The kinds of arriving pods, counted while a profile needs them.
        self.target_workload = TargetWorkload()
        self.handle = Handle(
            ledger,
            namespaces=self.namespaces,
            owners=self.owners,
            catalogue=self.catalogue,
            devices=self.devices,
            target_workload=self.target_workload,
        )
        #: The queue of the fast path.
        self.queue = queue
        self.events = EventReceivers(queue)
        #: Profile -> the scheduler of its pods.
        self._subscribers = known.subscribers
        self._subscribers.update(dict.fromkeys(queue.hint_maps, queue))
        #: All unfinished pods by UID, in their last seen version.
        self.pods = known.pods
        #: See `KnownPods`.
        self.waits = known.waits
        self.is_ours = known.is_ours
        #: The waiting ones that name none of our profiles; and the names of profiles that were ours.
        self.strangers: dict[str, PodInfo] = {}
        self.released: set[str] = set()
        self.standing_by = StandingBy()
        self._observer = observer
        self._listener = listener
        #: A PodGroup was added or changed, and the listener was notified.
        self.group_seen: Signal[[NativeGroup]] = Signal()

    def subscribe(self, subscriber: Subscriber, profiles: Collection[str]) -> None:
        """Give the pods of these unassigned profiles to the subscriber. Call it before the first pod is seen."""
        assert not self._subscribers.keys() & set(profiles), "a pod has one who finds it a node"
        self._subscribers.update(dict.fromkeys(profiles, subscriber))
        self.events.also_tell(subscriber)

    # ---- questions

    @property
    def profiles(self) -> Collection[str]:
        """The names of all profiles of this process."""
        return self._subscribers.keys()

    def is_beside(self, pod: PodInfo) -> bool:
        """Return whether another scheduler of this process than the fast path schedules the pod."""
        return self._subscribers.get(pod.scheduler_name, self.queue) is not self.queue

    def activate(self, pod: PodInfo) -> None:
        """Try a waiting pod again, regardless of the reason for its rejection."""
        if self.waits(pod.uid):
            self._subscribers[pod.scheduler_name].activate((pod.uid,))

    def _is_bound(self, pod: PodInfo) -> bool:
        """Return whether its bind has succeeded, even if the watch has not shown it yet."""
        placement = self.ledger.placements.get(pod.uid)
        return placement is not None and not placement.assumed

    def release(self, profiles: Collection[str]) -> None:
        """Give up the pods of these profiles of the fast path. They leave the queue; binds in progress continue."""
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
        """Give the pods of these profiles to the fast path, whose queue knows the profiles already."""
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
        """Handle an added or changed pod."""
        if pod.finished:
            # A finished pod uses nothing, though its object may stay for long.
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
            # Only a store that was restored from a backup revokes a binding.
            self.events.move_all(events.ASSIGNED_POD_DELETE, old)
        if self.is_ours(pod):
            if self._is_bound(pod):
                # This version is older than the bind, so the pod no longer waits.
                return
            if pod.cls.error and (old is None or old.cls is not pod.cls):
                self._observer.malformed("Pod", pod.key, pod.cls.error)
            waiting = self._as_it_waits(pod) if pod.nominated_node_name else pod
            self._subscribers[pod.scheduler_name].add(waiting)
            if pod.condition is not None or (old is not None and old.condition is not None):
                self._listener.seen(pod)
            if self.ledger.usage.room.active or pod.batch is not None:
                self.ledger.usage.seen(pod)
        elif self._counts_of_others(pod):
            self.ledger.usage.seen(pod)
        elif old is not None:
            # It is being deleted while it waits, so it needs no node.
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
                # Its previous devices may be free.
                self.events.move_all(events.ASSIGNED_POD_DELETE, old)
            return
        if old is not None and not old.node_name:
            self._leave_queue(old, pod.node_name)
        self.events.move_all(events.ASSIGNED_POD_ADD, None, pod)
        if before is not None and changed:
            # It was assumed on another node or with other requests, some of which are free now.
            self.events.move_all(events.ASSIGNED_POD_DELETE, old or replace(pod, node_name=""))

    def _leave_queue(self, pod: PodInfo, node_name: str = "") -> None:
        subscriber = self._subscribers.get(pod.scheduler_name)
        if subscriber is not None:
            subscriber.delete(pod.uid, node_name=node_name)
            self._listener.settled(pod, node_name)
        elif self._counts_others:
            self.ledger.usage.left(pod.uid)

    def _counts_of_others(self, pod: PodInfo) -> bool:
        """Return whether a waiting pod of another scheduler uses, or has used, the gate of its queue's capacity."""
        if not self._counts_others or pod.node_name or pod.deleting or pod.scheduler_name in self._subscribers:
            return False
        return pod.uid in self.ledger.usage.gated or (pod.batch is not None and pod.batch.gate_managed)

    def delete_pod(self, uid: str) -> None:
        """Handle a deleted or finished pod; no-op if unknown."""
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
        """Handle a failed bind: release the room and inform the schedulers."""
        # First, so that others of its gang do not get the room as if it still counted for the minimum.
        self._gang_changed(pod)
        if self.ledger.forget(pod.uid) is not None:
            self.standing_by.member_lost_room(pod, self.pods.values(), self.ledger.placements)
            self.events.move_all(events.ASSIGNED_POD_DELETE, pod)
            seen = self.pods.get(pod.uid)
            if seen is not None and seen.nominated_node_name and not self.queue.nominator.nominated.get(pod.uid, ""):
                self.queue.nominate(seen, seen.nominated_node_name)

    def _as_it_waits(self, pod: PodInfo) -> PodInfo:
        """Return the pod without a nomination to the node where it is assumed, since its room there is taken."""
        placement = self.ledger.placements.get(pod.uid)
        if placement is None or placement.node_name != pod.nominated_node_name:
            return pod
        return replace(pod, nominated_node_name="")

    # ---- groups

    def set_native_group(self, group: NativeGroup) -> None:
        """Handle an added or changed PodGroup."""
        old = self.groups.get(group.key)
        self.ledger.usage.set_native_group(group.key, exists=True)
        self._listener.group_seen(group)
        self.group_seen(group)
        if self.groups.set(group):
            self.events.move_all(events.POD_GROUP_ADD if old is None else events.POD_GROUP_UPDATE, old, group)

    def delete_native_group(self, group: NativeGroup) -> None:
        """Handle a deleted PodGroup. Its bound members stay bound, and the others wait for a new group."""
        self.groups.delete(group)
        self.ledger.usage.set_native_group(group.key, exists=self.groups.get(group.key) is not None)
        self._listener.group_gone(group)

    def _gang_changed(self, member: PodInfo) -> None:
        """Reconsider whether others of its gang may pass the gate of their queue."""
        gated = self.ledger.usage.gated
        if gated.held and member.batch is not None and member.batch.group is not None:
            gated.group_changed(member.batch.group)

    # ---- queues

    def set_queue(self, queue: Queue) -> None:
        """Handle an added or changed queue."""
        problems = self.ledger.usage.set_queue(queue)
        if problems:
            self._observer.malformed("Queue", queue.name, "; ".join(problems))

    def delete_queue(self, queue: Queue) -> None:
        self.ledger.usage.delete_queue(queue.name)

    # ---- namespaces

    def set_namespace(self, name: str, labels: Labels | None, queue: str = "") -> None:
        """Handle an added, changed or (`labels` None) deleted namespace.

        `queue` is that of its pods without a queue.
        """
        if self.ledger.usage.set_namespace(name, queue, labels or {}):
            for pod in self.pods.values():
                if pod.namespace == name and self.is_beside(pod) and self.is_ours(pod):
                    # The usage informs the fast path, but not the other schedulers.
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
        """Handle an added or changed node."""
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
        """Handle a deleted node. Its pods stay known until the API server deletes them."""
        old = self.ledger.node(name)
        if self.ledger.remove_node(name):
            self.devices.forget_node(name)
            self.standing_by.node_gone()
            self.events.move_all(events.NODE_DELETE, old, None)
