"""Judges the members of a group on their chosen nodes and assumes them, at least the minimum or none.

    session ──> each member on the live ledger, earlier ones placed ──> at least the minimum: all of them assumed
                   └─ outdated, refused or unreservable                    └─ fewer: nothing is changed

It is one call without an await, so nothing happens between the first check and the last assumption: no bind of a group
is sent before its minimum is assumed, and two groups never each hold a part of what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.decide.compiled import CompiledFilter, compile_filters, first_refusing
from agent_scheduler.engine.decide.decide import CandidateNode
from agent_scheduler.engine.decide.reserving import Reservations
from agent_scheduler.engine.decide.trial import WhatIf
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.preemption.nominated import Nominations
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podinfo import PodInfo
from kube_client.pace import Pace

from .prebind import NOTHING, PreBinder, Reserved, Unavailable
from .result import ScheduleResult

#: One in `_LEFT` of the concurrent binds, but at least one, is left to other pods, so that they do not wait for binds
#: of groups that the server does not answer. While other pods arrive, groups have at most `_BESIDE_OTHERS`.
_LEFT: Final = 8
_BESIDE_OTHERS: Final = 4


class Member(NamedTuple):
    """A member. The first candidate of `result`, which was decided by `profile`, is its node.

    `reservations` are made on that node already; the binder owns them once the member is accepted.
    """

    result: ScheduleResult
    profile: Profile
    reservations: Reservations = ()


class Admission(Protocol):
    """Checks in order whether queues can hold the members; earlier members count."""

    def admit(self, pod: PodInfo) -> str:
        """Count the pod as assumed. Returns a message for users if its queue cannot hold it; "" if it is counted."""

    def withdraw(self, pod: PodInfo) -> None:
        """Undo `admit` for a pod that is not assumed."""


class Accepted(NamedTuple):
    """An assumed member; `reserved` is what has to be written or waited for before its bind, if anything.

    `version` is that of the node's row with this member.
    """

    result: ScheduleResult
    node_name: str
    reserved: Reserved | None
    version: int


class _Standing(NamedTuple):
    member: Member
    node: CandidateNode
    #: The reservations of this step.
    reserved: Reserved | None


class GroupBinds:
    """Limits the concurrent binds of groups. Owner: the binder, which counts them.

    A session sends the binds of many groups at once, and the server answers in the order of arrival, so each of them
    that queues there would delay the next bind of the fast path.
    """

    def __init__(self, pace: Pace, *, go_on: Callable[[], object]) -> None:
        """Limit binds by `pace`; `go_on` is called when another may begin although none has ended."""
        self.under_way = 0
        self._pace = pace
        self._go_on = go_on

    def may_begin(self, limit: int, waiting: int) -> bool:
        """Return whether one of the `waiting` binds may begin. `limit` is that of all binds."""
        most = limit - max(1, limit // _LEFT)
        if self._pace.others_come:
            most = min(most, _BESIDE_OTHERS)
        return self.under_way < max(1, most) and self._pace.admits(self._go_on, waiting)


class GroupJudge:
    """Judges groups; stateless."""

    def __init__(self, cluster: Cluster, prebind: PreBinder, nominations: Nominations) -> None:
        self._cluster = cluster
        self._prebind = prebind
        self._nominations = nominations

    def judge(
        self, members: Sequence[Member], minimum: int, admission: Admission
    ) -> tuple[Sequence[Accepted], Mapping[str, str]]:
        """Return the members that are assumed now, and the reasons of the others by UID."""
        ledger = self._cluster.ledger
        refused: dict[str, str] = {}
        standing: list[_Standing] = []
        together = {member.result.pod.uid for member in members}
        with WhatIf(ledger, ledger.columns) as there:
            for member in members:
                try:
                    found = self._stands(member, together, there, admission)
                except Exception as error:
                    # An error in a plugin fails this member only, as it does any other pod.
                    found = f"{type(error).__name__}: {error}"
                if isinstance(found, str):
                    refused[member.result.pod.uid] = found
                else:
                    standing.append(found)
                    there.place(member.result.pod, found.node.row)
        if len(standing) < max(minimum, 1):
            self._undo(standing, admission)
            why = f"only {len(standing)} of {len(members)} members can still have their nodes"
            return (), {**dict.fromkeys((each.result.pod.uid for each in members), why), **refused}
        return [self._assume(each) for each in standing], refused

    def _assume(self, standing: _Standing) -> Accepted:
        (result, _, reservations), node, reserved = standing
        if reservations:
            info = self._cluster.ledger.node(node.node_name)
            assert info is not None, "looked at in this step"
            reserved = self._prebind.take_over(result.pod, info, reservations)
        if reserved is None and result.pod.stands_by:
            reserved = NOTHING
        self._cluster.ledger.assume(result.pod, node.row)
        return Accepted(result, node.node_name, reserved, self._cluster.ledger.sequence)

    def _undo(self, standing: Sequence[_Standing], admission: Admission) -> None:
        for (result, _, reservations), _, _ in reversed(standing):
            admission.withdraw(result.pod)
            if result.reserves and not reservations:
                self._prebind.cancel(result.pod)

    def _stands(
        self, member: Member, together: Collection[str], there: WhatIf, admission: Admission
    ) -> _Standing | str:
        """Return the member's node and reservations, or the reason of its refusal as a message for users."""
        result = member.result
        pod, node, ledger = result.pod, result.placement.candidates[0], self._cluster.ledger
        seen = self._cluster.pods.get(pod.uid)
        if seen is None or not self._cluster.is_ours(seen) or pod.uid in ledger.placements:
            return "it no longer waits"
        if seen.cls is not pod.cls:
            return "its requirements have changed"
        if ledger.rows.get(node.node_name) != node.row:
            return f"node {node.node_name} is gone"
        cls = self._cluster.handle.class_of(pod, beside=there.beside)
        filters = self._filters(member, cls, there)
        if isinstance(filters, str):
            return filters
        refusing = first_refusing(filters, ledger.columns, node.row)
        if refusing is not None:
            return f"{refusing.plugin.name} now refuses node {node.node_name}"
        if not self._is_free(pod, cls, filters, node, together):
            return f"the room on node {node.node_name} is kept for pods that are nominated to it"
        if problem := admission.admit(pod):
            return problem
        return self._reserve(member, node, filters, admission)

    def _filters(self, member: Member, cls: PodClass, there: WhatIf) -> Sequence[CompiledFilter] | str:
        """Return the filters to check, or why no node is feasible."""
        result = member.result
        if member.reservations:
            # The member's own reservations are unavailable to others, and the reserving plugins were checked before.
            reserving = {id(plugin) for plugin, _ in member.reservations}
            return [each for each in result.filters if id(each.plugin) not in reserving]
        if cls is result.cls and (cls.volumes is None or self._cluster.catalogue.version == result.catalogue_version):
            return result.filters
        counted = self._cluster.ledger.columns.matching
        known = set(counted)
        filters, rejection = compile_filters(member.profile, cls, self._cluster.handle)
        there.count_anew([kind for kind in counted if kind not in known])
        return filters if rejection is None else rejection.message

    def _is_free(
        self,
        pod: PodInfo,
        cls: PodClass,
        filters: Sequence[CompiledFilter],
        node: CandidateNode,
        together: Collection[str],
    ) -> bool:
        if not self._cluster.queue.nominator.nominated:
            return True
        return bool(self._nominations.free(pod, cls, filters, (node,), beside=together))

    def _reserve(
        self, member: Member, node: CandidateNode, filters: Sequence[CompiledFilter], admission: Admission
    ) -> _Standing | str:
        result = member.result
        if result.reserves and not member.reservations:
            try:
                reserved = self._prebind.reserve(result, node, filters)
            except BaseException:
                admission.withdraw(result.pod)
                raise
            if isinstance(reserved, Unavailable):
                admission.withdraw(result.pod)
                return f"node {node.node_name} no longer has the devices or volumes that it needs"
            return _Standing(member, node, reserved)
        return _Standing(member, node, None)
