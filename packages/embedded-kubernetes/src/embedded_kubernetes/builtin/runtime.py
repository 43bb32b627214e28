"""RuntimeClasses (node.k8s.io/v1), and the admission that completes pods from them (KEP-688, KEP-585).

`admit` follows plugin/pkg/admission/runtimeclass: the pod gets the class's overhead, and the class's scheduling is
merged into its node selector and tolerations, so that schedulers see all constraints in the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..errors import ApiError, Cause
from ..errors import forbidden as refused
from ..resource import Object
from . import names
from .amounts import check_amount
from .causes import check_format, duplicate
from .kind import Logic
from .placement import check_tolerations

Toleration = dict[str, Any]


def _check(runtime_class: Object, old: Object | None) -> Iterator[Cause]:
    for name, amount in ((runtime_class.get("overhead") or {}).get("podFixed") or {}).items():
        at = f"overhead.podFixed[{name}]"
        yield from check_format(at, name, names.qualified)
        yield from check_amount(name, amount, at)
    scheduling = runtime_class.get("scheduling") or {}
    tolerations = scheduling.get("tolerations") or []
    yield from check_tolerations(tolerations, "scheduling.tolerations")
    yield from (
        duplicate(f"scheduling.tolerations[{index}]", toleration)
        for index, toleration in enumerate(tolerations)
        if toleration in tolerations[:index]
    )


def admit(pod: Object, find: Callable[[str], Object | None]) -> None:
    """Complete a new pod from its RuntimeClass, in place. `find(name)` returns a class.

    Raises 403 for a missing class, an overhead or node selector that contradicts the class, and an overhead without
    class.
    """
    spec = pod["spec"]
    name = spec.get("runtimeClassName")
    runtime_class = find(name) if name else {}
    if runtime_class is None:
        raise rejected(pod, f'pod rejected: RuntimeClass "{name}" not found')
    overhead = runtime_class.get("overhead")
    if overhead is not None:
        fixed = overhead.get("podFixed") or {}
        if spec.get("overhead") and spec["overhead"] != fixed:
            raise rejected(pod, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        if fixed:
            spec["overhead"] = dict(fixed)
    elif spec.get("overhead"):
        raise rejected(pod, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
    scheduling = runtime_class.get("scheduling")
    if scheduling is not None:
        _merge_scheduling(pod, scheduling)


def rejected(pod: Object, why: str) -> ApiError:
    return refused("pods", "", pod["metadata"].get("name", ""), why)


def _merge_scheduling(pod: Object, scheduling: dict[str, Any]) -> None:
    spec = pod["spec"]
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.setdefault(key, value) != value:
            why = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise rejected(pod, why)
    if selector:
        spec["nodeSelector"] = selector
    given = scheduling.get("tolerations")
    if given:
        spec["tolerations"] = merge_tolerations(spec.get("tolerations") or [], given)


def merge_tolerations(first: list[Toleration], second: list[Toleration]) -> list[Toleration]:
    """Concatenate the lists without tolerations that another one covers; the first of equal ones stays."""
    everything = [*first, *second]
    merged: list[Toleration] = []
    for index, toleration in enumerate(everything):
        if any(covers(kept, toleration) for kept in merged):
            continue
        if any(other != toleration and covers(other, toleration) for other in everything[index + 1 :]):
            continue
        merged.append(dict(toleration))
    return merged


def covers(wide: Toleration, narrow: Toleration) -> bool:
    """Return whether `wide` tolerates every taint that `narrow` does, for at least the same time."""
    if wide == narrow:
        return True
    operator = wide.get("operator") or "Equal"
    everything = not wide.get("key") and operator == "Exists"
    if (narrow.get("key") or "") != (wide.get("key") or "") and not everything:
        return False
    effect = wide.get("effect") or ""
    if effect and effect != narrow.get("effect"):
        return False
    most = wide.get("tolerationSeconds")
    if effect == "NoExecute" and most is not None:
        seconds = narrow.get("tolerationSeconds")
        if seconds is None or seconds > most:
            return False
    if operator == "Exists":
        return True
    return (narrow.get("operator") or "Equal") == operator and narrow.get("value", "") == wide.get("value", "")


LOGIC = {("node.k8s.io", "RuntimeClass"): Logic(check=_check)}
