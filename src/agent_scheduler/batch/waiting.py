"""Decides when a session is due: a pod, group or queue was created or changed, or an event may help waiting pods.

Plugins decide which events help, as for the fast path, in a scheduling queue of the batch scheduler's own. One pod, the
representative, is in this queue for all pods of its group and class, so a thousand equal pods cost as much as one:

    session begins ──> representatives in flight ──> session ends ──> rejected by plugins: waits for their events
                                                        └─ bound or deleted: removed

Representatives of a settled group stay where they are until an event helps one of them; then all of the group's are in
flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from math import inf
from typing import Any, Final, NamedTuple

from agent_scheduler.cluster.cluster import Cluster, Entry
from agent_scheduler.cluster.groups import Groups
from agent_scheduler.engine.events.events import (
    ASSIGNED_POD_DELETE,
    NODE_SHARD_UPDATE,
    ActionType,
    ClusterEvent,
    Resource,
)
from agent_scheduler.engine.events.signals import Signal
from agent_scheduler.engine.queueing.entry import pod_change_events
from agent_scheduler.engine.queueing.queue import QueueSignals, SchedulingQueue
from agent_scheduler.engine.quotas.access import namespace_list
from agent_scheduler.engine.session.close import differ
from agent_scheduler.engine.session.results import GroupResult
from agent_scheduler.engine.session.settled import STRIDE, SettledJob
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podclaims import PodClaim
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import Verdict
from agent_scheduler.objects.batch import NOT_LET_IN, PENDING, NativePodGroup, PodGroup, PodGroupStatus, Queue

#: The pseudo-plugin that rejects pods before any node is considered: the queue is full, or the group is not admitted.
#: Events that free quota or change the cluster's size make a session due for all of them (`BatchWaitingPods.move_all`).
NOT_TRIED: Final = "QueueAdmission"

NO_PLUGINS: Final[frozenset[str]] = frozenset()
ONLY_NOT_TRIED: Final = frozenset((NOT_TRIED,))


class EquivalentPods(NamedTuple):
    """The pods of a group for which filters have the same results, and which the same events help."""

    group: GroupKey
    cls: PodClass
    #: The claims distinguish pods, since a claim created for one pod concerns no other.
    claims: tuple[PodClaim, ...]
    extended_claim: str


def kind_of(group: GroupKey, pod: PodInfo) -> EquivalentPods:
    return EquivalentPods(group, pod.cls, pod.claims, pod.extended_claim)


_NODE_GROWS: Final = ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE
_NODE_COUNTS: Final = _NODE_GROWS | ActionType.DELETE


class BatchWaitingPods:
    """Makes sessions due. Owner of `due`, the groups and the representatives; subscribes to the cluster and the groups.

    Invariant: each representative is in the queue, or in flight during a session, from before the session reads any
    state. So no event that arrives during the session is lost.
    """

    def __init__(
        self,
        scheduler_name: str,
        groups: Groups,
        cluster: Cluster,
        make_queue: Callable[[QueueSignals], SchedulingQueue],
    ) -> None:
        """Connect to the cluster and the groups, before anything is watched; `make_queue` creates the queue."""
        self._name = scheduler_name
        self.groups = groups
        self._cluster = cluster
        #: A waiting pod was added or changed.
        self.seen: Signal[[PodInfo]] = Signal()
        #: A waiting pod got a node or was deleted without one.
        self.settled: Signal[[PodInfo]] = Signal()
        #: A pod, as UID, does not wait any longer; the node is empty if it was deleted.
        self.left: Signal[[str, str]] = Signal()
        #: The group with this key and UID was deleted.
        self.group_gone: Signal[[GroupKey, str]] = Signal()
        #: Set while there is a reason for a session.
        self.due = asyncio.Event()
        #: Set when the next deadline becomes earlier.
        self.deadline_moved = asyncio.Event()
        #: The time at which a session becomes due without an event, in seconds of the epoch.
        self.due_at = inf
        #: The queue of the representatives, which no other scheduler uses.
        self.queue = make_queue(QueueSignals(ready=self._ready, deadline_moved=self.deadline_moved.set))
        #: The batch scheduler's pods without a node, by UID, as last seen.
        self.pods: dict[str, PodInfo] = {}
        #: The UIDs of those whose status nominates a node, in the order of observation.
        self.nominated: dict[str, None] = {}
        #: The fields of groups and queues that sessions read, as they were when a change last made one due.
        self._group_objects: dict[GroupKey, _ReadOfGroup] = {}
        self._queue_objects: dict[str, object] = {}
        #: The statuses that the last session decided, and the versions of groups as last seen.
        self._decided: dict[GroupKey, PodGroupStatus] = {}
        self._shown: dict[GroupKey, str] = {}
        self._standing_for: dict[EquivalentPods, str] = {}
        self._in_flight: dict[str, Entry] = {}
        #: Whether pods were rejected by no plugin, or groups, perhaps without pods, wait for room in the cluster.
        self._some_not_tried = False
        #: True while representatives are added; that these become active does not make another session due.
        self._beginning = False
        #: Whether an event that may help waiting pods has arrived since the current session began.
        self._heard = False
        #: The namespaces with groups that a quota kept from admission in the last session, and the namespaces whose
        #: quotas have changed since the current session began.
        self._kept_out: frozenset[str] = frozenset()
        self._quotas_heard: set[str] = set()
        #: Whether something that affects all jobs has changed, so that the next session must evaluate settled jobs too.
        self._all_anew = False
        cluster.subscribe(self, (scheduler_name,))
        cluster.queue.given_up.connect(self.given_up)
        cluster.ledger.usage.events.unreserved.connect(self.unreserved)
        cluster.ledger.usage.events.let_in.connect(self.let_in)
        signals = groups.signals
        signals.changed.connect(self.group_changed)
        signals.ended_members_changed.connect(self.ended_members_changed)
        signals.queue_changed.connect(self.queue_changed)
        signals.priority_classes_changed.connect(self.priority_classes_changed)
        signals.quotas_changed.connect(self.quotas_changed)

    def _ready(self) -> None:
        if not self._beginning:
            self.due.set()

    # ---- pods, from the cluster

    def add(self, pod: PodInfo) -> None:
        old = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        self.seen(pod)
        if pod.nominated_node_name:
            self.nominated[pod.uid] = None
            if old is None and pod.stands_by:
                # An earlier process kept room for the pod. It stays unavailable to others until a session has run.
                self._cluster.queue.nominate(pod, pod.nominated_node_name)
                self._cluster.ledger.usage.stand_by(pod)
        else:
            self.nominated.pop(pod.uid, None)
        if self.queue.where(pod.uid) is not None:
            self.queue.add(pod)
        if old is None or old.batch != pod.batch or any(map(_matters, pod_change_events(pod, old))):
            self.due.set()

    def delete(self, uid: str, *, node_name: str = "") -> None:
        pod = self.pods.pop(uid, None)
        self.nominated.pop(uid, None)
        self.queue.delete(uid, node_name=node_name)
        # The fast path's queue has the nomination, since the fast path leaves room for it.
        self._cluster.queue.delete(uid, node_name=node_name)
        if pod is not None:
            self.settled(pod)
            if not node_name:
                self.due.set()
        self.left(uid, node_name)

    def activate(self, uids: Iterable[str] = ()) -> None:
        """Make a session due that evaluates all jobs."""
        self._all_anew = True
        self.due.set()

    def move_all(self, event: ClusterEvent, old: object | None = None, new: object | None = None) -> int:
        about = new if new is not None else old
        if isinstance(about, PodInfo):
            # A member was bound, ended or was deleted, so the state of its group and its queue has changed.
            if about.scheduler_name == self._name or self._frees_quota(event, about):
                self.due.set()
        elif _counts_for_all(event):
            self._all_anew = True
            if self._some_not_tried and (event.resource is not Resource.NODE or event.action & _NODE_GROWS):
                self.due.set()
        self._heard = True
        return self.queue.move_all(event, old, new)

    def given_up(self, nominated: PodInfo) -> None:
        """Wake pods of at most the priority of the fast path's pod `nominated`, whose nomination has ended."""
        if nominated.scheduler_name != self._name:
            self._heard = True
            behind = lambda pod: pod.priority <= nominated.priority  # noqa: E731
            self.queue.move_all(ASSIGNED_POD_DELETE, nominated, pre_check=behind)

    def let_in(self, key: GroupKey) -> None:
        """Make a session due: a queue has room for a group that waited for admission."""
        self.due.set()

    def unreserved(self) -> None:
        """Make a session due if pods wait for it: a queue has released room that it kept for a pod without a node."""
        if self._some_not_tried:
            self.due.set()

    def _frees_quota(self, event: ClusterEvent, pod: PodInfo) -> bool:
        """Return whether the event may make room for pods that wait for a queue or the cluster as a whole."""
        return self._some_not_tried and bool(event.action & ActionType.DELETE)

    def assigned_pod_updated(self, old: PodInfo, new: PodInfo) -> int:
        # Pods may wait for the queue that another scheduler's pod leaves, or in which it now uses less.
        counts = new.scheduler_name == self._name or self._some_not_tried
        if counts and (old.batch != new.batch or old.deleting != new.deleting or old.cls is not new.cls):
            self.due.set()
        return self.queue.assigned_pod_updated(old, new)

    def burst(self) -> AbstractContextManager[None]:
        return self.queue.burst()

    # ---- groups and queues

    def group_changed(self, key: GroupKey) -> None:
        """Make a session due, unless only the status changed, to what the last session decided."""
        group = self.groups.groups.get(key)
        found = None if group is None else group.object
        known = self._group_objects.get(key)
        if isinstance(found, PodGroup):
            uid, version = found.metadata.uid, found.metadata.resource_version
            if known is not None and known.uid == uid and self._shown.get(key) == version:
                # Only a member has changed.
                return
            self._shown[key] = version
            decided = self._decided.get(key)
            if decided is not None and differ(decided, found.status):
                # Another client wrote the status, or the decision was based on an older version.
                self.due.set()
        elif found is None:
            self._shown.pop(key, None)
        read = None if found is None else _read_of_group(found)
        if known is not None and (read is None or read.uid != known.uid):
            self.group_gone(key, known.uid)
        if self._changed(self._group_objects, key, read):
            self.due.set()

    def decided(self, groups: Iterable[GroupResult], held: Mapping[str, Verdict]) -> Generator[None, None, None]:
        """Apply the results of a session, in steps.

        `held` maps the UIDs of pods that no node would help to the reasons why they wait.
        """
        decided = {}
        promises = self._cluster.ledger.usage.promises
        # What groups in line lack is known in full. A shortfall names only the first queue that lacks room.
        left_out: set[str] = set()
        for number, (key, group) in enumerate(list(self.groups.groups.items()) if held else ()):
            if key in promises.ceded or promises.asks_for(key):
                left_out.update(group.members)
            if not number % STRIDE:
                yield
        lacking = [each.queue for uid, each in held.items() if each.queue is not None and uid not in left_out]
        for number, each in enumerate(groups):
            key, phase = each.group.key, each.status.phase
            decided[key] = each.status
            queue = None if each.verdict is None else each.verdict.queue
            if queue is not None and not (promises.asks_for(key) or key in promises.ceded):
                lacking.append(queue)
            if promises.is_let_in(key) and (phase not in NOT_LET_IN or each.group.status.phase not in NOT_LET_IN):
                promises.settle(key, phase, roles_wait=bool(each.group.waiting_roles))
            if each.write and each.status.phase == PENDING and each.group.status.phase not in (PENDING, ""):
                # The group has lost its members, and the next session may admit it, perhaps without any other event.
                self.due.set()
            if not number % STRIDE:
                yield
        self._decided = decided
        promises.outside.set_lacking(lacking)

    def queue_changed(self, name: str) -> None:
        queue = self.groups.queues.get(name)
        if self._changed(self._queue_objects, name, None if queue is None else _read_of_queue(queue)):
            self._all_anew = True
            self.due.set()

    @staticmethod
    def _changed(known: dict[Any, Any], key: Any, read: object) -> bool:
        if known.get(key) == read:
            return False
        if read is None:
            del known[key]
        else:
            known[key] = read
        return True

    def ended_members_changed(self, key: GroupKey) -> None:
        """Make a session due, since the group's status counts ended members."""
        self.due.set()

    def priority_classes_changed(self) -> None:
        self._all_anew = True
        self.due.set()

    def quotas_changed(self, namespace: str) -> None:
        """Make a session due if a group of the namespace waits for a quota.

        Every created or deleted pod changes the quotas of its namespace, so other namespaces are ignored. The current
        session may still find that a group waits; `end` then makes the next one due.
        """
        self._quotas_heard.add(namespace)
        if namespace in self._kept_out:
            self.due.set()

    # ---- sessions

    def wait_until(self, moment: float) -> None:
        """Make a session due at `moment`, in seconds of the epoch, when its result would change without an event."""
        self.due_at = moment
        self.deadline_moved.set()

    def time_passes(self, moment: float) -> None:
        """Make a session due if `moment`, the current time, has reached that of `wait_until`."""
        if moment >= self.due_at:
            self.due_at = inf
            self.due.set()

    def open(self, settled: Mapping[GroupKey, SettledJob]) -> Generator[None, None, Mapping[GroupKey, SettledJob]]:
        """Begin a session before it reads the cluster, in steps. Returns the settled jobs that it may reuse.

        These are the jobs that no event has helped. Representatives of all other jobs are in flight from now on, so
        events that arrive during the session are considered when it ends.
        """
        self.due.clear()
        self._quotas_heard.clear()
        if self._all_anew:
            self._all_anew, settled = False, {}
        kinds = {uid: kind for kind, uid in self._standing_for.items()}
        woken = set()
        while (entry := self.queue.pop()) is not None:
            self._in_flight[entry.uid] = entry
            if entry.uid in kinds and (key := kinds[entry.uid].group) in settled:
                woken.add(key)
        for number, (kind, uid) in enumerate(list(self._standing_for.items())):
            if kind.group not in settled or kind.group in woken:
                self._take(uid)
                yield
            elif not number % STRIDE:
                yield
        self._heard = False
        return {key: kept for key, kept in settled.items() if key not in woken} if woken else settled

    def _take(self, uid: str) -> None:
        if uid not in self._in_flight and (entry := self.queue.take(uid)) is not None:
            self._in_flight[uid] = entry

    def begin(
        self, kinds: Mapping[EquivalentPods, PodInfo], settled: Container[GroupKey] = ()
    ) -> Generator[None, None, None]:
        """Set the representatives of the opened session to `kinds`, in steps; those of settled groups stay."""
        standing = self._standing_for
        for number, (kind, uid) in enumerate(list(standing.items())):
            if kind.group not in settled and not (kind in kinds and self._can_stand(uid)):
                del standing[kind]
                if uid not in self._in_flight:
                    self.queue.delete(uid)
            if not number % STRIDE:
                yield
        for kind, pod in kinds.items():
            if kind not in standing and pod.uid in self.pods:
                standing[kind] = pod.uid
                self._add(pod.uid)
                if self._heard:
                    # The pod was not in the queue when the event arrived.
                    self.due.set()
            if kind in standing:
                self._take(standing[kind])
            yield

    def _add(self, uid: str) -> None:
        if self.queue.where(uid) is None:
            self._beginning = True
            try:
                self.queue.add(self.pods[uid])
            finally:
                self._beginning = False

    def end(
        self,
        refused_by: Mapping[EquivalentPods | GroupKey, frozenset[str]],
        kept_out: frozenset[str] = frozenset(),
        *,
        waits_for_cluster: bool = False,
    ) -> Generator[None, None, None]:
        """Return the representatives of an ended session to the queue, in steps of one.

        `refused_by` has the plugins that rejected nodes, for each kind of pod and for each group, `kept_out` the
        namespaces of groups that wait for quotas. `waits_for_cluster` is whether groups, perhaps without pods, wait for
        room in the cluster as a whole.
        """
        queue, in_flight = self.queue, self._in_flight
        self._kept_out = kept_out
        if kept_out & self._quotas_heard:
            self.due.set()
        self._some_not_tried = waits_for_cluster
        kinds = {uid: kind for kind, uid in self._standing_for.items()}
        while in_flight:
            yield
            uid, entry = in_flight.popitem()
            kind = kinds.get(uid)
            if kind is None or uid not in self.pods or self._is_placed(uid):
                queue.done(uid)
                continue
            plugins = refused_by.get(kind) or refused_by.get(kind.group) or ONLY_NOT_TRIED
            self._some_not_tried |= NOT_TRIED in plugins
            queue.add_unschedulable(entry, unschedulable_plugins=plugins)

    def give_up(self) -> None:
        """Abandon a session without a result. The next one is due, and evaluates all jobs."""
        self._all_anew = True
        for _ in self.end({}):
            pass
        self.due.set()

    def _can_stand(self, uid: str) -> bool:
        """Return whether the pod can remain a representative: it waits, and the queue knows it.

        The queue has forgotten a pod that was placed but not bound, or that was deleted and created again.
        """
        return uid in self.pods and not self._is_placed(uid) and self.queue.where(uid) is not None

    def _is_placed(self, uid: str) -> bool:
        return uid in self._cluster.ledger.placements


def _counts_for_all(event: ClusterEvent) -> bool:
    """Return whether the event changes the resources that all queues share."""
    if event.resource is Resource.NODE:
        return bool(event.action & _NODE_COUNTS)
    return event == NODE_SHARD_UPDATE or event.resource is Resource.RESOURCE_SLICE


def _matters(event: ClusterEvent) -> bool:
    """Return whether a pod event affects sessions: it is not limited to fields that they write or ignore."""
    return event.action is not ActionType.UPDATE_POD_OTHER


class _ReadOfGroup(NamedTuple):
    uid: str
    spec: object
    annotations: object
    deleted: str | None


def _read_of_group(found: PodGroup | NativePodGroup) -> _ReadOfGroup:
    metadata = found.metadata
    return _ReadOfGroup(metadata.uid, found.spec, metadata.annotations, metadata.deletion_timestamp)


def _read_of_queue(found: Queue) -> object:
    return found.metadata.uid, found.spec, found.status.state, namespace_list(found.metadata.annotations, [])
