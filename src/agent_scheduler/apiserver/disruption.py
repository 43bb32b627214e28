"""The disruption controller: keeps every PodDisruptionBudget's status true while pods come, go and turn ready.

Without it, an eviction is answered as a real server does when its controller has not seen the budget yet: 429,
for ever. Pods without a controller count as their own scale (`builtin.eviction.disruption_status`).

Subscribers only note a namespace, and only where it has a budget, so that pods elsewhere cost a dict lookup.
Work is done in `step`, and `run` leaves pauses in proportion to it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from .builtin.eviction import disruption_status, matches
from .registry import Registry
from .store import Event
from .subresources import BUDGETS, PODS

#: Seconds between two looks at the least, and the share of the time that looking may take.
_PAUSE, _SHARE = 0.05, 0.1


class Budgets:
    """The budgets of one registry. `wake` is called when there is something to do."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.wake: Callable[[], None] = _nobody
        #: Namespace to how many budgets it has. Kept by `_budget_changed`; holds no zeros.
        self._held: Counter[str] = Counter()
        #: Namespaces whose budgets must be looked at again, in order of arrival.
        self._dirty: dict[str, None] = {}
        for record in registry.stored(BUDGETS).table.scan(""):
            self._held[record.namespace] += 1
            self._dirty[record.namespace] = None
        registry.stored(BUDGETS).table.subscribers.append(self._budget_changed)
        registry.stored(PODS).table.subscribers.append(self._pod_changed)

    def close(self) -> None:
        """Follow nothing any more."""
        self._registry.stored(BUDGETS).table.subscribers.remove(self._budget_changed)
        self._registry.stored(PODS).table.subscribers.remove(self._pod_changed)

    def step(self) -> None:
        """Bring the budgets of every noted namespace up to date."""
        dirty, self._dirty = self._dirty, {}
        for namespace in dirty:
            self._refresh(namespace)

    @property
    def busy(self) -> bool:
        return bool(self._dirty)

    def _refresh(self, namespace: str) -> None:
        store = self._registry.store
        budgets, pods = self._registry.stored(BUDGETS), self._registry.stored(PODS)
        for record in list(budgets.table.scan(namespace)):
            budget = budgets.stored.decode(record.data)
            selector = budget["spec"].get("selector")
            covered = [
                pods.stored.decode(pod.data)
                for pod in pods.table.scan(namespace)
                if matches(selector, pod.labels)
            ]
            status = disruption_status(budget, covered, now=self._registry.now())
            if status != budget.get("status"):
                store.replace(BUDGETS, record, {**budget, "status": status})

    def _budget_changed(self, event: Event) -> None:
        namespace = event.record.namespace
        if event.type == "ADDED":
            self._held[namespace] += 1
        elif event.type == "DELETED":
            self._held[namespace] -= 1
            if not self._held[namespace]:
                del self._held[namespace]
                return
        self._note(namespace)

    def _pod_changed(self, event: Event) -> None:
        if event.record.namespace in self._held:
            self._note(event.record.namespace)

    def _note(self, namespace: str) -> None:
        idle = not self._dirty
        self._dirty[namespace] = None
        if idle:
            self.wake()


async def run(
    budgets: Budgets,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Work until cancelled. `clock` is in seconds."""
    noted = asyncio.Event()
    budgets.wake = noted.set
    if budgets.busy:
        noted.set()
    try:
        while True:
            await noted.wait()
            noted.clear()
            began = clock()
            budgets.step()
            await sleep(max(_PAUSE, (clock() - began) / _SHARE))
    finally:
        budgets.close()


def _nobody() -> None:
    """Nobody waits."""
