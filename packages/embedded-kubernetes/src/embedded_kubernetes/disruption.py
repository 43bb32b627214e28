"""The disruption controller: updates the status of PodDisruptionBudgets.

Without it, evictions get 429 forever, as from kube-apiserver while its controller has not processed the budget.
Follows pkg/controller/disruption, except that the expected pods are the existing ones, because not every workload has
a controller here.

Cost: without budgets in a namespace, one dictionary lookup per pod event; with budgets, each changed pod is matched
once. All pods of a namespace are matched when a budget is created or its selector changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from . import nesting
from .builtin.eviction import budget_status, matches
from .controllers import Controller, WorkQueue
from .registry import Registry
from .resource import Object, is_true
from .store import Event, Record
from .subresources import BUDGETS, PODS
from .times import parse

#: Seconds until an evicted pod counts as healthy again if its deletion has not begun (DeletionTimeout).
DELETION_SECONDS = 120.0
_FINAL = ("Succeeded", "Failed")


def _is_ready(data: bytes) -> bool:
    return is_true(nesting.loads(data).get("status") or {}, "Ready")


@dataclass(slots=True)
class _Budget:
    """A budget and the pods that it covers."""

    uid: str
    selector: Object | None
    #: Whether the pod is ready and not being deleted, by name of each covered pod that has not ended.
    pods: dict[str, bool] = field(default_factory=dict)
    #: The number of `pods` for which that is true.
    healthy: int = 0

    def put(self, name: str, ready: bool | None) -> bool:
        """Set a pod's state, None to remove it; return whether that is a change."""
        before = self.pods.get(name)
        if before is ready:
            return False
        self.healthy += (ready is True) - (before is True)
        if ready is None:
            del self.pods[name]
        else:
            self.pods[name] = ready
        return True


class Budgets(Controller):
    """The budgets of one registry.

    Invariant: when `advance` has processed all queued keys, `_held` has exactly the stored budgets with the pods that
    they cover, and every stored status is correct.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._budgets = registry.stored(BUDGETS)
        self._pods = registry.stored(PODS)
        self._phase = self._pods.table.field_names.index("status.phase")
        #: Budgets by namespace and name. Namespaces without budgets are absent, which subscribers check.
        self._held: dict[str, dict[str, _Budget]] = {}
        #: Keys queued by subscribers, and budgets whose status may be outdated, in order of arrival.
        self._changed_budgets = WorkQueue[str]()
        self._changed_pods = WorkQueue[str]()
        self._stale = WorkQueue[tuple[str, str]]()
        #: When to check an evicted pod of a budget again: (time, namespace, name), and the earliest such time per
        #: budget, which bounds the number of timers.
        self._timers: list[tuple[float, str, str]] = []
        self._due: dict[tuple[str, str], float] = {}
        for record in self._budgets.table.scan(""):
            self._note_budget(record)
        self._budgets.table.subscribers.append(self._budget_changed)
        self._pods.table.subscribers.append(self._pod_changed)

    def _budget_changed(self, event: Event) -> None:
        self._note_budget(event.record)
        self.wake()

    def _note_budget(self, record: Record) -> None:
        # From now on pods of the namespace are tracked.
        self._held.setdefault(record.namespace, {})
        self._changed_budgets.add(record.key)

    def _pod_changed(self, event: Event) -> None:
        record = event.record
        if record.namespace in self._held:
            self._changed_pods.add(record.key)
            self.wake()

    def advance(self, *, most: int = 64) -> float | None:
        """See `Controller`. Statuses are written once every queued pod has been counted."""
        now = self._registry.store.clock()
        while self._timers and self._timers[0][0] <= now:
            _, namespace, name = heappop(self._timers)
            self._due.pop((namespace, name), None)
            self._stale.add((namespace, name))
        self._changed_budgets.work(most, self._see_budget)
        self._changed_pods.work(most, self._see_pod)
        if not self._changed_pods and not self._changed_budgets:
            self._stale.work(most, self._write)
        if self._changed_budgets or self._changed_pods or self._stale:
            return -inf
        return self._timers[0][0] if self._timers else None

    def _see_budget(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        held = self._held.setdefault(namespace, {})
        record = self._budgets.table.records.get(key)
        if record is None:
            held.pop(name, None)
            if not held:
                del self._held[namespace]
            return
        selector = self._budgets.stored.decode(record.data)["spec"].get("selector")
        known = held.get(name)
        if known is None or known.uid != record.uid or known.selector != selector:
            held[name] = budget = _Budget(record.uid, selector)
            for pod in self._pods.table.scan(namespace):
                if matches(budget.selector, pod.labels):
                    self._changed_pods.add(pod.key)
        self._stale.add((namespace, name))

    def _see_pod(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        record = self._pods.table.records.get(key)
        if record is not None and record.fields[self._phase] in _FINAL:
            record = None
        ready: bool | None = None
        for budget_name, budget in self._held.get(namespace, {}).items():
            covered = record is not None and matches(budget.selector, record.labels)
            if covered and record is not None and ready is None:
                ready = not record.deleting and _is_ready(record.data)
            if budget.put(name, ready if covered else None):
                self._stale.add((namespace, budget_name))

    def _write(self, key: tuple[str, str]) -> None:
        """Store the budget's status if it changed."""
        namespace, name = key
        budget = self._held.get(namespace, {}).get(name)
        record = self._budgets.table.get(namespace, name)
        if budget is None or record is None or record.uid != budget.uid:
            return  # the budget was replaced; its change is queued
        obj = self._budgets.stored.decode(record.data)
        disrupted = self._disrupted(obj, namespace, name, budget)
        status = budget_status(
            obj,
            expected=len(budget.pods),
            healthy=budget.healthy - sum(budget.pods[pod] for pod in disrupted),
            disrupted=disrupted,
            now=self._registry.now(),
        )
        if status != obj.get("status"):
            self._registry.store.replace(BUDGETS, record, {**obj, "status": status})

    def _disrupted(self, obj: Object, namespace: str, name: str, budget: _Budget) -> dict[str, str]:
        """Return the evicted pods whose deletion has not been observed within the timeout."""
        noted = (obj.get("status") or {}).get("disruptedPods") or {}
        clock = self._registry.store.clock()
        waiting: dict[str, str] = {}
        for pod, since in noted.items():
            record = self._pods.table.get(namespace, pod)
            if pod not in budget.pods or record is None or record.deleting:
                continue
            until = parse(since).timestamp() + DELETION_SECONDS
            if until > clock:
                waiting[pod] = since
                if until < self._due.get((namespace, name), inf):
                    self._due[namespace, name] = until
                    heappush(self._timers, (until, namespace, name))
        return waiting
