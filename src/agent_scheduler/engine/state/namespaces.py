"""The labels of namespaces, for terms that choose namespaces by them."""

from __future__ import annotations

from typing import NamedTuple

from .labelselector import Labels, LabelSelector

_NONE: Labels = {}


class NamespaceInfo(NamedTuple):
    """One namespace, as events of the queue have it."""

    name: str
    labels: Labels


class Namespaces:
    """Owner of the namespaces as last seen. One that was never seen has no labels."""

    def __init__(self) -> None:
        self._labels: dict[str, Labels] = {}
        #: Rises whenever an answer may have changed.
        self.version = 0

    def set(self, name: str, labels: Labels) -> None:
        if self._labels.get(name) != labels:
            self._labels[name] = labels
            self.version += 1

    def delete(self, name: str) -> None:
        if self._labels.pop(name, None) is not None:
            self.version += 1

    def get(self, name: str) -> NamespaceInfo | None:
        """None for one that was never seen or is gone."""
        labels = self._labels.get(name)
        return None if labels is None else NamespaceInfo(name, labels)

    def labels(self, name: str) -> Labels:
        return self._labels.get(name, _NONE)

    def matching(self, selector: LabelSelector) -> frozenset[str]:
        return frozenset(name for name, labels in self._labels.items() if selector.matches(labels))
