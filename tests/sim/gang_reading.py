"""Reads groups, queues and their pods from the API's objects, by Volcano's rules and independent of the engine.

Amounts are in millicores and bytes, of cpu and memory only: worlds with gangs request nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from apimachinery.quantity import resource_value

from .api import FINAL, Json, node_of
from .gang_load import GROUP_NAME, NAME, NATIVE, QUEUE_NAME, ROLE

Amounts = Mapping[str, int]
RESOURCES = ("cpu", "memory")
#: Annotation of a Job's group: roles of tasks that wait for others, and whose pods need not exist.
WAITING_ROLES = "agent-scheduler.io/waiting-roles"
#: Annotation of a Job's group: its minimum and those of roles, if failed pods make its own minimum unreachable.
ATTAINABLE = "agent-scheduler.io/attainable-minimum"
ROOT, DEFAULT = "root", "default"


def amounts(resources: Mapping[str, Any] | None) -> Counter[str]:
    return Counter({name: resource_value(name, (resources or {}).get(name, "0")) for name in RESOURCES})


def requests(pod: Json) -> Counter[str]:
    total: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        total.update(amounts((container.get("resources") or {}).get("requests")))
    return total


def asks_for_nothing(pod: Json) -> bool:
    return not any(requests(pod).values())


def annotation(pod: Json, name: str) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(name, ""))


def group_of(pod: Json) -> str:
    """Return the name of the pod's group, with the prefix `NATIVE` for a Kubernetes PodGroup; empty for none."""
    own = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return annotation(pod, GROUP_NAME) or (f"{NATIVE}{own}" if own else "")


def is_native(group: str) -> bool:
    """Return whether a group is a Kubernetes PodGroup, by its name."""
    return group.startswith(NATIVE)


def gang_of(pod: Json) -> str:
    """Return the group with whose minimum the pod is scheduled; empty for none.

    Only the batch scheduler schedules groups of Volcano.
    """
    name = group_of(pod)
    return name if is_native(name) or is_batch(pod) else ""


def is_batch(pod: Json) -> bool:
    return bool(pod["spec"].get("schedulerName") == NAME)


def is_leaving(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def has_ended(pod: Json) -> bool:
    return phase(pod) in FINAL


def is_ready(pod: Json) -> bool:
    """Return whether the pod counts for its gang (`ReadyTaskNum`): it has a node, or has succeeded.

    kube-scheduler, and the fast path with it, does not count ended pods.
    """
    if phase(pod) == "Succeeded":
        return is_batch(pod)
    return bool(node_of(pod)) and not is_leaving(pod) and phase(pod) != "Failed"


def has_capacity(pod: Json) -> bool:
    """Return whether the pod counts for its gang before a bind.

    kube-scheduler, and the fast path with it, counts a member with a node until it has ended or is gone, also while it
    is being deleted.
    """
    return is_ready(pod) or (not is_batch(pod) and bool(node_of(pod)) and not has_ended(pod))


def waits(pod: Json) -> bool:
    return not (node_of(pod) or is_leaving(pod) or has_ended(pod))


@dataclass(frozen=True, slots=True)
class Minimum:
    """The number of members that must have capacity, and that of each role if these count."""

    members: int
    roles: Mapping[str, int]

    def lacks(self, ready: Iterable[Json]) -> str:
        """Return what is missing if these are ready; empty if nothing is."""
        there = list(ready)
        if len(there) < self.members:
            return f"{len(there)} of {self.members} members"
        counted = Counter(annotation(pod, ROLE) for pod in there)
        lacking = {role: least for role, least in self.roles.items() if counted[role] < least}
        return ", ".join(f"{counted[role]} of {least} {role}s" for role, least in lacking.items())


def minimum(group: Json, members: Iterable[Json] = ()) -> Minimum:
    """Return the group's minimum. `members`: all of its members.

    A role without members that waits for others is not counted.
    """
    spec = group.get("spec") or {}
    if "schedulingPolicy" in spec:
        return Minimum((spec["schedulingPolicy"].get("gang") or {}).get("minCount", 1), {})
    # The CRD sets the minimum of a group without one to 1.
    least = spec.get("minMember", 1)
    least, roles = _attainable(annotation(group, ATTAINABLE), least, spec.get("minTaskMember") or {})
    if least < sum(roles.values()):
        counted: Mapping[str, int] = {}
    else:
        counted = roles
    absent = set(annotation(group, WAITING_ROLES).split(",")) - {annotation(pod, ROLE) for pod in members}
    if absent & roles.keys():
        without = sum(number for role, number in roles.items() if role in absent)
        left = {role: number for role, number in roles.items() if role not in absent}
        least = least - without if counted else min(least, sum(left.values()))
        counted = left if counted else {}
    return Minimum(least, counted)


def _attainable(text: str, least: int, roles: Mapping[str, int]) -> tuple[int, Mapping[str, int]]:
    if not text:
        return least, roles
    total, *entries = text.split(",")
    said = {role: int(numbers.split("/")[0]) for role, numbers in (each.split("=") for each in entries)}
    return min(least, int(total)), {role: min(number, said.get(role, number)) for role, number in roles.items()}


def queue_of_group(group: Json) -> str:
    return (group.get("spec") or {}).get("queue") or DEFAULT


def queue_of(pod: Json, group: Callable[[str], Json | None]) -> str:
    """Return the queue in which a pod counts: that of its group, or the one that it names; empty for none.

    `group` returns a group by name. Kubernetes PodGroups name no queue: in the batch scheduler they are in its default
    one.
    """
    name = group_of(pod)
    if is_native(name):
        return DEFAULT if is_batch(pod) else annotation(pod, QUEUE_NAME)
    found = group(name) if name else None
    if found is not None:
        return queue_of_group(found)
    return annotation(pod, QUEUE_NAME) or (DEFAULT if is_batch(pod) else "")


def chain(name: str, queues: Mapping[str, Json]) -> list[str]:
    """Return a queue and its existing parents; a queue that is its own ancestor has none."""
    found: list[str] = []
    while name in queues:
        if name in found:
            return found[: found.index(name) + 1]
        found.append(name)
        name = "" if name == ROOT else (queues[name].get("spec") or {}).get("parent") or ROOT
    return found


def held_by(
    names: Iterable[str], queues: Mapping[str, Json], pods: Iterable[Json], queue: Callable[[Json], str]
) -> dict[str, Counter[str]]:
    """Return what the pods use of these queues, each in its `queue` and its parents."""
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    for pod in pods:
        for name in found.keys() & chain(queue(pod), queues):
            found[name].update(requests(pod))
    return found


def is_open(queue: Json | None) -> bool:
    return queue is not None and (queue.get("status") or {}).get("state") == "Open"


def limits(queue: Json) -> dict[str, int]:
    """Return the limits of a queue by resource; 0 is no limit."""
    declared = (queue.get("spec") or {}).get("capability") or {}
    return {name: limit for name, limit in amounts(declared).items() if name in declared and limit > 0}


def above_limits(holds: Amounts, queue: Json) -> str:
    """Return the resources by which a queue with this usage exceeds its capability; empty if it does not."""
    above = {name: limit for name, limit in limits(queue).items() if holds.get(name, 0) > limit}
    return ", ".join(f"{holds[name]} of {limit} {name}" for name, limit in above.items())


def is_above(holds: Mapping[str, Amounts], queues: Mapping[str, Json], wanted: Amounts) -> str:
    """Return which queue would exceed its capability with `wanted` in addition; empty if none.

    Only resources that are wanted count.
    """
    for name, held in holds.items():
        counted = {each: held.get(each, 0) + amount for each, amount in wanted.items() if amount}
        if problem := above_limits(counted, queues[name]):
            return f"queue {name} would have {problem}"
    return ""


def phase_of_group(group: Json | None) -> str:
    return str(((group or {}).get("status") or {}).get("phase") or "")


def pending(members: Iterable[Json]) -> list[Json]:
    """Return the members that wait only for a node."""
    return [pod for pod in members if waits(pod) and not pod["spec"].get("schedulingGates")]


def largest(pods: Iterable[Json]) -> Counter[str]:
    """Return the largest request of each resource."""
    found: Counter[str] = Counter()
    for pod in pods:
        found |= requests(pod)
    return found


def most_of(pods: Iterable[Json], number: int) -> Counter[str]:
    """Return the maximum that `number` of the pods request of each resource."""
    asked = [requests(pod) for pod in pods]
    return Counter({name: sum(sorted((each[name] for each in asked), reverse=True)[:number]) for name in RESOURCES})


def least_of(pods: Iterable[Json], number: int) -> Counter[str]:
    """Return the minimum that `number` of the pods request of each resource."""
    asked = [requests(pod) for pod in pods]
    return Counter({name: sum(sorted(each[name] for each in asked)[:number]) for name in RESOURCES})


def needed(least: Minimum, holding: int, pods: list[Json]) -> int:
    """Return how many of the waiting pods must fit: all if they differ, because they may be tried in any order."""
    alike = len({tuple(sorted(requests(pod).items())) for pod in pods}) <= 1
    return max(1, least.members - holding) if alike and not least.roles else len(pods)
