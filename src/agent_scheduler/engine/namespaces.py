"""The labels of namespaces, for terms that choose namespaces by them."""

from __future__ import annotations

from .labelselector import Labels, LabelSelector

_NONE: Labels = {}


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

    def labels(self, name: str) -> Labels:
        return self._labels.get(name, _NONE)

    def matching(self, selector: LabelSelector) -> frozenset[str]:
        return frozenset(name for name, labels in self._labels.items() if selector.matches(labels))
