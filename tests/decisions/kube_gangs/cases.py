"""The recorded cases, and each lived through and compared."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any, NamedTuple

from tests.support.loop import SimLoop
from tests.support.needed import recorded_cases

from .comparing import Kind, Obj, class_of, differences, kinds_of, state_of
from .replay import LONGEST, Living, living
from .rules import broken

#: Seconds between the objects of a step: how soon the scheduler sees the first of them was chance in the recordings,
#: and what it begins with may depend on that. None: all are there when it sees the first.
PAUSES = (0.005, None, 0.0)
_LOOK = 0.1


class Lived(NamedTuple):
    #: Where it was otherwise than recorded: the step, and in what. Empty if nowhere.
    differences: list[str]
    #: Rules of gangs that were broken, whatever was recorded.
    broken: list[str]


def cases() -> list[Obj]:
    """Those of the file that the environment names, or of the one beside the checkout."""
    return recorded_cases("AGENT_SCHEDULER_KUBE_GANGS", "kube-gangs/cases.jsonl.gz")


def judged(case: Obj) -> Lived:
    """As it went with the pause with which it went as recorded, or else with the first."""
    tries = []
    for pause in PAUSES:
        loop = SimLoop(0)
        try:
            found: Lived = loop.run_until_complete(live_through(case, pause))
        finally:
            loop.close()
        assert loop.complaints == []
        tries.append(found)
        if found.broken or not found.differences:
            return found
    return tries[0]


def is_by_chance(case: Obj) -> bool:
    """Whether moments decide more of a case than which of equal members is which, so that only the rules hold.

    Where several gangs want the same nodes, it may be either that comes first: it depends on when their backoffs end.
    And where others have to be evicted for a gang that needs fewer members than are being made, it depends on how many
    of them were there at the first attempt whom each of them had evicted, and how often it was tried until its victims
    were gone.
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
        each["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 1)
        < members[each["metadata"]["name"]]
        for each in objects
        if each["kind"] == "PodGroup"
    )


async def live_through(case: Obj, pause: float | None) -> Lived:
    """As far as it is as recorded. From the first step on that is not, only the rules are looked at."""
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


async def _compare(
    there: Living, recorded: Obj, classes: dict[str, str], told: set[Kind]
) -> tuple[Obj, list[str]]:
    """What there is at the moment that was recorded, and what is otherwise.

    The recorder waited for quiet. A retry that is due soon after a step may have come before that, or after it, so
    states that were there a moment earlier count, and those until it would have stopped waiting.
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
    """As `names`, with pods in the same state behind the names; those that are so already stay."""
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
