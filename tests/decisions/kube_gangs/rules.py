"""What holds of gangs whatever chance decides: nothing below the minimum is bound, and no gang waits that would fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from agent_scheduler.objects.quantity import milli_value

from .comparing import Obj
from .replay import Living


def broken(there: Living) -> list[str]:
    """Of a cluster that is at rest."""
    pods = there.listed("Pod")
    found = []
    room = dict(_room(there.listed("Node"), pods))
    members: dict[str, list[Obj]] = defaultdict(list)
    for pod in pods:
        members[pod["spec"].get("schedulingGroup", {}).get("podGroupName", "")].append(pod)
    for group in there.listed("PodGroup"):
        name = group["metadata"]["name"]
        gang = group["spec"]["schedulingPolicy"].get("gang")
        minimum = gang["minCount"] if gang else 1
        bound = {each["metadata"]["name"] for each in members[name] if each["spec"].get("nodeName")}
        new = bound - there.bound_once.get(name, set())
        there.bound_once.setdefault(name, set()).update(bound)
        if new and len(bound) < minimum:
            found.append(f"{sorted(new)} of {name} are bound, {len(bound)} of {minimum}")
        waiting = [each for each in members[name] if _waits(each)]
        fitting = _fitting(waiting, room)
        if len(members[name]) >= minimum and fitting and fitting + len(bound) >= minimum:
            found.append(f"{fitting} of {name} would fit beside {len(bound)}, and wait: {minimum} are needed")
    return found


def _waits(pod: Obj) -> bool:
    spec, metadata = pod["spec"], pod["metadata"]
    return not (spec.get("nodeName") or spec.get("schedulingGates") or "deletionTimestamp" in metadata)


def _room(nodes: Iterable[Obj], pods: list[Obj]) -> Iterable[tuple[str, int]]:
    """Milli-CPUs that are free on the nodes that anybody may go to."""
    for node in nodes:
        if not (node.get("spec", {}).get("unschedulable") or node.get("spec", {}).get("taints")):
            name = node["metadata"]["name"]
            held = [
                each
                for each in pods
                if name in (each["spec"].get("nodeName"), each["status"].get("nominatedNodeName"))
            ]
            yield name, milli_value(node["status"]["allocatable"]["cpu"]) - sum(map(_asks, held))


def _asks(pod: Obj) -> int:
    resources = (each.get("resources", {}) for each in pod["spec"]["containers"])
    return sum(milli_value(each.get("requests", {}).get("cpu", "0")) for each in resources)


def _fitting(waiting: list[Obj], room: dict[str, int]) -> int:
    """How many fit at least, small ones first. Pods with affinities are left out."""
    left = dict(room)
    found = 0
    for asks in sorted(_asks(each) for each in waiting if not each["spec"].get("affinity")):
        node = next((name for name in sorted(left, key=left.__getitem__) if left[name] >= asks), None)
        if node is not None:
            left[node] -= asks
            found += 1
    return found
