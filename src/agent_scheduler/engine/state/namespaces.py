"""The labels of namespaces, for terms with a namespace selector."""

from __future__ import annotations

from typing import NamedTuple

from apimachinery.labels import Labels, LabelSelector

_NONE: Labels = {}


class NamespaceInfo(NamedTuple):
    """One namespace, as passed to the queue with events."""

    name: str
    labels: Labels


class Namespaces:
    """Owner of the namespaces as last seen. An unknown namespace has no labels."""

    def __init__(self) -> None:
        self._labels: dict[str, Labels] = {}
        #: Increases with each change.
        self.version = 0

    def set(self, name: str, labels: Labels) -> None:
        if self._labels.get(name) != labels:
            self._labels[name] = labels
            self.version += 1

    def delete(self, name: str) -> None:
        if self._labels.pop(name, None) is not None:
            self.version += 1

    def get(self, name: str) -> NamespaceInfo | None:
        """Return a namespace; None if it was never seen or is deleted."""
        labels = self._labels.get(name)
        return None if labels is None else NamespaceInfo(name, labels)

    def labels(self, name: str) -> Labels:
        return self._labels.get(name, _NONE)

    def matching(self, selector: LabelSelector) -> frozenset[str]:
        return frozenset(name for name, labels in self._labels.items() if selector.matches(labels))
