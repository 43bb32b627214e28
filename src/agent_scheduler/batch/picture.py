"""Builds a session's view of the cluster: groups and members as they will be after all writes in progress."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from math import inf
from operator import is_
from typing import Final, NamedTuple

from msgspec.structs import replace

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.cluster.groups import Groups
from agent_scheduler.engine.gangs.group import PodGroupInfo, of_native, of_pod, of_pod_group
from agent_scheduler.engine.preemption.pdbs import PDBs
from agent_scheduler.engine.quotas.demand import JobDemand
from agent_scheduler.engine.quotas.queues import QueueInfo, queue_info
from agent_scheduler.engine.quotas.vector import Total, Vector, add_to
from agent_scheduler.engine.session.session import ClusterView
from agent_scheduler.engine.session.settled import STRIDE, SettledJob
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import Condition, PodInfo
from agent_scheduler.engine.state.podspec import SpecError
from agent_scheduler.engine.verdicts import without_group
from agent_scheduler.objects.batch import NativePodGroup, PodGroup, PodGroupStatus, Queue, ResourceQuota
from apimachinery.quantity import QuantityError

from .waiting import EquivalentPods, kind_of

#: The signature of `MetricsObserver.malformed`.
Malformed = Callable[[str, str, str], None]
StatusOf = Callable[[PodGroup], PodGroupStatus]
ConditionOf = Callable[[PodInfo], Condition | None]
WhyNot = Callable[[GroupKey, PodGroup | NativePodGroup | None, Iterable[PodInfo]], str]


#: Seconds for which a pod of a workload without a group waits for the podgroup controller.
_UNNAMED_SECONDS: Final = 5.0


class _WatchedGroup(NamedTuple):
    """A group as the watch has delivered it."""

    #: None for a pod that names no group. Its queue is not read from an object, so `queue` has it, as for a group whose
    #: namespace may not use the queue that it names.
    object: PodGroup | NativePodGroup | None
    queue: str
    pods: Sequence[PodInfo]


def _same(pods: Collection[PodInfo], others: Sequence[PodInfo]) -> bool:
    return len(pods) == len(others) and all(map(is_, pods, others))


class _ViewBuilder:
    """Collects the groups of one view."""

    def __init__(self, earlier: Mapping[GroupKey, _WatchedGroup], settled: Mapping[GroupKey, SettledJob]) -> None:
        """Compare groups with `earlier`, those of the last view; jobs in `settled` may be reused for equal groups."""
        self._earlier = earlier
        self._may_stand = settled
        self.groups: list[PodGroupInfo] = []
        self.namespaces: set[str] = set()
        self.pods: dict[GroupKey, Collection[PodInfo]] = {}
        self.settled: dict[GroupKey, SettledJob] = {}
        self.lost: dict[GroupKey, tuple[str, Sequence[PodInfo]]] = {}
        #: The groups that are in the view just as the watch has delivered them.
        self.shown: dict[GroupKey, _WatchedGroup] = {}

    def stands(
        self, key: GroupKey, pods: Collection[PodInfo], found: PodGroup | NativePodGroup | None, queue: str = ""
    ) -> bool:
        """Add the group with its settled job if its objects are those of the last view. Returns whether it was added.

        Nothing is allocated for such a group, since thousands of new objects would cost time in garbage collection.
        """
        kept, shown = self._may_stand.get(key), self._earlier.get(key)
        if kept is None or shown is None or found is not shown.object:
            return False
        if queue != shown.queue or not _same(pods, shown.pods):
            return False
        self.settled[key] = kept
        self._add(kept.job.group, shown.pods, shown)
        return True

    def lose(self, key: GroupKey, why: str, waiting: Sequence[PodInfo]) -> None:
        """Record that a group does not exist or is invalid, for the reason `why`, if pods wait for it."""
        if waiting:
            self.lost[key] = (why, waiting)

    def take(self, group: PodGroupInfo, pods: Sequence[PodInfo], shown: _WatchedGroup, *, as_shown: bool) -> None:
        """Add a group with the pods of the view; `as_shown` if the group itself is as the watch has delivered it."""
        self._add(group, pods, shown if as_shown and _same(pods, shown.pods) else None)

    def _add(self, group: PodGroupInfo, pods: Sequence[PodInfo], shown: _WatchedGroup | None) -> None:
        self.groups.append(group)
        self.namespaces.add(group.key.namespace)
        self.pods[group.key] = pods
        if shown is not None:
            self.shown[group.key] = shown

    @property
    def pauses(self) -> bool:
        """Whether a step of settled jobs is complete, so that the view pauses."""
        return not len(self.groups) % STRIDE


class PictureSources(NamedTuple):
    """The sources of views beside the cluster and the groups."""

    #: The status of a group and the condition of a pod, including those that were decided but not yet delivered by the
    #: watch.
    status_of: StatusOf
    condition_of: ConditionOf
    #: The amounts in the statuses of queues.
    said: Callable[[], Mapping[str, Vector]]
    #: Whether a pod is being evicted.
    is_leaving: Callable[[str], bool]
    #: Receives problems of objects.
    malformed: Malformed
    #: As `GroupHandling.why_not`.
    why_not: WhyNot = lambda _key, _found, _pods: ""


class Pictures:
    """Builds views. Owner of the values parsed from each object, valid while it is the same object."""

    def __init__(
        self,
        cluster: Cluster,
        groups: Groups,
        *,
        scheduler_name: str,
        default_queue: str,
        sources: PictureSources,
        pdbs: PDBs,
    ) -> None:
        self._cluster = cluster
        self._groups = groups
        self._name = scheduler_name
        self._default_queue = default_queue
        self._status_of = sources.status_of
        self._condition_of = sources.condition_of
        self._said = sources.said
        self._is_leaving = sources.is_leaving
        self._malformed = sources.malformed
        self._why_not = sources.why_not
        self._pdbs = pdbs
        self._read_groups: dict[GroupKey, tuple[object, PodGroupInfo | str, str]] = {}
        self._read_queues: dict[str, tuple[Queue, QueueInfo]] = {}
        self._shown: Mapping[GroupKey, _WatchedGroup] = {}
        #: UID -> time until which a pod waits for the podgroup controller, in seconds of the epoch.
        self._to_be_named: dict[str, float] = {}
        #: The time at which a new view would contain other pods without any event; in seconds of the epoch.
        self.changes_at = inf

    def view(self, settled: Mapping[GroupKey, SettledJob], now: float) -> Generator[None, None, ClusterView]:
        """Build the view in steps of one group at time `now`, in seconds of the epoch.

        A job of `settled` is reused if its objects are those of the last view.
        """
        made = _ViewBuilder(self._shown, settled)
        objects = 0
        for key, known in list(self._groups.groups.items()):
            if known.object is None:
                made.lose(key, without_group(key.text).message, self._waiting(known.members.values()))
                continue
            objects += 1
            if why := self._why_not(key, known.object, known.members.values()):
                made.lose(key, why, self._waiting(known.members.values()))
                continue
            closed = self._closed(key, known.object)
            stands = made.stands(key, known.members.values(), known.object, closed)
            group = None if stands else self._group(key, known.object, closed)
            if isinstance(group, str):
                made.lose(key, group, self._waiting(known.members.values()))
            elif group is not None:
                shown = _WatchedGroup(known.object, closed, tuple(known.members.values()))
                pods = [self._as_it_will_be(pod) for pod in shown.pods if self._is_ours(pod)]
                if pods or not (shown.pods and key.native):
                    # A Kubernetes PodGroup whose pods all belong to another scheduler belongs to that scheduler.
                    made.take(group, pods, shown, as_shown=group is self._read_groups[key][1])
            if not stands or made.pauses:
                yield
        if len(self._read_groups) > objects:
            for key in self._read_groups.keys() - self._groups.groups.keys():
                del self._read_groups[key]
        yield
        self.changes_at = inf
        for uid in [uid for uid in self._to_be_named if uid not in self._groups.to_be_named]:
            del self._to_be_named[uid]
        for pod in list(self._groups.bare.values()):
            if self._is_to_be_named(pod, now):
                continue
            own = GroupKey(pod.namespace, pod.uid)
            if why := self._why_not(own, None, (pod,)):
                made.lose(own, why, self._waiting((pod,)))
                continue
            queue = self._cluster.ledger.usage.queue_of(pod)
            stands = made.stands(own, (pod,), None, queue)
            if not stands:
                shown = _WatchedGroup(None, queue, (pod,))
                made.take(of_pod(pod, queue=queue), (self._as_it_will_be(pod),), shown, as_shown=True)
            if not stands or made.pauses:
                yield
        self._shown = made.shown
        classes = self._groups.priority_classes.values()
        return ClusterView(
            groups=made.groups,
            pods=made.pods,
            settled=made.settled,
            lost=made.lost,
            queues=[self._queue(queue) for queue in self._groups.queues.values()],
            pdbs=self._pdbs,
            held=self._said(),
            others=self._others(),
            quotas=self._quotas(made.namespaces),
            priorities={each.metadata.name: each.value for each in classes},
            default_priority=max((each.value for each in classes if each.global_default), default=0),
        )

    def _is_to_be_named(self, pod: PodInfo, now: float) -> bool:
        """Return whether the pod still waits for the podgroup controller to name its group."""
        groups, uid = self._groups, pod.uid
        if uid not in groups.to_be_named or pod.node_name or uid in self._cluster.ledger.placements:
            return False
        until = self._to_be_named.setdefault(uid, now + _UNNAMED_SECONDS)
        if now < until:
            self.changes_at = min(self.changes_at, until)
            return True
        groups.leave_unnamed(uid)
        return False

    def _waiting(self, members: Iterable[PodInfo]) -> list[PodInfo]:
        """Return the members for which a session would search nodes."""
        cluster = self._cluster
        return [
            self._as_it_will_be(pod)
            for pod in members
            if self._is_ours(pod) and cluster.is_ours(pod) and pod.uid not in cluster.ledger.placements
        ]

    def _is_ours(self, pod: PodInfo) -> bool:
        return pod.scheduler_name == self._name

    def _as_it_will_be(self, pod: PodInfo) -> PodInfo:
        """Return the pod as it will be after the writes in progress.

        A pod that is being bound has its node, one that is being evicted is terminating, and one whose condition is
        being written has that condition.
        """
        if not pod.node_name:
            placement = self._cluster.ledger.placements.get(pod.uid)
            if placement is not None:
                return replace(pod, node_name=placement.node_name)
            condition = self._condition_of(pod)
            return pod if condition == pod.condition else replace(pod, condition=condition)
        return replace(pod, deleting=True) if not pod.deleting and self._is_leaving(pod.uid) else pod

    def _group(self, key: GroupKey, found: PodGroup | NativePodGroup, closed: str) -> PodGroupInfo | str:
        """Return the parsed group, or the reason why it is invalid, which is reported once per object version.

        `closed` is the result of `_closed`.
        """
        kept = self._read_groups.get(key)
        if kept is None or kept[0] is not found or kept[2] != closed:
            group = self._read(key, found)
            if closed and not isinstance(group, str):
                group = replace(group, queue=closed)
            kept = self._read_groups[key] = (found, group, closed)
        group = kept[1]
        if isinstance(group, str) or isinstance(found, NativePodGroup):
            return group
        status = self._status_of(found)
        return group if status is group.status else replace(group, status=status)

    def _closed(self, key: GroupKey, found: PodGroup | NativePodGroup) -> str:
        """Return the queue of a group whose namespace may not use the one that it names; empty if it may."""
        named = "" if isinstance(found, NativePodGroup) else found.spec.queue
        queue = named or self._default_queue
        usable = self._cluster.ledger.usage.members.usable(queue, key.namespace)
        return usable if usable != queue else ""

    def _read(self, key: GroupKey, found: PodGroup | NativePodGroup) -> PodGroupInfo | str:
        if isinstance(found, NativePodGroup):
            return of_native(found, queue=self._default_queue)
        try:
            group = of_pod_group(found)
        except (QuantityError, SpecError) as error:
            self._malformed("PodGroup", f"{key.namespace}/{key.name}", str(error))
            return f"PodGroup {key.text} cannot be read: {error}"
        return group if group.queue else replace(group, queue=self._default_queue)

    def _queue(self, found: Queue) -> QueueInfo:
        kept = self._read_queues.get(found.name)
        if kept is None or kept[0] is not found:
            problems: list[str] = []
            kept = self._read_queues[found.name] = (found, queue_info(found, problems))
            if problems:
                self._malformed("Queue", found.name, "; ".join(problems))
        return kept[1]

    def _others(self) -> list[JobDemand]:
        """Return the usage of pods outside of jobs: those of other schedulers, and those whose group is deleted."""
        usage, placements = self._cluster.ledger.usage, self._cluster.ledger.placements
        found: dict[str, Total] = {queue: dict(held) for queue, held in usage.others().items()}
        for known in self._groups.groups.values():
            if known.object is None:
                for pod in known.members.values():
                    if pod.uid in placements and self._is_ours(pod):
                        add_to(found.setdefault(usage.queue_of(pod), {}), usage.vector(pod))
        return [JobDemand.of_others(queue, held) for queue, held in found.items()]

    def _quotas(self, namespaces: Collection[str]) -> dict[str, Sequence[ResourceQuota]]:
        found = {namespace: tuple(self._groups.quotas(namespace)) for namespace in namespaces}
        return {namespace: quotas for namespace, quotas in found.items() if quotas}


def waiting_kinds(view: ClusterView) -> Generator[None, None, dict[EquivalentPods, PodInfo]]:
    """Return one pod of each kind that waits for a node, without pods of settled groups and pods with closed gates."""
    found: dict[EquivalentPods, PodInfo] = {}
    for number, (key, pods) in enumerate(view.pods.items()):
        if key in view.settled:
            if not number % STRIDE:
                yield
            continue
        for pod in pods:
            if not (pod.node_name or pod.deleting or pod.finished or pod.closed_gates):
                found.setdefault(kind_of(key, pod), pod)
        yield
    return found
