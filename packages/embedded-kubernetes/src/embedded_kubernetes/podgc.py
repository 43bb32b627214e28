"""Deletes pods of missing nodes, which no kubelet stops (pkg/controller/podgc).

A pod that is bound to a missing node is marked Failed with the condition DisruptionTarget and deleted without grace,
after the node has been missing for a while: a node that is replaced under the same name keeps its pods. Finalizers
still delay the deletion. kube-controller-manager waits 40 seconds; a simulated cluster can wait less. Terminated pods
are not collected for their number.

Cost: one dictionary lookup per event of a bound pod.
"""

from __future__ import annotations

from math import inf

from .controllers import Controller, WorkQueue
from .deletion import delete_record
from .registry import Registry
from .store import Event, Record
from .subresources import NODES, PODS, set_condition

_FINAL = ("Succeeded", "Failed")
_GONE = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByPodGC",
    "message": "PodGC: node no longer exists",
}


class PodCollector(Controller):
    """Deletes the pods of one registry's missing nodes."""

    def __init__(self, registry: Registry, *, quarantine_seconds: float = 5.0) -> None:
        self._registry = registry
        self._quarantine = quarantine_seconds
        self._pods = registry.stored(PODS)
        self._nodes = registry.stored(NODES).table.records
        self._node = self._pods.table.field_names.index("spec.nodeName")
        #: Missing nodes with the time when their pods are deleted, in order of that time because all wait equally
        #: long.
        self._missing: dict[str, float] = {}
        #: Pods to delete, as (key, uid).
        self._due = WorkQueue[tuple[str, str]]()
        for record in self._pods.table.scan(""):
            self._look(record)
        self._pods.table.subscribers.append(self._pod_changed)
        registry.stored(NODES).table.subscribers.append(self._node_changed)

    def _pod_changed(self, event: Event) -> None:
        if event.type != "DELETED":
            self._look(event.record)

    def _look(self, record: Record) -> None:
        node = record.fields[self._node]
        if node and node not in self._nodes and node not in self._missing:
            self._miss(node)

    def _node_changed(self, event: Event) -> None:
        if event.type == "DELETED":
            self._missing.pop(event.record.name, None)
            self._miss(event.record.name)
        elif event.type == "ADDED":
            self._missing.pop(event.record.name, None)

    def _miss(self, node: str) -> None:
        self._missing[node] = self._registry.store.clock() + self._quarantine
        self.wake()

    def advance(self, *, most: int = 64) -> float | None:
        now = self._registry.store.clock()
        while self._missing and not self._due:
            node, due = next(iter(self._missing.items()))
            if due > now:
                return due
            del self._missing[node]
            bound = self._pods.table.having(self._node, node) or ()
            self._due.extend((record.key, record.uid) for record in bound)
        self._due.work(most, self._collect)
        return -inf if self._due or self._missing else None

    def _collect(self, due: tuple[str, str]) -> None:
        key, uid = due
        record = self._pods.table.records.get(key)
        # The node may exist again.
        if record is None or record.uid != uid or record.fields[self._node] in self._nodes:
            return
        pod = self._pods.stored.decode(record.data)
        status = pod.setdefault("status", {})
        if status.get("phase") not in _FINAL:
            status["phase"] = "Failed"
            set_condition(status, _GONE, now=self._registry.now())
            record = self._registry.store.replace(PODS, record, pod)
        delete_record(self._registry, self._pods, record, {"gracePeriodSeconds": 0})
