"""The selectors of services and controllers: they define the siblings among which default constraints spread a pod.

kube-scheduler defines the siblings for its default topology spread constraints in this way (`helper.DefaultSelector`):
the selectors of all services that select the pod, combined with that of the controller that owns it. The result is part
of the pod's class (`PodClass.in_context`), so a changed selector yields another class and no cached result is outdated.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from apimachinery.labels import EVERYTHING, LabelSelector, Requirement

from .indexes import drop_entry
from .podinfo import PodInfo
from .siblings import OwnerKind, Siblings

#: The maximum number of cached combined selectors.
_KEPT: Final = 4096


class Owners:
    """Owner of these selectors as last seen, by kind, namespace and name."""

    def __init__(self, schedulers: Collection[str] = ()) -> None:
        #: The names of the profiles with default constraints; pods of other profiles have no siblings here.
        self.schedulers = frozenset(schedulers)
        self._selectors: dict[tuple[OwnerKind, str, str], LabelSelector] = {}
        #: (namespace, a label that the selector requires) -> selectors of services by name.
        self._services: dict[tuple[str, tuple[str, str]], dict[str, LabelSelector]] = {}
        #: Selectors -> their combination; emptied with every change.
        self._combined: dict[tuple[LabelSelector, ...], LabelSelector] = {}

    def set(self, kind: OwnerKind, namespace: str, name: str, selector: LabelSelector | None) -> None:
        """Set the selector of an object. An object with an empty selector is treated as missing."""
        self.delete(kind, namespace, name)
        if selector is None or not selector.requirements:
            return
        self._selectors[kind, namespace, name] = selector
        if kind is OwnerKind.SERVICE:
            assert selector.pins is not None, "a service selects by labels and values"
            self._services.setdefault((namespace, selector.pins), {})[name] = selector

    def delete(self, kind: OwnerKind, namespace: str, name: str) -> None:
        selector = self._selectors.pop((kind, namespace, name), None)
        self._combined.clear()
        if selector is not None and kind is OwnerKind.SERVICE and selector.pins is not None:
            drop_entry(self._services, (namespace, selector.pins), name)

    def siblings(self, pod: PodInfo) -> Siblings | None:
        """Return the siblings of a pod; None if nothing selects it or its profile has no default constraints."""
        if not self._selectors or pod.scheduler_name not in self.schedulers:
            return None
        namespace, labels = pod.namespace, pod.labels
        found = [
            selector
            for label in labels.items()
            for selector in self._services.get((namespace, label), {}).values()
            if selector.matches(labels)
        ]
        controller = pod.controller
        own = self._selectors.get((controller.kind, namespace, controller.name)) if controller else None
        if own is None:
            if not found:
                return None
        elif controller and controller.kind is OwnerKind.REPLICATION_CONTROLLER:
            # The labels of a ReplicationController replace those of the services for the same keys.
            keys = {requirement.key for requirement in own.requirements}
            found = [_without(selector, keys) for selector in found]
        selector = self._of_all((*found, own or EVERYTHING))
        return Siblings(namespace, selector, selector.matches(labels))

    def _of_all(self, selectors: tuple[LabelSelector, ...]) -> LabelSelector:
        combined = self._combined.get(selectors)
        if combined is None:
            combined = EVERYTHING.also(*(each for selector in selectors for each in selector.requirements))
            if len(self._combined) >= _KEPT:
                self._combined.clear()
            self._combined[selectors] = combined
        return combined


def _without(selector: LabelSelector, keys: Collection[str]) -> LabelSelector:
    kept: list[Requirement] = [each for each in selector.requirements if each.key not in keys]
    return EVERYTHING.also(*kept)
