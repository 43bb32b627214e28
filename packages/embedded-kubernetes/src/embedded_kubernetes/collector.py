"""Completes deletions as kube-controller-manager does: dependents of owners, and contents of namespaces.

Dependents are deleted when their last owner is gone (background propagation). An owner with the finalizer
`foregroundDeletion` or `orphan` stays until its dependents are deleted or orphaned. A terminating namespace is
emptied and then finalized. Objects of a deleted definition are deleted. Follows pkg/controller/garbagecollector and
pkg/controller/namespace, without their delays.

Dependents that are created after their owner's deletion are deleted as well; the last `_REMEMBERED` deleted owners
are known. A reference to a UID that never existed is ignored, whereas the real collector would delete the object.
Subscribers only queue jobs, because a write during a commit would overtake the commit's own event. `step` does the
work in small portions, so that emptying a large namespace does not block the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from .controllers import nobody
from .deletion import CLEANUP, FOREGROUND, ORPHAN, delete_record, may_go, release, store_released
from .registry import DEFINITIONS, NAMESPACES, Registry, Served
from .resource import Object
from .store import Event, Record
from .subresources import NODES, PODS

Name = tuple[str, str]
_Job = tuple[Literal["gone", "late", "waits", "namespace", "definition"], Name, str]

_FINALIZERS = (f'"{FOREGROUND}"'.encode(), f'"{ORPHAN}"'.encode())
#: The number of deleted objects that are remembered.
_REMEMBERED = 65_536


class Collector:
    """The pending jobs of one registry. `wake` is called when the first job is queued.

    With `definitions_only`, it does only what kube-apiserver itself does: delete the objects of a deleted definition.
    """

    def __init__(self, registry: Registry, *, definitions_only: bool = False) -> None:
        self._registry = registry
        self.wake: Callable[[], None] = nobody
        #: Jobs in order of arrival, without duplicates. A running job is removed first, so that an event during its
        #: run queues it again.
        self._jobs: dict[_Job, None] = {}
        self._running: Iterator[None] | None = None
        #: Owners that wait for their dependents: location by UID. Removed when the owner is gone.
        self._waiting: dict[str, tuple[Name, str]] = {}
        self._followed: set[Name] = set()
        #: UIDs of deleted objects, oldest first.
        self._gone: dict[str, None] = {}
        registry.orphaned = self._definition_gone
        #: Custom kinds whose definition is being deleted.
        self._ending: dict[Name, str] = {}
        #: The tables of these kinds that have a subscription.
        self._counted: set[Name] = set()
        definitions = registry.stored(DEFINITIONS)
        definitions.table.subscribers.append(self._definition_changed)
        if not definitions_only:
            registry.added = self._follow
            for served in registry.tables():
                self._follow(served.name)

    @property
    def busy(self) -> bool:
        return self._running is not None or bool(self._jobs)

    def step(self, bites: int = 64) -> bool:
        """Do at most `bites` writes. Returns whether work is left."""
        while bites > 0:
            if self._running is None:
                if not self._jobs:
                    return False
                job = next(iter(self._jobs))
                del self._jobs[job]
                self._running = self._work(job)
            for _ in self._running:
                bites -= 1
                if bites <= 0:
                    return True
            self._running = None
        return self.busy

    def drain(self) -> None:
        """Work until no job is left."""
        while self.step():
            pass

    def abandon(self) -> None:
        """Abort the running job."""
        self._running = None

    def _add(self, job: _Job) -> None:
        idle = not self.busy
        self._jobs[job] = None
        if idle:
            self.wake()

    def _follow(self, name: Name) -> None:
        if name not in self._followed:
            self._followed.add(name)
            self._registry.store.tables[name].subscribers.append(self._noting(name))

    def _definition_gone(self, name: Name) -> None:
        self._add(("definition", name, ""))

    def _definition_changed(self, event: Event) -> None:
        plural, _, group = event.record.name.partition(".")
        name = (group, plural)
        if event.type == "DELETED":
            self._ending.pop(name, None)
        elif event.record.deleting and name not in self._ending:
            self._ending[name] = event.record.name
            self._add(("definition", name, event.record.name))
            table = self._registry.store.tables.get(name)
            if table is not None and name not in self._counted:
                self._counted.add(name)
                table.subscribers.append(self._counting(name))

    def _counting(self, name: Name) -> Callable[[Event], None]:
        table = self._registry.store.tables[name]

        def note(event: Event) -> None:
            if event.type == "DELETED" and not table.records and name in self._ending:
                self._add(("definition", name, self._ending[name]))

        return note

    def _noting(self, name: Name) -> Callable[[Event], None]:
        registry, waiting, gone = self._registry, self._waiting, self._gone
        terminating, dependents = registry.terminating, registry.store.dependents
        table = registry.store.tables[name]

        def note(event: Event) -> None:
            record = event.record
            if event.type == "MODIFIED":
                if record.deleting:
                    self._begin(name, record)
            elif event.type == "ADDED":
                # A store that is restored has deleted objects again.
                gone.pop(record.uid, None)
                if not gone.keys().isdisjoint(record.owners):
                    self._add(("late", name, record.key))
            elif event.type == "DELETED":
                gone[record.uid] = None
                if len(gone) > _REMEMBERED:
                    del gone[next(iter(gone))]
                waiting.pop(record.uid, None)
                if record.uid in dependents:
                    self._add(("gone", name, record.uid))
                for owner in record.owners:
                    if owner in waiting:
                        self._add(("waits", *waiting[owner]))
                namespace = record.namespace
                if namespace and namespace in terminating and not table.remaining(namespace, ""):
                    self._add(("namespace", NAMESPACES, namespace))

        return note

    def _begin(self, name: Name, record: Record) -> None:
        """Queue the work of an object that is being deleted."""
        if any(finalizer in record.data for finalizer in _FINALIZERS):
            self._waiting[record.uid] = (name, record.key)
            self._add(("waits", name, record.key))
        if name == NAMESPACES:
            self._add(("namespace", NAMESPACES, record.name))

    def resume(self, gone: Iterable[str]) -> None:
        """Queue the work that was left when a restored store ended. `gone` are UIDs of deleted objects."""
        self._gone.update(dict.fromkeys(gone))
        for served in self._registry.tables():
            for record in served.table.records.values():
                if record.deleting:
                    self._begin(served.name, record)
                if not self._gone.keys().isdisjoint(record.owners):
                    self._add(("late", served.name, record.key))

    def _work(self, job: _Job) -> Iterator[None]:
        kind, name, subject = job
        if kind == "gone":
            return self._owner_gone(subject)
        if kind == "late":
            return self._came_late(name, subject)
        if kind == "waits":
            return self._owner_waits(name, subject)
        if kind == "namespace":
            return self._empty_namespace(subject)
        return self._remove_all(name, subject)

    def _dependents(self, uid: str) -> list[tuple[Served, str]]:
        """Return the locations of the objects that have this owner, in a fixed order."""
        held = sorted(self._registry.store.dependents.get(uid, ()))
        known = {served.name: served for served in self._registry.tables()}
        return [(known[name], key) for name, key in held if name in known]

    def _owned(self, uid: str) -> Iterator[tuple[Served, Record, Object]]:
        """Yield the decoded dependents that still have this owner when they are processed."""
        for served, key in self._dependents(uid):
            record = served.table.records.get(key)
            if record is not None and uid in record.owners:
                yield served, record, served.stored.decode(record.data)

    def _exists(self, reference: Object, namespace: str) -> bool:
        """Return whether an owner exists; true if its kind is not served."""
        group, _, version = str(reference.get("apiVersion", "")).rpartition("/")
        kinds = self._registry.served.get((group, version), {})
        for served in kinds.values():
            if served.resource.kind == reference.get("kind"):
                place = namespace if served.resource.namespaced else ""
                record = served.table.get(place, str(reference.get("name", "")))
                return record is not None and record.uid == reference.get("uid")
        return True

    def _owner_gone(self, uid: str) -> Iterator[None]:
        for served, record, obj in self._owned(uid):
            references = obj["metadata"]["ownerReferences"]
            left = [
                reference
                for reference in references
                if reference["uid"] != uid and self._exists(reference, record.namespace)
            ]
            if not left:
                delete_record(self._registry, served, record, {"propagationPolicy": "Background"})
            else:
                obj["metadata"]["ownerReferences"] = left
                self._registry.store.replace(served.name, record, obj)
            yield

    def _came_late(self, name: Name, key: str) -> Iterator[None]:
        served = self._registry.stored(name)
        record = served.table.records.get(key)
        if record is not None:
            for uid in record.owners:
                if uid in self._gone:
                    yield from self._owner_gone(uid)

    def _owner_waits(self, name: Name, key: str) -> Iterator[None]:
        served = self._registry.stored(name)
        record = served.table.records.get(key)
        if record is None:
            return
        finalizers = served.stored.decode(record.data)["metadata"].get("finalizers", ())
        done = None
        if ORPHAN in finalizers:
            yield from self._orphan(record.uid)
            done = ORPHAN
        elif FOREGROUND in finalizers:
            blocked = False
            for dependent, place in self._dependents(record.uid):
                blocked = self._delete_dependent(dependent, place, owner=record.uid) or blocked
                yield
            done = None if blocked else FOREGROUND
        record = served.table.records.get(key)
        if done is None or record is None:
            return
        release(self._registry, served, record, done)
        yield

    def _delete_dependent(self, served: Served, key: str, *, owner: str) -> bool:
        """Delete one dependent unless that is in progress; return whether the owner has to wait for it."""
        record = served.table.records.get(key)
        if record is None:
            return False
        metadata = served.stored.decode(record.data)["metadata"]
        blocks = any(
            reference["uid"] == owner and reference.get("blockOwnerDeletion")
            for reference in metadata.get("ownerReferences", ())
        )
        if "deletionTimestamp" not in metadata:
            # A dependent with dependents of its own is deleted in the foreground, too (`attemptToDeleteItem`).
            policy = "Foreground" if self._registry.store.dependents.get(record.uid) else "Background"
            _, gone = delete_record(self._registry, served, record, {"propagationPolicy": policy})
            return blocks and not gone
        return blocks

    def _orphan(self, uid: str) -> Iterator[None]:
        for served, record, obj in self._owned(uid):
            references = obj["metadata"]["ownerReferences"]
            left = [reference for reference in references if reference["uid"] != uid]
            if left:
                obj["metadata"]["ownerReferences"] = left
            else:
                del obj["metadata"]["ownerReferences"]
            self._registry.store.replace(served.name, record, obj)
            yield

    def _empty_namespace(self, namespace: str) -> Iterator[None]:
        nodes = self._registry.store.tables[NODES]
        left = 0
        for served in self._registry.tables():
            if not served.table.namespaced:
                continue
            for record in list(served.table.scan(namespace)):
                if served.table.records.get(record.key) is not record:
                    continue
                options: Object = {"propagationPolicy": "Background"}
                if served.name == PODS:
                    node = served.stored.decode(record.data)["spec"].get("nodeName", "")
                    if node not in nodes.records:
                        options["gracePeriodSeconds"] = 0  # no kubelet will report that it stopped
                delete_record(self._registry, served, record, options)
                yield
            left += served.table.remaining(namespace, "")
        if left:
            return  # the deletion of the last object of a table queues this job again
        owner = self._registry.stored(NAMESPACES)
        current = owner.table.records.get(namespace)
        if current is not None and namespace in self._registry.terminating:
            obj = owner.stored.decode(current.data)
            spec = obj.setdefault("spec", {})
            finalizers = [name for name in spec.get("finalizers", ()) if name != "kubernetes"]
            unchanged = finalizers == spec.get("finalizers", [])
            spec.pop("finalizers", None)
            if finalizers:
                spec["finalizers"] = finalizers
            if unchanged and not may_go(owner, obj):
                return  # other finalizers are left
            store_released(self._registry, owner, current, obj)
            yield

    def _remove_all(self, name: Name, definition: str) -> Iterator[None]:
        """Delete the objects of a custom kind, then release its definition."""
        served = next((served for served in self._registry.tables() if served.name == name), None)
        table = self._registry.store.tables.get(name)
        if table is not None:
            for record in list(table.scan("")):
                if table.records.get(record.key) is not record:
                    continue
                if served is not None:
                    delete_record(self._registry, served, record, {})
                else:
                    # The definition is gone already, so the kind is not served.
                    self._registry.store.remove(name, record)
                yield
            if table.records:
                return  # the deletion of the last object queues this job again
        owner = self._registry.stored(DEFINITIONS)
        current = owner.table.records.get(definition)
        if current is None or not current.deleting:
            return
        if CLEANUP in owner.stored.decode(current.data)["metadata"].get("finalizers", ()):
            release(self._registry, owner, current, CLEANUP)
            yield
