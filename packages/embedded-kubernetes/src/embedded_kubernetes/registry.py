"""The served kinds, with their tables, watchers and views.

The registry subscribes to the kinds whose objects change the server's behavior: Namespaces (which may be terminating)
and CustomResourceDefinitions (which add kinds at run time).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import crd, nesting
from .resource import Object, Resource
from .store import Event, Record, Store, Table
from .times import clock_text
from .views import ShapedView, View
from .watch import Hub

#: Fields that tables index, if their kind has them.
_INDEXED = ("spec.nodeName",)
NAMESPACES = ("", "namespaces")
CLASSES = ("scheduling.k8s.io", "priorityclasses")
RUNTIME_CLASSES = ("node.k8s.io", "runtimeclasses")
LIMITS = ("", "limitranges")
QUOTAS = ("", "resourcequotas")
DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")


@dataclass(frozen=True, slots=True)
class Served:
    """A kind as served in one group and version. `stored` is the view of the stored version."""

    resource: Resource
    name: tuple[str, str]
    table: Table
    hub: Hub
    view: View
    stored: View


class Registry:
    """Owns the hubs of the tables and the set of served kinds."""

    def __init__(self, store: Store, resources: Iterable[Resource]) -> None:
        self.store = store
        #: Further objects of the server by type, such as `auth.gate.Access`.
        self.attached: dict[type, Any] = {}
        #: Kinds by (group, version) and plural. Changes only with a definition.
        self.served: dict[tuple[str, str], dict[str, Served]] = {}
        #: Kind and namespace by path of a namespaced collection. A cache of `Api`.
        self.routes: dict[str, tuple[Served, str]] = {}
        #: Existing namespaces that are being deleted. Updated by `_namespace_changed`.
        self.terminating: set[str] = set()
        #: Decoded priority classes by name, because every new pod needs them. Updated by `_class_changed`.
        self.classes: dict[str, Object] = {}
        self.default_class: Object | None = None
        #: Decoded LimitRanges and the keys of ResourceQuotas, by namespace and key. Updated by `_bounds_changed`.
        self.limits: dict[str, dict[str, Object]] = {}
        self.quotas: dict[str, dict[str, None]] = {}
        #: Whether new pods have the service account `default` unless they name another.
        self.defaults_accounts = False
        #: Whether simulated kubelets run the pods.
        self.has_kubelets = False
        #: The version of the last change of a priority class, runtime class or LimitRange, or of the set of quotas.
        self.classes_version = 0
        #: Called with the name of a table when its definition is deleted and its objects must be, too.
        self.orphaned: Callable[[tuple[str, str]], None] = _nobody
        #: Called with the name of each table that is added after the start.
        self.added: Callable[[tuple[str, str]], None] = _nobody
        #: Whether there are webhooks or policies. Updated by `admission.configured.Reviewers`.
        self.is_reviewed = False
        self._hubs: dict[tuple[str, str], Hub] = {}
        self._stored: dict[tuple[str, str], Served] = {}
        self._second = -1
        self._now = ""
        # Shaped kinds come last, because they need the table of another kind.
        for resource in sorted(resources, key=lambda resource: resource.shape is not None):
            self.add(resource)
        if NAMESPACES in self._stored:
            self._stored[NAMESPACES].table.subscribers.append(self._namespace_changed)
        if CLASSES in self._stored:
            self._stored[CLASSES].table.subscribers.append(self._class_changed)
        if RUNTIME_CLASSES in self._stored:
            self._stored[RUNTIME_CLASSES].table.subscribers.append(self._runtime_class_changed)
        for name in (LIMITS, QUOTAS):
            if name in self._stored:
                self._stored[name].table.subscribers.append(partial(self._bounds_changed, name))
        if DEFINITIONS in self._stored:
            self._stored[DEFINITIONS].table.subscribers.append(self._definition_changed)

    def now(self) -> str:
        """Return the current second as RFC 3339."""
        second = int(self.store.clock())
        if second != self._second:
            self._second, self._now = second, clock_text(second)
        return self._now

    def add(self, resource: Resource) -> None:
        """Serve a kind, or replace the rules of a served one."""
        shape = resource.shape
        name = shape.stored if shape else (resource.group, resource.plural)
        if shape is None:
            names = resource.field_names
            table = self.store.add_table(
                name,
                namespaced=resource.namespaced,
                field_names=names,
                extract=resource.fields,
                indexed=tuple(field for field in _INDEXED if field in names),
            )
            if name not in self._hubs:
                self._hubs[name] = Hub(table)
            view = View(resource)
            served = Served(resource, name, table, self._hubs[name], view, view)
            new = name not in self._stored
            self._stored[name] = served
            if new:
                self.added(name)
        else:
            owner = self._stored[name]
            view = ShapedView(resource, owner.stored)
            served = Served(resource, name, owner.table, owner.hub, view, owner.stored)
        self.served.setdefault((resource.group, resource.version), {})[resource.plural] = served
        self.routes.clear()

    def drop(self, group: str, plural: str) -> None:
        """Stop serving a kind in all versions."""
        self.routes.clear()
        for key, kinds in list(self.served.items()):
            if key[0] == group and kinds.pop(plural, None) is not None and not kinds:
                del self.served[key]

    def stored(self, name: tuple[str, str]) -> Served:
        """Return the kind that owns a table."""
        return self._stored[name]

    def all(self) -> list[Served]:
        """Return every kind in every version."""
        return [served for kinds in self.served.values() for served in kinds.values()]

    def resources(self) -> list[Resource]:
        return [served.resource for served in self.all()]

    def tables(self) -> list[Served]:
        """Return the owners of all tables, without shaped kinds."""
        return list(self._stored.values())

    def namespace(self, name: str) -> Record | None:
        return self._stored[NAMESPACES].table.records.get(name)

    def object(self, name: tuple[str, str], key: str) -> Object | None:
        """Return a stored object, decoded; None if the table or the object is missing."""
        served = self._stored.get(name)
        record = served.table.records.get(key) if served else None
        return served.stored.decode(record.data) if served and record else None

    def _namespace_changed(self, event: Event) -> None:
        name = event.record.name
        if event.type == "DELETED":
            self.terminating.discard(name)
        elif event.record.deleting:
            self.terminating.add(name)

    def _class_changed(self, event: Event) -> None:
        self.classes_version = event.rv
        if event.type == "DELETED":
            del self.classes[event.record.name]
        else:
            self.classes[event.record.name] = nesting.loads(event.record.data)
        defaults = [found for found in self.classes.values() if found.get("globalDefault")]
        self.default_class = min(defaults, key=lambda found: int(found.get("value", 0)), default=None)

    def _runtime_class_changed(self, event: Event) -> None:
        self.classes_version = event.rv

    def _bounds_changed(self, name: tuple[str, str], event: Event) -> None:
        namespace, key = event.record.namespace, event.record.key
        if name == QUOTAS and event.type == "MODIFIED":
            return
        self.classes_version = event.rv
        held: dict[str, dict[str, Any]] = self.limits if name == LIMITS else self.quotas
        if event.type != "DELETED":
            held.setdefault(namespace, {})[key] = nesting.loads(event.record.data) if name == LIMITS else None
            return
        del held[namespace][key]
        if not held[namespace]:
            del held[namespace]

    def _definition_changed(self, event: Event) -> None:
        definition = self._stored[DEFINITIONS].stored.decode(event.record.data)
        spec = definition["spec"]
        group, plural = spec["group"], spec["names"]["plural"]
        self.drop(group, plural)
        if event.type == "DELETED":
            if self._stored.pop((group, plural), None) is not None:
                for watcher in self._hubs[(group, plural)].watchers():
                    watcher.end()
                self.orphaned((group, plural))
            return
        for version in spec["versions"]:
            if version.get("served"):
                self.add(crd.resource_of(definition, version["name"]))


def _nobody(name: tuple[str, str]) -> None:
    """Do nothing: the default of the callbacks."""
