"""The DaemonSet controller (pkg/controller/daemon): one pod on each node that the template selects and tolerates.

A pod is created for its node by a required node affinity, and a scheduler binds it. Orphaned pods are not adopted.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from .. import nesting
from ..controllers import reference_to
from ..handlers import Api
from ..node_selection import may_go_to
from ..resource import Object
from ..store import Event, Record
from ..subresources import NODES
from . import revisions
from .controller import Workloads
from .pods import FINAL, Pod, from_template
from .revisions import REVISION_LABEL, Revision

#: The taints that pods of every DaemonSet tolerate (AddOrUpdateDaemonPodTolerations).
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_NETWORK = ("node.kubernetes.io/network-unavailable", "NoSchedule")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
#: Seconds until a failed pod is replaced (`FailedPodsBackoff`, initial value).
_BACKOFF = 1.0


class _Node(NamedTuple):
    labels: dict[str, str]
    taints: list[Object]


class DaemonSets(Workloads):
    name = ("apps", "daemonsets")
    kind = ("apps/v1", "DaemonSet")
    account = "daemon-set-controller"

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        #: The nodes by name, decoded when they are needed first. Updated by `_node_changed`.
        self._nodes: dict[str, _Node] | None = None
        api.registry.stored(NODES).table.subscribers.append(self._node_changed)

    def _node_changed(self, event: Event) -> None:
        if self._nodes is None:
            return
        name = event.record.name
        before = self._nodes.pop(name, None)
        if event.type != "DELETED":
            self._nodes[name] = _node(event.record)
        if self._nodes.get(name) != before:
            self.recheck()

    def _all_nodes(self) -> dict[str, _Node]:
        if self._nodes is None:
            self._nodes = {each.name: _node(each) for each in self.store.tables[NODES].scan("")}
        return self._nodes

    def reconcile(self, record: Record, obj: Object) -> None:
        if record.deleting:
            return
        found = revisions.current(self, record, obj)
        if found is None:
            return
        update, every = found
        self._manage(record, obj, update)
        if self.table.records.get(record.key) is not record:
            return
        by_node = self._pods(record)
        self.write_status(record, obj, self._status(record, obj, by_node, update))
        live = {f"{record.name}-{pod.record.labels.get(REVISION_LABEL, '')}" for on in by_node.values() for pod in on}
        live.add(update.record.name)
        revisions.truncate(self, record, every, obj["spec"].get("revisionHistoryLimit", 10), live)

    def _pods(self, record: Record) -> dict[str, list[Pod]]:
        """Return the pods by the node that they are bound to or created for."""
        found: dict[str, list[Pod]] = {}
        for pod in self.pods(record):
            found.setdefault(pod.obj["spec"].get("nodeName") or _target(pod.obj["spec"]), []).append(pod)
        return found

    # -- pods

    def _manage(self, record: Record, obj: Object, update: Revision) -> None:
        by_node, wanted = self._pods(record), self._wanted(obj)
        for name, pods in by_node.items():
            living = [pod for pod in pods if not pod.deleting]
            if not wanted.get(name, (False, False))[1]:
                self._drop(record, living)
                continue
            for pod in living:
                if pod.phase in FINAL:
                    word = "failed" if pod.phase == "Failed" else "succeeded"
                    text = f"Found {word} daemon pod {record.namespace}/{pod.record.name} on node {name}"
                    reason = f"{word.capitalize()}DaemonPod"
                    self.tell(record, reason, f"{text}, will try to {_REMEDY[word]} it", warning=word == "failed")
                    self.delete(record, pod.record)
                    self.again(record, _BACKOFF)
            running = sorted((pod for pod in living if pod.is_active), key=_since)
            if not _surge(obj, len(wanted)):
                self._drop(record, running[1:])
        for name, (runs, _) in wanted.items():
            if runs and not by_node.get(name) and not self._make(record, obj, update, name):
                return
        if obj["spec"]["updateStrategy"].get("type") == "RollingUpdate":
            self._roll(record, obj, by_node, update)

    def _wanted(self, obj: Object) -> dict[str, tuple[bool, bool]]:
        """Return for each node whether a pod is to be created there, and whether one may stay."""
        spec = _spec(obj["spec"]["template"]["spec"])
        return {
            name: (
                may_go_to(spec, node.labels, name=name, taints=node.taints),
                may_go_to(
                    spec, node.labels, name=name, taints=[each for each in node.taints if each["effect"] == "NoExecute"]
                ),
            )
            for name, node in self._all_nodes().items()
            if spec.get("nodeName", name) == name
        }

    def _roll(self, record: Record, obj: Object, by_node: dict[str, list[Pod]], update: Revision) -> None:
        """Delete outdated pods while enough are available; with maxSurge, their successors are created first."""
        now, seconds = self.store.clock(), obj["spec"].get("minReadySeconds") or 0
        wanted = [name for name, (runs, _) in self._wanted(obj).items() if runs]
        surge, missing = _surge(obj, len(wanted)), 0
        replaceable: list[Pod] = []
        for name in wanted:
            pods = [pod for pod in by_node.get(name, ()) if pod.is_active]
            new = next((pod for pod in pods if _is_of(pod, update)), None)
            old = next((pod for pod in pods if not _is_of(pod, update)), None)
            if new is not None:
                if new.is_available(now, seconds):
                    self._drop(record, [old] if old is not None else [])
                elif old is None:
                    missing += 1
                else:
                    surge -= 1
            elif old is None:
                missing += 1
            elif not old.is_available(now, seconds):
                self._drop(record, [old])
            else:
                replaceable.append(old)
        if _surge(obj, len(wanted)):
            for pod in replaceable[: max(0, surge)]:
                self._make(record, obj, update, pod.obj["spec"].get("nodeName") or _target(pod.obj["spec"]))
        else:
            self._drop(record, replaceable[: max(0, _most_unavailable(obj, len(wanted)) - missing)])

    def _make(self, record: Record, obj: Object, update: Revision, node: str) -> bool:
        owner, mark = reference_to(record, *self.kind), update.record.labels.get(REVISION_LABEL, "")
        pod = from_template(obj["spec"]["template"], owner, f"{record.name}-")
        pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), REVISION_LABEL: mark}
        spec = pod["spec"] = _spec(pod["spec"])
        affinity = spec.get("affinity") or {}
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        required = {**(affinity.get("nodeAffinity") or {}), _REQUIRED: {"nodeSelectorTerms": [term]}}
        spec["affinity"] = {**affinity, "nodeAffinity": required}
        return self.create(record, pod)

    def _drop(self, record: Record, pods: list[Pod]) -> None:
        for pod in pods:
            if self.delete(record, pod.record):
                self.tell(record, "SuccessfulDelete", f"Deleted pod: {pod.record.name}")

    # -- status

    def _status(self, record: Record, obj: Object, by_node: dict[str, list[Pod]], update: Revision) -> Object:
        now, seconds = self.store.clock(), obj["spec"].get("minReadySeconds") or 0
        counts = dict.fromkeys(("desired", "current", "misscheduled", "ready", "available", "updated"), 0)
        for name, (runs, _) in self._wanted(obj).items():
            pods = [pod for pod in by_node.get(name, ()) if not pod.deleting]
            if not runs:
                counts["misscheduled"] += bool(pods)
                continue
            counts["desired"] += 1
            if not pods:
                continue
            counts["current"] += 1
            pod = min(pods, key=_since)
            if pod.ready_since is not None:
                counts["ready"] += 1
                left = pod.ready_since + seconds - now
                counts["available"] += left <= 0
                if left > 0:
                    self.again(record, left)
            counts["updated"] += any(_is_of(each, update) for each in pods)
        optional = {
            "updatedNumberScheduled": counts["updated"],
            "numberAvailable": counts["available"],
            "numberUnavailable": counts["desired"] - counts["available"],
        }
        return {
            "currentNumberScheduled": counts["current"],
            "numberMisscheduled": counts["misscheduled"],
            "desiredNumberScheduled": counts["desired"],
            "numberReady": counts["ready"],
            "observedGeneration": obj["metadata"].get("generation", 0),
            **{name: count for name, count in optional.items() if count},
        }


_REMEDY = {"failed": "kill", "succeeded": "delete"}


def _node(record: Record) -> _Node:
    return _Node(record.labels, (nesting.loads(record.data).get("spec") or {}).get("taints") or [])


def _since(pod: Pod) -> tuple[str, str]:
    return pod.obj["metadata"]["creationTimestamp"], pod.record.name


def _is_of(pod: Pod, update: Revision) -> bool:
    return pod.record.labels.get(REVISION_LABEL) == update.record.labels.get(REVISION_LABEL)


def _spec(template: Object) -> Object:
    """Return the spec of a template with the tolerations of every DaemonSet."""
    wanted = (*_TOLERATED, _NETWORK) if template.get("hostNetwork") else _TOLERATED
    own = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in wanted]
    given = [
        each for each in template.get("tolerations") or () if (each.get("key"), each.get("effect")) not in set(wanted)
    ]
    return {**template, "tolerations": [*given, *own]}


def _target(spec: Object) -> str:
    """Return the node that a pod was created for; empty if its affinity names none."""
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in affinity.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and field.get("values"):
                return str(field["values"][0])
    return ""


def _rolling(obj: Object, field: str, total: int) -> int:
    value = (obj["spec"]["updateStrategy"].get("rollingUpdate") or {}).get(field) or 0
    return ceil(int(value.removesuffix("%")) * total / 100) if isinstance(value, str) else int(value)


def _surge(obj: Object, total: int) -> int:
    return _rolling(obj, "maxSurge", total)


def _most_unavailable(obj: Object, total: int) -> int:
    most = _rolling(obj, "maxUnavailable", total)
    return most if most or _surge(obj, total) else 1
