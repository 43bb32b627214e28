"""Pod rows, as kube-apiserver's `printPod` has them: readiness, the one word of status, restarts."""

from __future__ import annotations

from typing import Any, NamedTuple

from .printing import NONE, age
from .resource import Object, is_true

_FINISHED = {
    "Succeeded": ("Succeeded", "The pod has completed successfully."),
    "Failed": ("Failed", "The pod failed."),
}


class _Restarts(NamedTuple):
    times: int = 0
    last: str = ""

    def plus(self, status: Object) -> _Restarts:
        """Canonical times order as texts do."""
        finished = ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        return _Restarts(self.times + status.get("restartCount", 0), max(self.last, finished))


def pod_row(pod: Object, now: str) -> tuple[list[Any], list[Object]]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    reason, ready, total, restarts = _summary(spec, status)
    if "deletionTimestamp" in pod["metadata"]:
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in _FINISHED:
            reason = "Terminating"
    restarted = str(restarts.times)
    if restarts.times and restarts.last:
        restarted += f" ({age(restarts.last, now)} ago)"
    ips = status.get("podIPs") or [{"ip": status.get("podIP")}]
    cells = [
        pod["metadata"]["name"],
        f"{ready}/{total}",
        reason,
        restarted,
        age(pod["metadata"].get("creationTimestamp"), now),
        ips[0].get("ip") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(spec, status),
    ]
    finished = _FINISHED.get(status.get("phase", ""))
    if finished is None:
        return cells, []
    return cells, [{"type": "Completed", "status": "True", "reason": finished[0], "message": finished[1]}]


def _summary(spec: Object, status: Object) -> tuple[str, int, int, _Restarts]:
    """The status word, ready and all containers, and the restarts that count."""
    reason = status.get("reason") or status.get("phase", "")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    sidecars = {
        container.get("name")
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    total = len(spec.get("containers") or ()) + len(sidecars)
    ready = 0
    restarts, of_sidecars = _Restarts(), _Restarts()
    initializing = False
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        restarts = restarts.plus(container)
        sidecar = container.get("name") in sidecars
        if sidecar:
            of_sidecars = of_sidecars.plus(container)
        state = container.get("state") or {}
        terminated = state.get("terminated")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if sidecar and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        initializing = True
        waiting = (state.get("waiting") or {}).get("reason")
        if terminated is not None:
            reason = "Init:" + _ended(terminated)
        elif waiting and waiting != "PodInitializing":
            reason = "Init:" + waiting
        else:
            reason = f"Init:{index}/{len(spec.get('initContainers') or ())}"
        break

    if initializing and not is_true(status, "Initialized"):
        return reason, ready, total, restarts
    restarts = of_sidecars
    running = False
    for container in reversed(status.get("containerStatuses") or ()):
        restarts = restarts.plus(container)
        state = container.get("state") or {}
        waiting = (state.get("waiting") or {}).get("reason")
        if waiting:
            reason = waiting
        elif state.get("terminated") is not None:
            reason = _ended(state["terminated"])
        elif container.get("ready") and "running" in state:
            running = True
            ready += 1
    if reason == "Completed" and running:
        reason = "Running" if is_true(status, "Ready") else "NotReady"
    return reason, ready, total, restarts


def _ended(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _gates(spec: Object, status: Object) -> str:
    gates = spec.get("readinessGates") or ()
    if not gates:
        return NONE
    return f"{sum(is_true(status, gate.get('conditionType', '')) for gate in gates)}/{len(gates)}"
