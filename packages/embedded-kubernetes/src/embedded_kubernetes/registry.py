"""Which kinds are served, and where each one's objects, watchers and views are.

The registry also follows the two kinds whose objects change what the server does: a Namespace (may anything be
created in it?) and a CustomResourceDefinition (which adds kinds while the server runs). Both are followed by
subscription to their tables, so every way of writing them counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from . import crd
from .resource import Object, Resource
from .store import Event, Record, Store, Table
from .times import clock_text
from .views import ShapedView, View
from .watch import Hub

if TYPE_CHECKING:
    from .admission.configured import Reviewers

#: Fields that tables keep an index of, where their kind has them.
_INDEXED = ("spec.nodeName",)
NAMESPACES = ("", "namespaces")
CLASSES = ("scheduling.k8s.io", "priorityclasses")
RUNTIME_CLASSES = ("node.k8s.io", "runtimeclasses")
DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")


@dataclass(frozen=True, slots=True)
class Served:
    """One kind as it is reached by one group and version. `stored` is the view of what the table holds."""

    resource: Resource
    name: tuple[str, str]
    table: Table
    hub: Hub
    view: View
    stored: View


class Registry:
    """Owner of the tables' hubs and of the set of served kinds."""

    def __init__(self, store: Store, resources: Iterable[Resource]) -> None:
        self.store = store
        #: What belongs to one server beside its kinds, by its type: `auth.gate.Access`, say.
        self.attached: dict[type, Any] = {}
        #: (group, version) -> plural -> the kind. Changes only when a definition does.
        self.served: dict[tuple[str, str], dict[str, Served]] = {}
        #: Paths of collections in namespaces -> the kind and the namespace. A cache of `Api`, for these kinds.
        self.routes: dict[str, tuple[Served, str]] = {}
        #: Namespaces that exist and are being deleted. Kept by `_namespace_changed`.
        self.terminating: set[str] = set()
        #: Priority classes by name, decoded: every pod that is created asks. Kept by `_class_changed`.
        self.classes: dict[str, Object] = {}
        self.default_class: Object | None = None
        #: The version of the last change of a class, of either kind, that pods are completed from.
        self.classes_version = 0
        #: Called with the table's name when a definition goes and its objects must too.
        self.orphaned: Callable[[tuple[str, str]], None] = _nobody
        #: Called with the name of each table that comes after the start.
        self.added: Callable[[tuple[str, str]], None] = _nobody
        #: Who is shown writes before they are stored; None while nobody is. Kept by `Reviewers`.
        self.reviewers: Reviewers | None = None
        self._hubs: dict[tuple[str, str], Hub] = {}
        self._stored: dict[tuple[str, str], Served] = {}
        self._second = -1
        self._now = ""
        # Shaped kinds come last: they live in a table that another kind makes.
        for resource in sorted(resources, key=lambda resource: resource.shape is not None):
            self.add(resource)
        if NAMESPACES in self._stored:
            self._stored[NAMESPACES].table.subscribers.append(self._namespace_changed)
        if CLASSES in self._stored:
            self._stored[CLASSES].table.subscribers.append(self._class_changed)
        if RUNTIME_CLASSES in self._stored:
            self._stored[RUNTIME_CLASSES].table.subscribers.append(self._runtime_class_changed)
        if DEFINITIONS in self._stored:
            self._stored[DEFINITIONS].table.subscribers.append(self._definition_changed)

    def now(self) -> str:
        """The present second in RFC 3339."""
        second = int(self.store.clock())
        if second != self._second:
            self._second, self._now = second, clock_text(second)
        return self._now

    def add(self, resource: Resource) -> None:
        """Serve a kind, or serve it by new rules."""
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
        """Serve a kind no more, in any version."""
        self.routes.clear()
        for key, kinds in list(self.served.items()):
            if key[0] == group and kinds.pop(plural, None) is not None and not kinds:
                del self.served[key]

    def stored(self, name: tuple[str, str]) -> Served:
        """The kind that owns a table."""
        return self._stored[name]

    def all(self) -> list[Served]:
        """Every kind in every version."""
        return [served for kinds in self.served.values() for served in kinds.values()]

    def resources(self) -> list[Resource]:
        return [served.resource for served in self.all()]

    def tables(self) -> list[Served]:
        """Every table's owner, shaped kinds left out."""
        return list(self._stored.values())

    def namespace(self, name: str) -> Record | None:
        return self._stored[NAMESPACES].table.records.get(name)

    def object(self, name: tuple[str, str], key: str) -> Object | None:
        """A stored object, decoded; None if the table or the object is missing."""
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
            self.classes[event.record.name] = orjson.loads(event.record.data)
        defaults = [found for found in self.classes.values() if found.get("globalDefault")]
        self.default_class = min(defaults, key=lambda found: int(found.get("value", 0)), default=None)

    def _runtime_class_changed(self, event: Event) -> None:
        self.classes_version = event.rv

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
    """Nobody asked to be told."""
