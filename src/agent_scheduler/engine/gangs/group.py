"""A group of pods, independent of the object that describes it.

There are three sources: Volcano's PodGroup, a pod without a group (a group of one), and Kubernetes' own PodGroup
(scheduling.k8s.io). This module defines their meaning; `engine.session` handles groups in a session.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from agent_scheduler.objects import batch
from apimachinery.labels import Labels, LabelSelector
from apimachinery.wire import Resources

from ..quotas.vector import Vector, of_resources
from ..state.batchinfo import GroupKey
from ..state.labelselector import label_selector
from ..state.podconstraints import of_selector
from ..state.podinfo import PodInfo
from ..state.podspec import SpecError
from ..state.quotause import QuotaUse, quota_parts

#: A number of members, limited in digits like the number in an object.
_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)

#: The limits of a group's roles, of its policies for sub-groups with the same label, and of the label keys and
#: requirements of one policy: those of a label's policies are read for each member.
MOST_ROLES: Final = 1_000
MOST_POLICIES: Final = 64
_MOST_KEYS: Final = 16

NO_MINIMUMS: Final[Mapping[str, int]] = MappingProxyType({})


class SubGroup(msgspec.Struct, frozen=True):
    """A policy by which members with the same values of `keys` form one sub-group (`spec.subGroupPolicy`)."""

    name: str
    #: Members that make such a sub-group ready.
    size: int = 1
    #: Ready sub-groups that the group needs.
    minimum: int = 0
    selector: LabelSelector | None = None
    keys: tuple[str, ...] = ()

    @property
    def label(self) -> tuple[str, str] | None:
        """A label that all its members have; None if no requirement determines one."""
        return self.selector.pins if self.selector is not None else None

    def values_of(self, labels: Labels) -> tuple[str, ...]:
        """Return the values that identify a member's sub-group in this policy; empty for a pod in none."""
        if self.selector is not None and not self.selector.matches(labels):
            return ()
        values = tuple(labels.get(key, "") for key in self.keys)
        return values if all(values) else ()


class PodGroupInfo(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One group at one resourceVersion."""

    key: GroupKey
    uid: str = ""
    created: str = ""
    queue: str = batch.DEFAULT_QUEUE
    priority_class: str = ""
    #: Members that have to run for any to run.
    minimum: int = 1
    #: Role -> the minimum of its members.
    role_minimums: Mapping[str, int] = NO_MINIMUMS
    #: Roles that wait for others, and have not reached their minimum yet.
    waiting_roles: frozenset[str] = frozenset()
    sub_groups: tuple[SubGroup, ...] = ()
    #: The resources that must be available before the group is admitted to its queue; None requires nothing.
    min_resources: Vector | None = None
    #: The same resources as listed in the object, including those that count only in quotas of its namespace.
    listed_resources: Resources | None = None
    #: The parts of the resources, if its pods differ in scopes of quotas.
    quota_parts: tuple[QuotaUse, ...] = ()
    annotations: Mapping[str, str] = {}
    status: batch.PodGroupStatus = batch.PodGroupStatus()

    @property
    def is_object(self) -> bool:
        """Whether it is a PodGroup of Volcano, whose phase other components read."""
        return bool(self.uid) and not self.key.native and self.key.name != self.uid

    @property
    def name(self) -> str:
        """The unique name of the group."""
        return self.key.text


def effective_minimum(group: PodGroupInfo, present: Collection[str] = ()) -> tuple[int, Mapping[str, int]]:
    """Return the number of members that have to run, and that of each role if roles count.

    Minimums of roles count only if the group's own is at least their sum: a group with a lower total accepts any
    members (`job_info.go`, `CheckTaskReady`). `present` has the roles with members. Roles without members that wait for
    others are not required; the group's minimum is reduced accordingly.
    """
    roles, least = group.role_minimums, group.minimum
    if not roles:
        return least, NO_MINIMUMS
    counts = least >= sum(roles.values())
    if absent := group.waiting_roles.difference(present):
        without = sum(minimum for role, minimum in roles.items() if role in absent)
        roles = {role: minimum for role, minimum in roles.items() if role not in absent}
        least = least - without if counts else min(least, sum(roles.values()))
    return least, roles if counts else NO_MINIMUMS


def of_pod_group(group: batch.PodGroup, *, queue: str = batch.DEFAULT_QUEUE) -> PodGroupInfo:
    """Return the group of a Volcano PodGroup. `queue` is that of groups that name none.

    Raises `QuantityError` for invalid resources, and `SpecError` for an invalid selector and too many roles or
    policies.
    """
    metadata, spec = group.metadata, group.spec
    annotations = metadata.annotations or {}
    attainable = _attainable(annotations.get(batch.ATTAINABLE, ""))
    roles = spec.min_task_member or NO_MINIMUMS
    policies = spec.sub_group_policy or ()
    for field, number in (("minTaskMember", len(roles)), ("subGroupPolicy", len(policies))):
        if number > MOST_ROLES:
            raise SpecError(f"spec.{field}: found {number} entries; allowed: at most {MOST_ROLES}")
    sub_groups = tuple(_sub_group(*each, attainable) for each in enumerate(policies))
    of_label = max(Counter(each.label for each in sub_groups).values(), default=0)
    if of_label > MOST_POLICIES:
        raise SpecError(f"spec.subGroupPolicy: found {of_label} for the same label; allowed: at most {MOST_POLICIES}")
    return PodGroupInfo(
        key=GroupKey(metadata.namespace, metadata.name),
        uid=metadata.uid,
        created=metadata.creation_timestamp or "",
        queue=spec.queue or queue,
        priority_class=spec.priority_class_name,
        minimum=min(spec.min_member, attainable.get("", spec.min_member)),
        role_minimums={role: min(least, attainable.get(role, least)) for role, least in roles.items()},
        waiting_roles=group.waiting_roles,
        sub_groups=sub_groups,
        min_resources=None if spec.min_resources is None else of_resources(spec.min_resources),
        listed_resources=spec.min_resources,
        quota_parts=quota_parts(annotations.get(batch.QUOTA_PARTS, "")),
        annotations=annotations,
        status=group.status,
    )


def _attainable(text: str) -> dict[str, int]:
    """Return the attainable minimums in a text (`batch.ATTAINABLE`).

    The key "" is the group, a role's name the role, and the name with "/" its sub-groups; invalid numbers are skipped.
    """
    total, *entries = text.split(",")
    said = {"": total}
    for entry in entries:
        role, _, numbers = entry.partition("=")
        said[role], _, said[f"{role}/"] = numbers.partition("/")
    return {name: int(number) for name, number in said.items() if _NUMBER.fullmatch(number)}


def _sub_group(index: int, policy: batch.SubGroupPolicy, attainable: Mapping[str, int]) -> SubGroup:
    keys = of_selector(policy.label_selector) + len(policy.match_label_keys or ())
    if keys > _MOST_KEYS:
        raise SpecError(
            f"spec.subGroupPolicy[{index}]: found {keys} label keys and requirements; allowed: at most {_MOST_KEYS}"
        )
    least = policy.min_sub_groups or 0
    return SubGroup(
        policy.name,
        1 if policy.sub_group_size is None else policy.sub_group_size,
        min(least, attainable.get(f"{policy.name}/", least)),
        label_selector(policy.label_selector, f"spec.subGroupPolicy[{index}].labelSelector"),
        policy.match_label_keys or (),
    )


def of_native(group: batch.NativePodGroup, *, queue: str = batch.DEFAULT_QUEUE) -> PodGroupInfo:
    """Return the group of a native PodGroup. Without a gang policy it needs only one member at a time."""
    metadata, gang = group.metadata, group.spec.scheduling_policy.gang
    return PodGroupInfo(
        key=GroupKey(metadata.namespace, metadata.name, native=True),
        uid=metadata.uid,
        created=metadata.creation_timestamp or "",
        queue=queue,
        minimum=1 if gang is None else gang.min_count,
    )


def of_pod(pod: PodInfo, *, queue: str = "") -> PodGroupInfo:
    """Return the group of one for a pod without a group. Its key is unique: a pod's UID is not a valid name.

    `queue` is that of the pod; if empty, the one that it names, or the default one.
    """
    named = pod.batch.queue if pod.batch is not None else ""
    return PodGroupInfo(
        key=GroupKey(pod.namespace, pod.uid),
        uid=pod.uid,
        created=pod.created,
        queue=queue or named or batch.DEFAULT_QUEUE,
        minimum=1,
    )
