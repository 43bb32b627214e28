"""PodGroups of Kubernetes' own API: waiting members are decided together (kube-scheduler: `podGroupCycle`).

    a member is popped ──> all waiting members of its group are taken out of the queue
      ──> each is decided as if the previous ones were placed (Trial); one that needs evictions counts as placed on the
          node of its victims
      ──> too few have a place because others of them have the devices: devices are searched for all of them together,
          in several turns if necessary (`engine.decide.gang_placing`)
      ──> with the bound ones enough members have a place, without evictions: they are bound together
          else all return to the queue, and the selected evictions are carried out

Members of equal priority are tried in order of arrival. A group below its minimum holds nothing while it waits. It is
woken by whatever wakes any member: events of the plugins that rejected one, a new member, a smaller minimum.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from agent_scheduler.binding import groups as binder
from agent_scheduler.binding.preemption import PreemptionResult
from agent_scheduler.binding.result import AttemptOwner, ScheduleResult
from agent_scheduler.binding.runtime import Runtime
from agent_scheduler.cluster.cluster import Entry
from agent_scheduler.cluster.state import SharedState
from agent_scheduler.engine.decide.decide import CandidateNodes, ClassViews
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.reserving import unreserve
from agent_scheduler.engine.framework.plugin import GANG_SCHEDULING
from agent_scheduler.engine.framework.prebind import Writes
from agent_scheduler.engine.gangs.native import PREEMPTING, UNSCHEDULABLE, NativeGroup, native_key
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.queues.shortfall import Shortfall
from agent_scheduler.engine.queues.wanting import WantingGang
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import Verdict, WaitReason, by_queue
from agent_scheduler.objects.batch import NATIVE_API
from agent_scheduler.telemetry.handling import subject_of
from kube_client.recorder import ObjectReference

from .gang_trial import (
    DeviceSearch,
    GroupTrial,
    MemberFailed,
    MemberResult,
    TrialMember,
    is_feasible,
    is_reached,
    not_nominated,
)
from .gang_waits import GangWaits, of_gang
from .handlers import DecisionHandlers
from .worker import Continuation, Decide

WAITING: Final = (
    f"{UNSCHEDULABLE}, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)

_TOGETHER: Final = frozenset({GANG_SCHEDULING})


class _Unfinished(NamedTuple):
    cycle: GangCycle
    trial: GroupTrial
    worker: int
    group: NativeGroup
    searching: DeviceSearch
    started: float

    def go_on(self) -> Continuation | None:
        return self.cycle.go_on(self)


class GangCycle:
    """Decides on one group at a time."""

    def __init__(
        self,
        views: Mapping[str, ClassViews],
        runtime: Runtime,
        state: SharedState,
        *,
        writes: Writes,
        handlers: DecisionHandlers,
        waits: GangWaits,
    ) -> None:
        """Decide by `views`, which are those of all allowed nodes, by profile."""
        self._shared = state
        self._cluster = state.cluster
        self._writes = writes
        self._binder = handlers.binder
        self._failures = handlers.failures
        self._preemption = handlers.preemption
        self._owner = AttemptOwner(state.cluster.queue, handlers.failures)
        self._waits = waits
        self._messenger = runtime.messenger
        self._observer = runtime.observer
        #: Group -> the state at its last decision, for groups that are retried after a backoff.
        self._seen: dict[GroupKey, tuple[object, ...]] = {}
        self.reconfigure(views)

    def reconfigure(self, views: Mapping[str, ClassViews]) -> None:
        self._trial = GroupTrial(self._shared, views, self._writes)
        self._views = views
        self._seen.clear()

    def concerns(self, pod: PodInfo) -> bool:
        """Return whether the pod is decided together with others."""
        return native_key(pod) is not None and self._views[pod.scheduler_name].profile.gangs

    def lacks(self, pod: PodInfo) -> Verdict | None:
        return self._waits.lacks(pod)

    def run(self, worker: int, decide: Decide, entry: Entry, pod: PodInfo, *, started: float) -> Continuation | None:
        """Decide on the group of a popped pod and carry that out, unless the decision is unfinished."""
        popped, key = TrialMember(entry, pod), native_key(pod)
        assert key is not None, "the pod names a group"
        group = self._cluster.groups.get(key)
        if group is None:
            # Deleted a moment ago; from now on PreEnqueue holds the pod back.
            self._failures.outdated(popped.entry)
            return None
        backed_off = entry.consecutive_errors_count and not entry.rejectors
        if backed_off and self._seen.get(key) == self._state(group):
            self._failures.unchanged(entry, _TOGETHER if self._others_back_off(entry, group) else ())
            return None
        handling = self._observer.handling
        subject = subject_of("decision", "PodGroup", group.metadata)
        handling.mark_subject(subject)
        if handling.aside.any and (why := handling.why_not(subject, about=_reference(group))):
            self._failures.set_aside(entry, pod, why, started=started)
            return None
        members = self._members(popped, group)
        try:
            return self._decided(worker, decide, group, members, started)
        except Exception as error:
            self._broken(worker, members, error, started)
            return None

    def _broken(self, worker: int, members: Sequence[TrialMember], error: Exception, started: float) -> None:
        """Requeue the members that are still in flight after an error in the handling of their group."""
        self._observer.cycle_failed(worker, members[0].pod, error)
        for entry, pod in members:
            self._failures.broken(entry, pod, f"{type(error).__name__}: {error}", started=started)

    def _decided(
        self, worker: int, decide: Decide, group: NativeGroup, members: Sequence[TrialMember], started: float
    ) -> Continuation | None:
        if self._lacks_others(members, group, started):
            return None
        self._waits.tried(pod for _, pod in members)
        have = self._scheduled(group)
        members = self._with_room(members, group, group.minimum - have, started)
        members = [each for each in members if self._may_be_tried(each, started)]
        if not members:
            return None
        names = sorted({pod.scheduler_name for _, pod in members})
        if len(names) > 1:
            one = "all pods in a single pod group should have the same .spec.schedulerName set"
            message = f'{one}, got: "{names[0]}" and "{names[1]}"'
            self._error(group, members, MemberFailed(members[0].pod, message), message, started)
            return None
        self._seen.pop(group.key, None)
        trial = self._trial
        return self._tried(
            worker, group, members, started, lambda: trial.run(decide, members, have=have, minimum=group.minimum)
        )

    def go_on(self, unfinished: _Unfinished) -> Continuation | None:
        """Continue after another portion of the search. A group that has changed is tried again."""
        self._observer.handling.mark_subject(subject_of("decision", "PodGroup", unfinished.group.metadata))
        try:
            return self._continued(unfinished)
        except Exception as error:
            self._broken(unfinished.worker, unfinished.searching.members, error, unfinished.started)
            return None

    def _continued(self, unfinished: _Unfinished) -> Continuation | None:
        _, trial, worker, group, searching, started = unfinished
        cluster = self._cluster
        stands = trial is self._trial and cluster.groups.get(group.key) is group
        if stands and searching.have == self._scheduled(group) and all(map(self._stands, searching.members)):
            return self._tried(worker, group, searching.members, started, lambda: trial.go_on(searching))
        for entry, _ in searching.members:
            if self._waiting(entry) is not None:
                self._failures.outdated(entry)
            else:
                cluster.queue.done(entry.uid)
        return None

    def _waiting(self, entry: Entry) -> PodInfo | None:
        """Return the current pod; None if it no longer waits."""
        cluster = self._cluster
        pod = cluster.pods.get(entry.uid)
        waits = pod is not None and cluster.is_ours(pod) and entry.uid not in cluster.ledger.placements
        return pod if waits else None

    def _stands(self, member: TrialMember) -> bool:
        return self._waiting(member.entry) is member.pod

    def _tried(
        self,
        worker: int,
        group: NativeGroup,
        members: Sequence[TrialMember],
        started: float,
        attempt: Callable[[], Sequence[MemberResult] | DeviceSearch],
    ) -> Continuation | None:
        try:
            tried = attempt()
        except MemberFailed as error:
            if isinstance(error.__cause__, Exception):
                self._observer.cycle_failed(worker, error.pod, error.__cause__)
            message = f"failed to schedule other pod from a pod group: {error}"
            self._error(group, members, error, message, started)
            return None
        if isinstance(tried, DeviceSearch):
            return _Unfinished(self, self._trial, worker, group, tried, started)
        self._carry_out(worker, tried, group, started)
        return None

    def _members(self, popped: TrialMember, group: NativeGroup) -> Sequence[TrialMember]:
        """Return the waiting members, which are in flight from now on, in the order of attempts."""
        cluster = self._cluster
        found = [popped]
        for uid, pod in list(cluster.groups.members(group.key).items()):
            if uid != popped.pod.uid and cluster.is_ours(pod) and uid not in cluster.ledger.placements:
                entry = cluster.queue.take(uid)
                if entry is None and cluster.ledger.usage.is_held(uid):
                    # Its queue may have room for it, and it was not its turn yet.
                    cluster.queue.activate([uid])
                    entry = cluster.queue.take(uid)
                if entry is not None:
                    found.append(TrialMember(entry, pod))
        found.sort(key=lambda each: (-each.pod.priority, each.entry.initial_attempt_timestamp or 0.0))
        return found

    def _lacks_others(self, members: Sequence[TrialMember], group: NativeGroup, started: float) -> bool:
        """Return whether the group is below its minimum only because of members with gates.

        Then it evicts nothing and asks for no nodes, except in profiles with kube-scheduler's conditions.
        """
        if any(self._views[pod.scheduler_name].profile.as_kube for _, pod in members):
            return False
        verdict = of_gang(self._cluster.groups, group.key)
        if verdict is None:
            return False
        for entry, pod in members:
            if pod.cls.error:
                self._failures.unreadable(entry, pod, started=started)
            else:
                self._failures.lacks_others(entry, pod, verdict, started=started)
                self._waits.note(pod, verdict)
        if group.condition is not None:
            self._messenger.group_decided(group, "False", verdict.reason, verdict.message)
        return True

    def _with_room(
        self, members: Sequence[TrialMember], group: NativeGroup, missing: int, started: float
    ) -> Sequence[TrialMember]:
        """Return the members in the order in which queues have room for the missing ones.

        If there is no such order, all members report that, and none is returned.
        """
        usage = self._cluster.ledger.usage
        if not usage.room.active:
            return members
        pods = {each.pod.uid: each.pod for each in members if not each.pod.cls.error}
        for uid, pod in self._cluster.groups.members(group.key).items():
            if usage.is_held(uid):
                pods.setdefault(uid, pod)
        fitting = usage.gang_fitting([*pods.values()], missing)
        if not isinstance(fitting, Shortfall):
            places = {pod.uid: place for place, pod in enumerate(fitting)}
            return sorted(members, key=lambda each: places.get(each.pod.uid, len(places)))
        for entry, pod in members:
            if pod.cls.error:
                self._failures.unreadable(entry, pod, started=started)
            else:
                self._failures.queue_full(entry, pod, fitting, started=started)
        verdict = by_queue(fitting)
        self._messenger.group_decided(group, "False", verdict.reason, verdict.message)
        return ()

    def _may_be_tried(self, member: TrialMember, started: float) -> bool:
        (entry, pod), usage = member, self._cluster.ledger.usage
        if pod.cls.error:
            self._failures.unreadable(entry, pod, started=started)
        elif usage.room.active and (short := usage.full(pod)) is not None:
            self._failures.queue_full(entry, pod, short, started=started)
        else:
            return True
        return False

    def _scheduled(self, group: NativeGroup) -> int:
        """Return the number of members that have a node or are assumed on one."""
        placements = self._cluster.ledger.placements
        return sum(
            bool(pod.node_name) or uid in placements for uid, pod in self._cluster.groups.members(group.key).items()
        )

    def _state(self, group: NativeGroup) -> tuple[object, ...]:
        """Return the state that determines the result of an attempt."""
        cluster = self._cluster
        members = len(cluster.groups.members(group.key))
        return cluster.ledger.sequence, cluster.catalogue.version, group.uid, group.minimum, members

    def _remember(self, group: NativeGroup) -> None:
        groups = self._cluster.groups
        if len(self._seen) > 2 * len(groups):
            self._seen = {key: seen for key, seen in self._seen.items() if groups.get(key) is not None}
        self._seen[group.key] = self._state(group)

    def _others_back_off(self, entry: Entry, group: NativeGroup) -> bool:
        """Return whether another member returns after its backoff: one is sufficient."""
        where = self._cluster.queue.where
        members = self._cluster.groups.members(group.key)
        return any(uid != entry.uid and where(uid) is Place.BACKOFF for uid in members)

    # ---- results

    def _carry_out(self, worker: int, tried: Sequence[MemberResult], group: NativeGroup, started: float) -> None:
        if is_feasible(tried):
            self._bind(worker, [each for each in tried if each.node_name is not None], group, started)
            # If the group had to be placed together, the remaining members are tried once more, alone.
            had_to_wait = any(each.waited for each in tried)
            for each in tried:
                if each.node_name is None:
                    self._refused(each, started, again=had_to_wait)
            return
        reached = is_reached(tried)
        pods = [each.member.pod for each in tried]
        full = self._failures.shard_full(pods)
        verdict = Verdict(WaitReason.NODES, PREEMPTING if reached else UNSCHEDULABLE)
        if full and not reached:
            verdict = Verdict(WaitReason.SHARD_FULL, f"{UNSCHEDULABLE}, {full}")
        self._messenger.group_decided(group, "False", verdict.reason, verdict.message)
        together = self._cluster.ledger.usage.wanting.together(pods, group.minimum - self._scheduled(group))
        coming_back = _coming_back(tried)
        if coming_back and all(each.attempt is None for each in tried):
            self._remember(group)
        for each in tried:
            again = each.member.pod.uid in coming_back
            if each.node_name is None:
                self._refused(each, started, again=again, shard_full=full, together=together)
            else:
                self._back(each, full, together, waits_for_victims=reached, again=again, started=started)

    def _bind(self, worker: int, placed: Sequence[MemberResult], group: NativeGroup, started: float) -> None:
        version, owner = self._cluster.catalogue.version, self._owner
        by = f"worker {worker}, with group {group.key.name}"
        members = []
        for each in placed:
            (entry, pod), decided = each.member, each.decided
            view, decision = decided.view, decided.decision
            assert isinstance(decision, CandidateNodes), "the group needs no evictions"
            result = ScheduleResult(
                *(entry, pod, view.pod, decision, view.filters, started, owner, version, view.reserves, True, by)
            )
            members.append(binder.Member(result, self._views[pod.scheduler_name].profile, each.reservations))
        usage, missing = self._cluster.ledger.usage, group.minimum - self._scheduled(group)
        with not_nominated(self._cluster) as here:
            for each in placed:
                here(each.member.pod)
            refused = self._binder.commit_group(members, missing, usage)
        left = [each for each in placed if each.member.pod.uid in refused]
        for each in left:
            with self._cluster.events.muted():
                unreserve(each.reservations, each.member.pod, self._writes)
        if len(left) < len(placed):
            self._messenger.group_decided(group, "True", "Scheduled", "")
        elif not self._with_room([each.member for each in left], group, missing, started):
            return
        for each in left:
            entry, pod = each.member
            if usage.room.active and (short := usage.full(pod)) is not None:
                self._failures.queue_full(entry, pod, short, started=started)
            else:
                # In the same step as the decision: the rejection comes from reservations of plugins.
                self._failures.error(entry, pod, f"{UNSCHEDULABLE}, {refused[pod.uid]}", started=started)

    def _refused(
        self,
        tried: MemberResult,
        started: float,
        *,
        again: bool = False,
        shard_full: str | None = None,
        together: WantingGang | None = None,
    ) -> None:
        """Reject a member that fits no node, even with evictions."""
        (entry, pod), decided = tried.member, tried.decided
        decision = decided.decision
        assert not isinstance(decision, CandidateNodes), "it was placed"
        refusal, nominated = (
            (decision.refusal, decision.nominated) if isinstance(decision, PreemptionResult) else (decision, None)
        )
        again = again or decided.is_partial
        self._failures.unschedulable(
            *(entry, pod, refusal),
            started=started,
            nominated=nominated,
            again=again,
            shard_full=shard_full,
            together=together,
        )

    def _back(
        self,
        tried: MemberResult,
        shard_full: str,
        together: WantingGang | None,
        *,
        waits_for_victims: bool,
        again: bool,
        started: float,
    ) -> None:
        """Return a member that had a place, but whose group has too few places or must wait for victims."""
        (entry, pod), attempt = tried.member, tried.attempt
        nominated: str | None
        if not waits_for_victims:
            had_one = pod.uid in self._cluster.queue.nominator.nominated or pod.nominated_node_name
            refusal, nominated = Refusal(WAITING, _TOGETHER), "" if had_one else None
        elif attempt is not None:
            refusal, nominated = attempt.refusal, attempt.nominated
        else:
            refusal, nominated = Refusal(PREEMPTING, _TOGETHER), tried.node_name
        if attempt is not None:
            refusal = refusal._replace(plugins=refusal.plugins | attempt.refusal.plugins)
        waits = self._failures.unschedulable(
            *(entry, pod, refusal),
            started=started,
            nominated=nominated,
            again=again,
            shard_full=shard_full,
            together=together,
        )
        if attempt is not None and attempt.candidate is not None:
            self._preemption.start(pod, attempt.candidate, waits=waits, nominates=waits_for_victims)

    def _error(
        self, group: NativeGroup, members: Sequence[TrialMember], error: MemberFailed, others: str, started: float
    ) -> None:
        for entry, pod in members:
            message = str(error) if pod is error.pod else others
            self._failures.error(entry, pod, message, started=started)
        self._messenger.group_decided(group, "False", "SchedulerError", others)


def _reference(group: NativeGroup) -> ObjectReference:
    key = group.key
    return ObjectReference("PodGroup", key.namespace, key.name, group.uid, NATIVE_API.removeprefix("/apis/"))


def _coming_back(tried: Sequence[MemberResult]) -> Collection[str]:
    """Return the UIDs of members that return after a backoff, in a group that was temporarily below its quorum.

    Members that have a place and wait for others are not woken by events of their own. With victims, one member is
    sufficient, if possible one that needs none: the others are woken by their end. If only one would return, and
    several fit no node, one of these returns as well: if the other is deleted, the consequences for the rest are
    still found.
    """
    if not any(each.waited for each in tried):
        return ()
    placed = [each for each in tried if each.node_name is not None]
    refused = [each for each in tried if each.node_name is None]
    if any(each.attempt is not None for each in tried):
        placed = ([each for each in placed if each.attempt is None] or placed)[-1:]
    elif len(placed) == 1 and len(refused) > 1:
        placed.append(refused[0])
    return {each.member.pod.uid for each in placed}
