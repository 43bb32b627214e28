"""Label selectors as values, for both forms in which Kubernetes writes them: an object, and a text as in kubectl.

Semantics are those of apimachinery's `labels.Selector`: requirements are ANDed; an object without the label satisfies
NotIn and DoesNotExist; a selector without requirements matches everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

Labels = Mapping[str, str]


class Requirement(NamedTuple):
    """One requirement of a selector; `values` is empty for Exists and DoesNotExist."""

    key: str
    operator: str
    values: frozenset[str]

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        if self.operator == "In":
            return value in self.values
        if self.operator == "NotIn":
            return value not in self.values
        return (value is not None) == (self.operator == "Exists")


class LabelSelector(NamedTuple):
    """Requirements in a canonical order, so that selectors that differ in order only are equal."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Labels) -> bool:
        # A plain loop is fastest, and this runs once per pod and counted selector.
        for requirement in self.requirements:  # noqa: SIM110
            if not requirement.matches(labels):
                return False
        return True

    def also(self, *requirements: Requirement) -> LabelSelector:
        """Return this selector with additional requirements."""
        return ordered((*self.requirements, *requirements)) if requirements else self

    @property
    def pins(self) -> tuple[str, str] | None:
        """A label (key, value) that every matching object has, if a requirement determines one; for indexes."""
        for key, operator, values in self.requirements:
            if operator == "In" and len(values) == 1:
                return key, next(iter(values))
        return None


EVERYTHING = LabelSelector(())


def ordered(requirements: Iterable[Requirement]) -> LabelSelector:
    """Return the selector with these requirements, which may repeat."""
    return LabelSelector(tuple(sorted(set(requirements), key=lambda each: (each[0], each[1], sorted(each[2])))))
