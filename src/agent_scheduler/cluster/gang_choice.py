"""Selects the members of a gang that pass the gate of their queue together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable

from agent_scheduler.engine.gangs.group import PodGroupInfo, effective_minimum, of_native, of_pod_group
from agent_scheduler.engine.queues.asks import needed, role_of, turn_in_gang, turn_of_pod
from agent_scheduler.engine.queues.gated import GatedMembers
from agent_scheduler.engine.quotas.vector import EMPTY, Total, Vector, of_requests, take_from
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.podspec import SpecError
from agent_scheduler.objects.batch import PodGroup
from apimachinery.quantity import QuantityError

from .cluster import KnownPods
from .groups import Groups

_SUCCEEDED = "Succeeded"


class GangChoice:
    """An implementation of `engine.queues.gated.Choose` without own state."""

    def __init__(self, known: KnownPods, groups: Groups | None) -> None:
        """Choose among known pods.

        `groups` are Volcano's; None without a batch scheduler, when members pass one by one.
        """
        self._known = known
        self._groups = groups
        self._schedulers = frozenset[str]() if groups is None else groups.schedulers

    def __call__(self, key: GroupKey, gated: Collection[PodInfo], with_room: Container[str]) -> GatedMembers | None:
        found = self._group(key, gated)
        if found is None:
            return None
        group, members = found
        if group is None:
            return GatedMembers((), sorted(gated, key=turn_of_pod))
        holding = [each for each in members if self._holds_room(each, with_room)]
        held_roles = Counter(map(role_of, holding))
        held = {pod.uid for pod in gated}
        # Members without a gate and without a node need room, too.
        loose = [
            each
            for each in members
            if not (each.closed_gates or each.deleting or each.finished or self._holds_room(each, with_room))
        ]
        there = Counter(map(role_of, (*holding, *gated, *loose)))
        minimum, roles = effective_minimum(group, there)
        if there.total() < minimum or any(there[role] < least for role, least in roles.items()):
            return None
        first, others = needed(
            sorted((*gated, *loose), key=turn_in_gang),
            role_of=role_of,
            more=minimum - len(holding),
            of_roles={role: least - held_roles[role] for role, least in roles.items()},
        )
        return GatedMembers(
            first if any(pod.uid in held for pod in first) else (),
            [pod for pod in others if pod.uid in held],
            _at_least(group, holding),
        )

    def _group(self, key: GroupKey, gated: Collection[PodInfo]) -> tuple[PodGroupInfo | None, Iterable[PodInfo]] | None:
        """Return the gang and its members, or None if it does not exist yet. Pods that pass one by one have no gang."""
        named = any(pod.batch is not None and pod.batch.group is not None for pod in gated)
        if not named:
            is_left = self._groups is not None and any(pod.uid in self._groups.to_be_named for pod in gated)
            return None if is_left else (None, ())
        if key.native:
            native = self._known.groups.get(key)
            if native is None:
                return None
            members = self._known.groups.members(key)
            if self._groups is not None and any(pod.scheduler_name in self._schedulers for pod in gated):
                # Sessions count succeeded members, the fast path does not.
                members = self._groups.groups[key].members
            return of_native(native.object), members.values()
        if self._groups is None:
            return None, ()
        known = self._groups.groups.get(key)
        if known is None or not isinstance(known.object, PodGroup):
            return None
        try:
            return of_pod_group(known.object), known.members.values()
        except (QuantityError, SpecError):
            # Sessions report that, and admit no members either.
            return None

    def _holds_room(self, pod: PodInfo, with_room: Container[str]) -> bool:
        if pod.finished:
            return pod.batch is not None and pod.batch.phase == _SUCCEEDED
        if pod.deleting:
            return False
        return bool(pod.node_name) or pod.uid in with_room


def _at_least(group: PodGroupInfo, holding: Iterable[PodInfo]) -> Vector:
    """Return the declared needs of the group minus the requests of members with room."""
    if group.min_resources is None:
        return EMPTY
    left: Total = dict(group.min_resources)
    for pod in holding:
        if not pod.finished:
            take_from(left, of_requests(pod.cls.requests))
    return {resource: left[resource] for resource in group.min_resources if left[resource] > 0}
