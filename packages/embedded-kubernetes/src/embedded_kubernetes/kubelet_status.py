"""The statuses that a kubelet writes for pods and nodes, and the node leases.

They have what `kubectl get`, `describe` and `wait` read. Times are RFC 3339 in UTC.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from . import nesting
from .resource import Object
from .store import Record, Store
from .times import micro_clock_text

#: A container status.
Report = dict[str, Any]

KUBELET_VERSION = "v1.36.2-simulated"
NOT_READY_TAINT = "node.kubernetes.io/not-ready"


def _condition(kind: str, status: str, now: str, reason: str = "") -> dict[str, Any]:
    condition = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": now}
    if reason:
        condition["reason"] = reason
    return condition


def _conditions(old: Object, ready: tuple[str, str], now: str, *, runs: bool = False) -> list[dict[str, Any]]:
    """Return the conditions with the kubelet's own replaced; others, such as PodScheduled, are kept.

    `runs` is true for a pod that has not ended, although its containers are not ready.
    """
    status, reason = ready
    mine = [
        _condition("PodReadyToStartContainers", "True" if runs else status, now),
        _condition("Initialized", "True", now, reason if status == "False" and not runs else ""),
        _condition("Ready", status, now, reason),
        _condition("ContainersReady", status, now, reason),
    ]
    names = {condition["type"] for condition in mine}
    if not runs:
        # An ended pod is no longer resized.
        names |= {"PodResizePending", "PodResizeInProgress"}
    kept = [condition for condition in old.get("conditions") or () if condition["type"] not in names]
    return mine + kept


def _container_status(container: Object, uid: str, state: dict[str, Any], *, running: bool) -> dict[str, Any]:
    image = container.get("image", "")
    return {
        "name": container["name"],
        "state": state,
        "lastState": {},
        "ready": running,
        "restartCount": 0,
        "image": image,
        "imageID": image,
        "containerID": f"simulated://{uid}/{container['name']}",
        "started": running,
    }


def running(pod: Object, *, ip: str, host_ip: str, now: str, ready: bool = True) -> Object:
    """Return the status of a pod whose containers have all started."""
    status = dict(pod.get("status") or {})
    spec, uid = pod["spec"], pod["metadata"]["uid"]
    started = {"running": {"startedAt": now}}
    status.update(
        phase="Running",
        conditions=_conditions(status, *_readiness(ready, now), runs=True),
        hostIP=host_ip,
        hostIPs=[{"ip": host_ip}],
        podIP=host_ip if spec.get("hostNetwork") else ip,
        podIPs=[{"ip": host_ip if spec.get("hostNetwork") else ip}],
        startTime=now,
        containerStatuses=[
            _container_status(c, uid, started, running=True) | {"ready": ready} for c in spec["containers"]
        ],
    )
    if spec.get("initContainers"):
        done = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
        status["initContainerStatuses"] = [
            _container_status(c, uid, started, running=True)
            if c.get("restartPolicy") == "Always"
            else _container_status(c, uid, done, running=False) | {"ready": True}
            for c in spec["initContainers"]
        ]
    # A running pod has no nomination.
    status.pop("nominatedNodeName", None)
    return status


def _readiness(ready: bool, now: str) -> tuple[tuple[str, str], str]:
    return ("True", "") if ready else ("False", "ContainersNotReady"), now


def _with_reports(pod: Object, now: str, change: Callable[[Report], Report], *, ready: bool) -> Object:
    """Return the status of a running pod, with the changes by `change` for each container status."""
    status = pod.get("status") or {}
    reports = [{**each, **change(each), "ready": ready} for each in status.get("containerStatuses") or ()]
    return {
        **status,
        "conditions": _conditions(status, *_readiness(ready, now), runs=True),
        "containerStatuses": reports,
    }


def readied(pod: Object, *, now: str) -> Object:
    """Return the status of a pod whose containers became ready."""
    return _with_reports(pod, now, lambda _: {}, ready=True)


def exited(pod: Object, *, code: int, now: str) -> Object:
    """Return the status of a pod whose containers have exited and will be restarted."""
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}}

    def change(report: Report) -> Report:
        return {"state": waiting, "lastState": _exit(report, code, now), "started": False}

    return _with_reports(pod, now, change, ready=False)


def started_again(pod: Object, *, now: str, ready: bool) -> Object:
    """Return the status of a pod whose containers were restarted."""
    state = {"running": {"startedAt": now}}

    def change(report: Report) -> Report:
        return {"state": state, "restartCount": report.get("restartCount", 0) + 1, "started": True}

    return _with_reports(pod, now, change, ready=ready)


def restarted(report: Report, now: str) -> Report:
    """Return the status of a container that was restarted by a resize."""
    return {
        **report,
        "state": {"running": {"startedAt": now}},
        "lastState": _exit(report, 0, now),
        "restartCount": report.get("restartCount", 0) + 1,
    }


def with_resize_condition(
    status: Object, kind: str, now: str, generation: int = 0, *, reason: str = "", message: str = ""
) -> Object:
    """Return the status with a resize condition for the spec's `generation`; without it if that is 0."""
    conditions = status.get("conditions") or []
    old = next((each for each in conditions if each["type"] == kind), None)
    others = [each for each in conditions if each["type"] != kind]
    if not generation:
        return status if old is None else {**status, "conditions": others}
    about = {"observedGeneration": generation, "reason": reason, "message": message}
    found = {key: value for key, value in about.items() if value}
    if old is not None and {key: old[key] for key in about if key in old} == found:
        return status
    same = old is not None and old.get("reason", "") == reason
    since = old["lastTransitionTime"] if old is not None and same else now
    condition = {"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": since, **found}
    return {**status, "conditions": [condition, *others]}


def _exit(report: Report, code: int, now: str, start: str = "") -> dict[str, Any]:
    began = ((report.get("state") or {}).get("running") or {}).get("startedAt") or start or now
    reason = "Completed" if code == 0 else "Error"
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": now}}


def ended(pod: Object, *, now: str, code: int = 0) -> Object:
    """Return the status of a pod whose containers have all exited."""
    status = dict(pod.get("status") or {})
    start, uid = status.get("startTime") or now, pod["metadata"]["uid"]
    known = {each["name"]: each for each in status.get("containerStatuses") or ()}
    reports = []
    for container in pod["spec"]["containers"]:
        report = known.get(container["name"], {})
        kept = {key: report[key] for key in ("restartCount", "lastState") if key in report}
        state = _exit(report, code, now, start)
        reports.append(_container_status(container, uid, state, running=False) | kept)
    status.update(
        phase="Succeeded" if code == 0 else "Failed",
        conditions=_conditions(status, ("False", "PodCompleted" if code == 0 else "PodFailed"), now),
        containerStatuses=reports,
    )
    return status


def evicted(pod: Object, *, now: str) -> Object:
    """Return the status of a pod that its kubelet evicted because of memory pressure."""
    message = "The node was low on resource: memory. "
    status = ended(pod, now=now, code=137)
    target = _condition("DisruptionTarget", "True", now, "TerminationByKubelet") | {"message": message}
    return {**status, "reason": "Evicted", "message": message, "conditions": [*status["conditions"], target]}


def refused(pod: Object, *, reason: str, message: str, now: str) -> Object:
    """Return the status of a pod that its node did not admit."""
    old = pod.get("status") or {}
    status = {key: old[key] for key in ("conditions", "qosClass") if key in old}
    return {**status, "phase": "Failed", "reason": reason, "message": message, "startTime": now}


def ready_node(node: Object, *, host_ip: str, now: str) -> Object:
    """Return the node as registered by its kubelet: Ready, with addresses, and without the not-ready taint.

    In a real cluster the node lifecycle controller removes the taint, which does not exist here.
    """
    status = dict(node.get("status") or {})
    conditions = [
        {
            "type": kind,
            "status": "False",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        }
        for kind, reason, message in (
            ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ("Ready", "KubeletReady", "kubelet is posting ready status"),
        )
    ]
    conditions[-1]["status"] = "True"
    mine = {condition["type"] for condition in conditions}
    kept = [condition for condition in status.get("conditions") or () if condition["type"] not in mine]
    status["conditions"] = kept + conditions
    status.setdefault(
        "addresses",
        [{"type": "InternalIP", "address": host_ip}, {"type": "Hostname", "address": node["metadata"]["name"]}],
    )
    info = dict(status.get("nodeInfo") or {})
    for key, value in (
        ("kubeletVersion", KUBELET_VERSION),
        ("operatingSystem", "linux"),
        ("architecture", "amd64"),
        ("osImage", "simulated"),
        ("kernelVersion", "simulated"),
        ("containerRuntimeVersion", "simulated://1"),
    ):
        info[key] = info.get(key) or value
    status["nodeInfo"] = info
    spec = dict(node.get("spec") or {})
    taints = [taint for taint in spec.get("taints") or () if taint["key"] != NOT_READY_TAINT]
    if taints:
        spec["taints"] = taints
    else:
        spec.pop("taints", None)
    return {**node, "spec": spec, "status": status}


LEASES = ("coordination.k8s.io", "leases")
_NAMESPACE = "kube-node-lease"
_SECONDS = 40


class NodeLeases(NamedTuple):
    """The leases of all nodes. Renewing one raises KeyError if the store has no table for leases."""

    store: Store

    def renew(self, node: Record, now: str) -> None:
        """Create or renew a node's lease."""
        micros = micro_clock_text(self.store.clock())
        record = self.store.tables[LEASES].get(_NAMESPACE, node.name)
        if record is None:
            reference = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
            metadata = {
                "name": node.name,
                "namespace": _NAMESPACE,
                "uid": self.store.uid(),
                "creationTimestamp": now,
                "ownerReferences": [reference],
            }
            spec = {"holderIdentity": node.name, "leaseDurationSeconds": _SECONDS, "renewTime": micros}
            self.store.insert(LEASES, {"metadata": metadata, "spec": spec})
        else:
            lease = nesting.loads(record.data)
            lease["spec"] = {**lease.get("spec", {}), "holderIdentity": node.name, "renewTime": micros}
            self.store.replace(LEASES, record, lease)

    def drop(self, node: str) -> None:
        """Delete the lease of a deleted node."""
        record = self.store.tables[LEASES].get(_NAMESPACE, node)
        if record is not None:
            self.store.remove(LEASES, record)
