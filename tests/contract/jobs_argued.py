"""Compares a state with the recorded one, but for what is different on purpose (decision 0045).

Each rule is a function that makes of the recorded state what it would be with that one difference, or nothing of it
where the difference does not show. A rule never takes a value out of the comparison without putting another one in its
place, but for numbers that Volcano's own runs disagree about.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

State = dict[str, Any]

COUNTS: Final = ("pending", "running", "succeeded", "failed", "unknown", "terminating")
_PHASES: Final = {"Pending": "pending", "Running": "running", "Succeeded": "succeeded", "Failed": "failed"}
_VERSION: Final = "volcano.sh/job-version"
_OUTSIDE: Final = ("", "Pending")


class Argued:
    """Of one scenario. `used` counts the steps in which each rule was needed."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        self._scenario = scenario
        self.used: Counter[str] = Counter()
        #: Pods that Volcano has made and that are not made here yet.
        self.early: set[str] = set()

    def compare(
        self, number: int, step: State, codes: list[int], expected: State, found_codes: list[int], found: State
    ) -> list[str]:
        if codes == found_codes and not difference(expected, found):
            return []
        for rule in RULES:
            changed = rule(self, copy.deepcopy(expected), found)
            if changed != expected:
                self.used[rule.__name__] += 1
            expected = changed
        texts = [] if codes == found_codes else [f"codes {codes} expected, {found_codes} found"]
        return texts + difference(expected, found)


def _group_of(state: State, job: str) -> State | None:
    for each in state["podgroups"].values():
        if any((owner["kind"], owner["name"]) == ("Job", job) for owner in each["metadata"]["ownerReferences"]):
            return each  # type: ignore[no-any-return]
    return None


def _is_let_in(state: State, job: str) -> bool:
    group = _group_of(state, job)
    return group is not None and group["status"].get("phase", "") not in _OUTSIDE


def _pods_of(state: State, job: str) -> dict[str, State]:
    return {
        name: pod
        for name, pod in state["pods"].items()
        if any(owner["name"] == job for owner in pod["metadata"]["ownerReferences"])
    }


def no_pod_before_the_group_is_let_in(argued: Argued, expected: State, found: State) -> State:
    """After a restart Volcano makes a pod by what it knows of the old group. Here it waits for the new one."""
    for job in expected["jobs"]:
        pods = _pods_of(expected, job)
        if not _is_let_in(expected, job) and expected["jobs"][job]["status"].get("retryCount"):
            for name, pod in pods.items():
                made = pod["metadata"]["annotations"].get(_VERSION)
                if name not in found["pods"] and pod["phase"] == "Pending" and made != "0":
                    argued.early.add(name)
                    del expected["pods"][name]
        else:
            for name in argued.early & pods.keys():
                argued.early.discard(name)
                if pods[name]["incarnation"] == "same":
                    pods[name]["incarnation"] = "new"
    return expected


def a_restart_goes_on_once_its_pods_are_gone(argued: Argued, expected: State, found: State) -> State:
    """Volcano goes by the numbers that it wrote when the restart began, until the new group is let in."""
    for name, job in expected["jobs"].items():
        status, other = job["status"], found["jobs"].get(name, {}).get("status", {})
        phases = status.get("state", {}).get("phase"), other.get("state", {}).get("phase")
        if phases == ("Restarting", "Pending") and not any(
            pod["deleting"] for pod in _pods_of(expected, name).values()
        ):
            status["state"]["phase"] = "Pending"
            conditions = [each for each in status["conditions"] if each != "Pending"]
            status["conditions"] = [*conditions, "Pending"]
    return expected


def numbers_are_those_of_the_pods(argued: Argued, expected: State, found: State) -> State:
    """Volcano empties them when a Job ends, and leaves them as they are while a group is not let in."""
    for name, job in expected["jobs"].items():
        status = job["status"]
        if status.get("state", {}).get("phase") in ("Pending", "Running") and _is_let_in(expected, name):
            continue
        for key in (*COUNTS, "taskStatusCount"):
            status.pop(key, None)
        for pod in _pods_of(expected, name).values():
            if pod["deleting"]:
                status["terminating"] = status.get("terminating", 0) + 1
                continue
            field = _PHASES.get(pod["phase"], "unknown")
            status[field] = status.get(field, 0) + 1
            task = pod["metadata"]["annotations"]["volcano.sh/task-spec"]
            phases = status.setdefault("taskStatusCount", {}).setdefault(task, {"phase": {}})["phase"]
            phases[pod["phase"]] = phases.get(pod["phase"], 0) + 1
    return expected


def a_version_is_counted_once_a_change(argued: Argued, expected: State, found: State) -> State:
    """Volcano counts it up with every late event. That there is one is compared, and not which."""
    for name, job in expected["jobs"].items():
        other = found["jobs"].get(name, {}).get("status", {})
        if "version" in job["status"]:
            job["status"]["version"] = other.get("version", 1)
            if job["status"]["version"] == "<racy>" and "version" not in other:
                del job["status"]["version"]
    for name, pod in expected["pods"].items():
        annotations = pod["metadata"]["annotations"]
        made = found["pods"].get(name, {}).get("metadata", {}).get("annotations", {}).get(_VERSION)
        if annotations.get(_VERSION, "0") != "0" and made not in (None, "0"):
            annotations[_VERSION] = made
    return expected


Rule = Callable[[Argued, State, State], State]
RULES: Final[tuple[Rule, ...]] = (
    no_pod_before_the_group_is_let_in,
    a_restart_goes_on_once_its_pods_are_gone,
    numbers_are_those_of_the_pods,
    a_version_is_counted_once_a_change,
)


def difference(expected: Any, found: Any, where: str = "") -> list[str]:
    """What is different, one text a place."""
    if isinstance(expected, dict) and isinstance(found, dict):
        texts = []
        for key in sorted({*expected, *found}):
            place = f"{where}.{key}"
            if key not in expected:
                texts.append(f"{place}: not expected: {found[key]!r}")
            elif key not in found:
                texts.append(f"{place}: missing: {expected[key]!r}")
            else:
                texts += difference(expected[key], found[key], place)
        return texts
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [
            text
            for index, (one, other) in enumerate(zip(expected, found, strict=True))
            for text in difference(one, other, f"{where}[{index}]")
        ]
    return [] if expected == found else [f"{where}: {expected!r} expected, {found!r} found"]
