"""Deletes pods that do not tolerate a NoExecute taint of their node (pkg/controller/tainteviction).

A pod whose tolerations all have `tolerationSeconds` is deleted after the shortest of them. Cost: nothing before the
first such taint, and then one lookup per event of a pod.
"""

from __future__ import annotations

from math import inf

from . import nesting
from .controllers import Controller, TimedQueue, WorkQueue
from .deletion import delete_record
from .node_selection import tolerates
from .recorder import Recorder
from .registry import Registry
from .resource import Object
from .store import Event, Record
from .subresources import NODES, PODS, set_condition

_CONDITION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByTaintManager",
    "message": "Taint manager: deleting due to NoExecute taint",
}


class TaintEviction(Controller):
    """Evicts the pods of one registry's tainted nodes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._pods = registry.stored(PODS)
        self._node = self._pods.table.field_names.index("spec.nodeName")
        self._recorder = Recorder(registry.store, "taint-eviction-controller")
        #: The NoExecute taints of the nodes that have any.
        self._taints: dict[str, list[Object]] = {}
        self._changed_nodes = WorkQueue[str]()
        self._changed = TimedQueue()
        #: For each pod that is to be deleted, by UID: since when it has to tolerate the taints.
        self._since: dict[str, float] = {}
        nodes = registry.stored(NODES).table
        #: Whether it is subscribed to pods, which it is from the first taint on.
        self._follows = False
        for record in nodes.scan(""):
            self._see_node(Event(record.rv, "ADDED", record, None))
        nodes.subscribers.append(self._see_node)

    def _see_node(self, event: Event) -> None:
        name = event.record.name
        before = self._taints.pop(name, [])
        if event.type != "DELETED":
            given = (nesting.loads(event.record.data).get("spec") or {}).get("taints") or ()
            if taints := [each for each in given if each.get("effect") == "NoExecute"]:
                self._taints[name] = taints
                if not self._follows:
                    self._follows = True
                    self._pods.table.subscribers.append(self._pod_changed)
        if self._taints.get(name, []) != before:
            self._changed_nodes.add(name)
            self.wake()

    def _pod_changed(self, event: Event) -> None:
        record = event.record
        if event.type == "DELETED":
            if self._since:
                self._since.pop(record.uid, None)
        elif self._taints and record.fields[self._node] in self._taints and not record.deleting:
            self._changed.add(record.key)
            self.wake()

    def advance(self, *, most: int = 64) -> float | None:
        now = self._registry.store.clock()
        while self._changed_nodes:
            bound = self._pods.table.having(self._node, self._changed_nodes.take()) or ()
            self._changed.extend(record.key for record in bound)
        return self._changed.advance(now, most, self._see)

    def _see(self, key: str) -> None:
        record = self._pods.table.records.get(key)
        if record is None or record.deleting:
            return
        pod = self._pods.stored.decode(record.data)
        seconds = _tolerated_for(pod["spec"], self._taints.get(record.fields[self._node], []))
        name = f"{record.namespace}/{record.name}"
        if seconds == inf:
            if self._since.pop(record.uid, None) is not None:
                self._recorder.tell(record, _KIND, "TaintManagerEviction", f"Cancelling deletion of Pod {name}")
            return
        now = self._registry.store.clock()
        due = self._since.setdefault(record.uid, now) + seconds
        if due > now:
            self._changed.add_at(due, key)
            return
        self._recorder.tell(record, _KIND, "TaintManagerEviction", f"Marking for deletion Pod {name}")
        self._delete(record, pod)

    def _delete(self, record: Record, pod: Object) -> None:
        set_condition(pod.setdefault("status", {}), _CONDITION, now=self._registry.now())
        record = self._registry.store.replace(PODS, record, pod)
        delete_record(self._registry, self._pods, record, {})


_KIND = ("v1", "Pod")


def _tolerated_for(spec: Object, taints: list[Object]) -> float:
    """Return for how many seconds the pod tolerates the taints; infinity for always."""
    seconds = inf
    for taint in taints:
        matching = [each for each in spec.get("tolerations") or () if tolerates(each, taint)]
        if not matching:
            return 0.0
        for each in matching:
            if each.get("tolerationSeconds") is not None:
                seconds = min(seconds, max(0, each["tolerationSeconds"]))
    return seconds
