"""The recorded cases, and the run and comparison of each."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import product
from typing import Any, NamedTuple

from apimachinery.quantity import milli_value
from kube_client.testing.loop import SimLoop
from tests.decisions.plain.selectors import selects
from tests.support.needed import recorded_cases

from .comparing import Kind, Obj, class_of, differences, kinds_of, state_of
from .replay import LONGEST, Living, living

#: Seconds between the objects of a step: how soon the scheduler sees the first of them was chance in the recordings,
#: and what it begins with may depend on that. None: all are there when it sees the first.
PAUSES = (0.005, None, 0.0)
#: Into a second when a case begins: backoffs end with whole seconds, and which step that was in was chance, too.
MOMENTS = (0.0, 0.5)
_LOOK = 0.1
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Lived(NamedTuple):
    #: The step and the differences of the first state unlike the recorded one; empty if there is none.
    differences: list[str]
    #: Violated rules of gangs, whatever was recorded.
    broken: list[str]


def cases() -> list[Obj]:
    """Return the cases of the file that the environment names, or of those beside the checkout."""
    names = ("kube-gangs/cases.jsonl.gz", "kube-gangs/cases-2.jsonl.gz")
    return recorded_cases("AGENT_SCHEDULER_KUBE_GANGS", *names)


def judged(case: Obj) -> Lived:
    """Return the run with the pause and the moment with which it equals the recording, or else the first."""
    tries = []
    for moment, pause in product(MOMENTS, PAUSES):
        loop = SimLoop(0)
        try:
            loop.run_until_complete(asyncio.sleep(moment))
            found: Lived = loop.run_until_complete(live_through(case, pause))
        finally:
            loop.close()
        assert loop.complaints == []
        tries.append(found)
        if found.broken or not found.differences:
            return found
    return tries[0]


def is_by_chance(case: Obj) -> bool:
    """Return whether timing decides more than which of equal members waits, so that only the rules are checked.

    If several gangs want the same nodes, the first one depends on the ends of their backoffs. If pods are evicted for a
    gang that needs fewer members than are created, it depends on the number of members at the first attempt, on the
    victims of each, and on the attempts until its victims were gone.
    """
    if case["kind"] == "competing" or "queue-order" in case["features"]:
        return True
    made = (step["objects"] for step in case["steps"] if step["do"] == "create")
    return case["kind"] == "priority" and any(map(_begins_early, made))


def _begins_early(objects: list[Obj]) -> bool:
    members = Counter(
        each["spec"].get("schedulingGroup", {}).get("podGroupName")
        for each in objects
        if each["kind"] == "Pod" and each["spec"].get("priorityClassName") != "p100"
    )
    return any(
        each["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 1) < members[each["metadata"]["name"]]
        for each in objects
        if each["kind"] == "PodGroup"
    )


async def live_through(case: Obj, pause: float | None) -> Lived:
    """Run a case as far as it equals the recording. From the first different step on, only the rules are checked."""
    pods = [each for step in case["steps"] for each in step.get("objects", ()) if each["kind"] == "Pod"]
    classes = {each["metadata"]["name"]: class_of(each) for each in pods}
    found: list[str] = []
    wrong: list[str] = []
    async with living(pause=pause) as there:
        told: set[Kind] = set()
        #: Recorded name of a pod -> the name of one that is in the same state here.
        names = {name: name for name in classes}
        for index, step in enumerate(case["steps"]):
            there.told()
            await there.do(_renamed(step, names))
            here, found = await _compare(there, step["after"], classes, told)
            wrong += [f"step {index}: {each}" for each in broken(there)]
            if found:
                return Lived([f"step {index} ({step['do']}): {each}" for each in found], wrong)
            told |= kinds_of(step["after"], classes)
            names = _matched(step["after"], here, classes, names)
        assert there.reports.failures == []
    return Lived([], wrong)


async def _compare(there: Living, recorded: Obj, classes: dict[str, str], told: set[Kind]) -> tuple[Obj, list[str]]:
    """Return the state at the recorded time, and its differences.

    The recorder waited until nothing happened. A retry that is due soon after a step may have come before or after
    that, so earlier states count, and those until it would have stopped waiting.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    before = [there.after(), *[state async for state in there.quiet()]]
    now = there.after()
    found = differences(recorded, now, classes, told)
    if not found:
        return now, []
    for state in reversed(before):
        if not differences(recorded, state, classes, told):
            return state, []
    while loop.time() - began < LONGEST:
        await asyncio.sleep(_LOOK)
        now = there.after()
        if not differences(recorded, now, classes, told):
            return now, []
    return now, found


def _renamed(step: Obj, names: dict[str, str]) -> Obj:
    if step["do"] == "ungate" or (step["do"] == "delete" and step["kind"] == "Pod"):
        return {**step, "names": [names[name] for name in step["names"]]}
    return step


def _matched(recorded: Obj, lived: Obj, classes: dict[str, str], names: dict[str, str]) -> dict[str, str]:
    """Return `names` with pods in the same state as values; those that are already stay."""
    pool: dict[Any, list[str]] = defaultdict(list)
    for name, pod in lived["pods"].items():
        pool[classes[name], state_of(pod)].append(name)
    found = dict(names)
    left = []
    for name, pod in recorded["pods"].items():
        same = pool[classes[name], state_of(pod)]
        if names[name] in same:
            same.remove(names[name])
            found[name] = names[name]
        else:
            left.append((name, same))
    for name, same in left:
        found[name] = same.pop()
    return found


# ---- rules of gangs that timing cannot change: no pod is bound below the minimum, and no gang waits that would fit


def broken(there: Living) -> list[str]:
    """Return the violated rules of a cluster in which nothing happens any more."""
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
        waiting = [each for each in members[name] if _waits(each) and not _repelled(each, pods)]
        fitting = _fitting(waiting, room)
        if len(members[name]) >= minimum and fitting and fitting + len(bound) >= minimum:
            found.append(f"{fitting} of {name} would fit beside {len(bound)}, and wait: {minimum} are needed")
    return found


def _waits(pod: Obj) -> bool:
    spec, metadata = pod["spec"], pod["metadata"]
    return not (spec.get("nodeName") or spec.get("schedulingGates") or "deletionTimestamp" in metadata)


def _repelled(waiting: Obj, pods: Iterable[Obj]) -> bool:
    """Return whether a pod on a node has anti-affinity to the waiting one, wherever it is."""
    terms = (
        term
        for each in pods
        if each["spec"].get("nodeName")
        for term in each["spec"].get("affinity", {}).get("podAntiAffinity", {}).get(_REQUIRED, ())
    )
    return any(selects(each.get("labelSelector"), waiting["metadata"].get("labels", {})) for each in terms)


def _room(nodes: Iterable[Obj], pods: list[Obj]) -> Iterable[tuple[str, int]]:
    """Return the free milli-CPUs of the nodes that are open to all pods."""
    for node in nodes:
        if not (node.get("spec", {}).get("unschedulable") or node.get("spec", {}).get("taints")):
            name = node["metadata"]["name"]
            held = [
                each for each in pods if name in (each["spec"].get("nodeName"), each["status"].get("nominatedNodeName"))
            ]
            yield name, milli_value(node["status"]["allocatable"]["cpu"]) - sum(map(_asks, held))


def _asks(pod: Obj) -> int:
    resources = (each.get("resources", {}) for each in pod["spec"]["containers"])
    return sum(milli_value(each.get("requests", {}).get("cpu", "0")) for each in resources)


def _fitting(waiting: list[Obj], room: dict[str, int]) -> int:
    """Return how many pods fit at least, the small ones first. Pods with affinities are left out."""
    left = dict(room)
    found = 0
    for asks in sorted(_asks(each) for each in waiting if not each["spec"].get("affinity")):
        node = next((name for name in sorted(left, key=left.__getitem__) if left[name] >= asks), None)
        if node is not None:
            left[node] -= asks
            found += 1
    return found
