"""Compares a recorded state with that of a run, by the rules that came with the recordings.

Timing decides which of several equal nodes a pod gets, and which of equal members wait. Members with equal requests are
therefore one class, and the number of its members in each state is compared: bound, nominated or being deleted, and the
PodScheduled condition word for word. The kinds of events are compared by class.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

Obj = dict[str, Any]
#: The class of an event's pod, its type and its reason.
Kind = tuple[str, str, str]
_FAILED = "FailedScheduling"


def class_of(pod: Obj) -> str:
    """Return the pod's class; pods of one class cannot be distinguished."""
    spec = {key: value for key, value in pod["spec"].items() if key != "schedulingGates"}
    group = spec.get("schedulingGroup", {}).get("podGroupName", "")
    return f"{group or 'alone'} {json.dumps(spec, sort_keys=True)}"


def differences(recorded: Obj, lived: Obj, classes: Mapping[str, str], told: Collection[Kind] = ()) -> list[str]:
    """Return the differences; empty for equal states.

    `classes` has all pods that ever existed. `told` has the kinds of events of the steps before, whose repetitions may
    be recorded late or not at all.
    """
    one, other = _pods(recorded, classes), _pods(lived, classes)
    differ = [key for key in sorted(one) if one[key] != other[key]]
    found = [f"{key[:70]}: recorded {dict(one[key])}, lived {dict(other[key])}" for key in differ]
    for name in sorted({*recorded["podGroups"], *lived["podGroups"]}):
        was, is_ = recorded["podGroups"].get(name, "absent"), lived["podGroups"].get(name, "absent")
        if was != is_:
            found.append(f"PodGroup {name}: recorded {was}, lived {is_}")
    was_told, is_told = kinds_of(recorded, classes) - {*told}, kinds_of(lived, classes) - {*told}
    if was_told != is_told:
        found.append(f"events: only recorded {was_told - is_told}, only lived {is_told - was_told}")
    return found


def state_of(pod: Obj) -> tuple[Any, ...]:
    condition = pod.get("condition") or {}
    said = tuple(condition.get(key, "") for key in ("status", "reason", "message"))
    return "node" in pod, "nominatedNode" in pod, bool(pod.get("deleting")), said


def _pods(after: Obj, classes: Mapping[str, str]) -> dict[str, Counter[Any]]:
    found: dict[str, Counter[Any]] = {key: Counter() for key in classes.values()}
    for name, pod in after["pods"].items():
        found[classes[name]][state_of(pod)] += 1
    return found


def kinds_of(after: Obj, classes: Mapping[str, str]) -> set[Kind]:
    """Return the kinds of events of a step.

    An attempt that began while the objects of a step were being created, or before the last was seen, may report a
    failure of a pod that is bound in the end. It depends on timing, and is left out.
    """
    bound = {name for name, pod in after["pods"].items() if "node" in pod}
    return {
        (classes[name][:40] if kind == "Pod" else name, type_, reason)
        for kind, name, type_, reason, _ in after["events"]
        if not (reason == _FAILED and name in bound)
    }
