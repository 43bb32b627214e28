"""Keeps the status of ResourceQuotas (pkg/controller/resourcequota): what the objects of their namespaces use.

Cost: nothing in a namespace without quota but one lookup per event; none at all before the first quota.
"""

from __future__ import annotations

from functools import partial
from math import inf

from .admission.quotas import status
from .builtin.quota_usage import Amounts, Name, counts, kind_of
from .controllers import Controller, WorkQueue
from .registry import QUOTAS, Registry
from .resource import Object
from .store import Event


class _Quota:
    """The use of one quota: by object, and in total."""

    def __init__(self, obj: Object) -> None:
        self.obj = obj
        self.by_object: dict[tuple[Name, str], Amounts] = {}
        self.total: Amounts = dict.fromkeys((obj.get("spec") or {}).get("hard") or {}, 0)

    def put(self, which: tuple[Name, str], used: Amounts) -> None:
        for resource, amount in self.by_object.pop(which, {}).items():
            self.total[resource] -= amount
        if used:
            self.by_object[which] = used
            for resource, amount in used.items():
                self.total[resource] += amount


class Quotas(Controller):
    """Counts the objects of one registry.

    Invariant: a status is written only when no change is queued, so that it is never below what is used.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        #: The quotas by namespace and key.
        self._quotas: dict[str, dict[str, _Quota]] = {}
        self._subscribed: set[Name] = set()
        self._changed_quotas = WorkQueue[str]()
        self._changed = WorkQueue[tuple[Name, str, str]]()
        self._unwritten = WorkQueue[tuple[str, str]]()
        quotas = registry.stored(QUOTAS)
        self._changed_quotas.extend(quotas.table.records)
        quotas.table.subscribers.append(self._quota_changed)

    def _quota_changed(self, event: Event) -> None:
        self._changed_quotas.add(event.record.key)
        self.wake()

    def _object_changed(self, name: Name, event: Event) -> None:
        record = event.record
        if record.namespace in self._quotas:
            self._changed.add((name, record.namespace, record.key))
            self.wake()

    def advance(self, *, most: int = 64) -> float | None:
        self._changed_quotas.work(most, self._see_quota)
        self._changed.work(most, self._see)
        if not self._changed and not self._changed_quotas:
            self._unwritten.work(most, self._write)
        return -inf if self._changed_quotas or self._changed or self._unwritten else None

    def _see_quota(self, key: str) -> None:
        served = self._registry.stored(QUOTAS)
        record = served.table.records.get(key)
        namespace = key.partition("/")[0]
        if record is None:
            if (found := self._quotas.get(namespace)) is not None:
                found.pop(key, None)
                if not found:
                    del self._quotas[namespace]
            return
        obj = served.stored.decode(record.data)
        known = self._quotas.get(namespace, {}).get(key)
        if known is None or known.obj.get("spec") != obj.get("spec"):
            self._count(namespace, key, obj)
        self._unwritten.add((namespace, key))

    def _count(self, namespace: str, key: str, obj: Object) -> None:
        """Start to count for a quota."""
        made = self._quotas.setdefault(namespace, {})[key] = _Quota(obj)
        wanted = {kind_of(resource) for resource in made.total}
        for served in self._registry.tables():
            if served.name in wanted:
                for record in served.table.scan(namespace):
                    used = counts(obj, served.name, served.stored.decode(record.data))
                    made.put((served.name, record.key), used)
                if served.name not in self._subscribed:
                    self._subscribed.add(served.name)
                    served.table.subscribers.append(partial(self._object_changed, served.name))

    def _see(self, change: tuple[Name, str, str]) -> None:
        name, namespace, key = change
        served = self._registry.stored(name)
        record = served.table.records.get(key)
        obj = None if record is None else served.stored.decode(record.data)
        for quota_key, quota in self._quotas.get(namespace, {}).items():
            quota.put((name, key), {} if obj is None else counts(quota.obj, name, obj))
            self._unwritten.add((namespace, quota_key))

    def _write(self, which: tuple[str, str]) -> None:
        namespace, key = which
        record = self._registry.stored(QUOTAS).table.records.get(key)
        quota = self._quotas.get(namespace, {}).get(key)
        if record is None or quota is None:
            return
        obj = self._registry.stored(QUOTAS).stored.decode(record.data)
        wanted = status(obj, quota.total)
        if obj.get("status") != wanted:
            self._registry.store.replace(QUOTAS, record, {**obj, "status": wanted})
