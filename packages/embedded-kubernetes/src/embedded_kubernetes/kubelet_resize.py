"""The kubelet's resource allocations and in-place resizes (KEP-1287, KEP-5419).

A pod whose spec requests other amounts gets them if the node has room; until its containers have them, the condition
is PodResizeInProgress. Otherwise the condition is PodResizePending: Deferred until other pods free the amounts, or
Infeasible if the node is too small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, NamedTuple

from .builtin.pod_resources import qos_class
from .kubelet_admission import Demand, NodeBook, demand_of
from .kubelet_status import Report, restarted, with_resize_condition
from .resource import Object

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
DEFERRED, INFEASIBLE = "Deferred", "Infeasible"

#: The field `resources` of a container or a pod.
_Amounts = dict[str, Any]
_RESIZED = ("cpu", "memory")


class Allocation(NamedTuple):
    """The allocated `resources` by container name, and those of the pod, if it has any."""

    containers: dict[str, _Amounts]
    pod: _Amounts | None


class Pods(NamedTuple):
    """Access to pods by UID for resizes.

    `living` returns a pod that is neither over nor stopping. `restarted` is called when containers of a pod were
    restarted.
    """

    living: Callable[[str], Object | None]
    write: Callable[[str, Object, Object], None]
    restarted: Callable[[str], None]
    later: Callable[[float, Callable[[str], None], str], None]
    now: Callable[[], str]


class Resizes:
    """Owns the allocations and the pending resizes.

    Invariant: a node's book counts each pod with its allocation here.
    """

    def __init__(self, pods: Pods, *, seconds: float) -> None:
        """Create the resizes. `seconds` is the time that a container takes to get its allocation."""
        self._pods = pods
        self._seconds = seconds
        self._set_aside: dict[str, Allocation] = {}
        #: The generation of the spec that was processed last.
        self._seen: dict[str, int] = {}
        #: Pending resizes by node, in order of arrival: the reason by UID.
        self._waiting: dict[str, dict[str, str]] = {}
        #: Nodes that may have more room, with whether their own amounts changed.
        self._roomier: dict[str, bool] = {}

    def take(self, uid: str, pod: Object) -> Demand:
        """Return the demand of a pod that a kubelet begins to manage. Raises QuantityError.

        It is the allocation from before the kubelet's start if the status has one, otherwise the request.
        """
        self._set_aside[uid] = _given(pod)
        self._seen[uid] = 0
        return self.demand(uid, pod)

    def demand(self, uid: str, pod: Object) -> Demand:
        """Return the demand of a managed pod."""
        return demand_of(_with(pod, self._set_aside[uid]))

    def forget(self, uid: str, node: str) -> None:
        """Forget a pod that is over, and retry the node's pending resizes."""
        if self._set_aside.pop(uid, None) is not None:
            del self._seen[uid]
            self._waiting.get(node, {}).pop(uid, None)
            self.has_room(node)

    def has_room(self, node: str, *, changed: bool = False) -> None:
        """Note that a node may have more room. `changed`: the node's own amounts changed."""
        if self._waiting.get(node):
            self._roomier[node] = changed or self._roomier.get(node, False)

    def report(self, uid: str, pod: Object, status: Object) -> Object:
        """Return the status of a starting pod with its allocation."""
        return _reported(status, pod, self._set_aside[uid], starting=True)

    def see(self, uid: str, node: str, book: NodeBook, pod: Object) -> None:
        """Process a changed pod, which may request other amounts."""
        generation = pod["metadata"].get("generation", 0)
        if uid in self._set_aside and self._seen[uid] != generation:
            self._seen[uid] = generation
            self._judge(uid, node, book, pod)

    def retry(self, books: dict[str, NodeBook]) -> None:
        """Retry pending resizes on nodes that may have more room."""
        while self._roomier:
            node, changed = self._roomier.popitem()
            book, waiting = books.get(node), self._waiting.get(node) or {}
            if book is None:
                continue
            found = [(uid, pod) for uid in waiting if (pod := self._pods.living(uid)) is not None]
            # The order: shrinking pods first, then by priority, QoS class and arrival.
            found.sort(key=lambda each: self._rank(*each))
            for uid, pod in found:
                if changed or waiting[uid] == DEFERRED:
                    self._judge(uid, node, book, pod)

    def _rank(self, uid: str, pod: Object) -> tuple[bool, int, bool]:
        has, wants = self.demand(uid, pod).amounts, demand_of(pod).amounts
        grows = any(wants.get(name, 0) > has.get(name, 0) for name in _RESIZED)
        return grows, -(pod["spec"].get("priority") or 0), qos_class(pod["spec"]) != "Guaranteed"

    def _judge(self, uid: str, node: str, book: NodeBook, pod: Object) -> None:
        status, now = pod.get("status") or {}, self._pods.now()
        generation = pod["metadata"].get("generation", 0)
        wanted = _asked(pod)
        refusal = None
        if wanted != self._set_aside[uid]:
            refusal = book.change(uid, demand_of(pod))
        if refusal is not None:
            self._waiting.setdefault(node, {})[uid] = refusal.reason
            updated = with_resize_condition(
                status, PENDING, now, generation, reason=refusal.reason, message=refusal.message
            )
            if updated != status:
                self._pods.write(uid, pod, updated)
            return
        self._waiting.get(node, {}).pop(uid, None)
        updated = with_resize_condition(status, PENDING, now)
        if wanted != self._set_aside[uid]:
            self._set_aside[uid] = wanted
            self.has_room(node)
            if status.get("phase") == "Running":
                updated = _reported(updated, pod, wanted)
                updated = with_resize_condition(updated, IN_PROGRESS, now, generation)
                self._pods.later(self._seconds, self._carry_out, uid)
        if updated != status:
            self._pods.write(uid, pod, updated)

    def _carry_out(self, uid: str) -> None:
        """Report that containers have their allocation; restart those that cannot be resized while they run."""
        pod = self._pods.living(uid)
        if pod is None:
            return
        now, set_aside = self._pods.now(), self._set_aside[uid]
        status, anew = pod["status"], False
        by_name = {each["name"]: each for each in _containers(pod)}
        for group in ("containerStatuses", "initContainerStatuses"):
            reports = []
            for report in status.get(group) or ():
                container = by_name.get(report["name"])
                if container is not None and _is_started_anew(container, report, set_aside):
                    report, anew = restarted(report, now), True
                reports.append(report)
            if reports:
                status = {**status, group: reports}
        status = _reported(status, pod, set_aside, starting=True)
        self._pods.write(uid, pod, with_resize_condition(status, IN_PROGRESS, now))
        if anew:
            self._pods.restarted(uid)


def _containers(pod: Object) -> Iterator[Object]:
    """Yield the containers that can be resized."""
    yield from pod["spec"]["containers"]
    yield from (each for each in pod["spec"].get("initContainers") or () if each.get("restartPolicy") == "Always")


def _asked(pod: Object) -> Allocation:
    whole = pod["spec"].get("resources")
    containers = {each["name"]: _amounts(each.get("resources") or {}) for each in _containers(pod)}
    return Allocation(containers, None if whole is None else _amounts(whole))


def _amounts(resources: _Amounts) -> _Amounts:
    """Return the resources without claims, which are not resized."""
    return {kind: resources[kind] for kind in ("limits", "requests") if resources.get(kind)}


def _given(pod: Object) -> Allocation:
    """Return the allocation of a pod as reported by its status, otherwise its requests."""
    status, asked = pod.get("status") or {}, _asked(pod)
    reports = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    in_effect = {each["name"]: _of_report(each) for each in reports if each.get("resources") is not None}
    containers = {name: in_effect.get(name, amounts) for name, amounts in asked.containers.items()}
    whole = _of_report(status) if status.get("resources") is not None and asked.pod else asked.pod
    return Allocation(containers, whole)


def _of_report(report: Report) -> _Amounts:
    """Return the resources in a report: allocated requests, and the limits."""
    allocated = report.get("allocatedResources")
    return _amounts({**report["resources"], **({"requests": allocated} if allocated else {})})


def _with(pod: Object, given: Allocation) -> Object:
    """Return the pod with these amounts as its requests."""
    if given == _asked(pod):
        return pod
    found, spec = copy(pod), dict(pod["spec"])
    for group in ("containers", "initContainers"):
        if group in spec:
            spec[group] = [
                {**each, "resources": given.containers.get(each["name"], each.get("resources"))} for each in spec[group]
            ]
    if given.pod is not None:
        spec["resources"] = given.pod
    found["spec"] = spec
    return found


def _reported(status: Object, pod: Object, given: Allocation, *, starting: bool = False) -> Object:
    """Return the status with the allocation; with `starting`, also as the containers' resources."""
    found = dict(status)
    for group in ("containerStatuses", "initContainerStatuses"):
        if group in found:
            found[group] = [
                _of_amounts(each, given.containers.get(each["name"]), starting=starting) for each in found[group]
            ]
    return _of_amounts(found, given.pod, starting=starting)


def _of_amounts(report: Report, amounts: _Amounts | None, *, starting: bool) -> Report:
    if amounts is None:
        return report
    found = {key: value for key, value in report.items() if key != "allocatedResources"}
    if amounts.get("requests"):
        found["allocatedResources"] = amounts["requests"]
    if starting:
        found["resources"] = amounts
    return found


def _is_started_anew(container: Object, report: Report, given: Allocation) -> bool:
    """Return whether a running container must be restarted for its resize."""
    policies = {each["resourceName"]: each.get("restartPolicy") for each in container.get("resizePolicy") or ()}
    has, gets = report.get("resources") or {}, given.containers[container["name"]]
    changed = {
        name
        for kind in ("limits", "requests")
        for name in _RESIZED
        if (has.get(kind) or {}).get(name) != (gets.get(kind) or {}).get(name)
    }
    runs = "running" in (report.get("state") or {})
    return runs and any(policies.get(name) == "RestartContainer" for name in changed)
