"""Label selectors over the labels of pods and namespaces, compiled once and compared by value.

Semantics are those of apimachinery's `LabelSelectorAsSelector`: requirements are ANDed; an object without the label
satisfies NotIn and DoesNotExist; a selector without requirements matches everything, and a missing selector (None)
matches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from agent_scheduler.objects import wire

from .podspec import check_requirement

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")

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
        return _ordered({*self.requirements, *requirements}) if requirements else self

    @property
    def pins(self) -> tuple[str, str] | None:
        """A label (key, value) that every matching object has, if a requirement determines one; for indexes."""
        for key, operator, values in self.requirements:
            if operator == "In" and len(values) == 1:
                return key, next(iter(values))
        return None


EVERYTHING = LabelSelector(())


def _ordered(requirements: set[Requirement]) -> LabelSelector:
    return LabelSelector(tuple(sorted(requirements, key=lambda each: (each[0], each[1], sorted(each[2])))))


def label_selector(selector: wire.LabelSelector | None, place: str) -> LabelSelector | None:
    """Compile a selector; None stays None. Raises `SpecError` that names the invalid requirement below `place`."""
    if selector is None:
        return None
    found = {Requirement(key, "In", frozenset((value,))) for key, value in (selector.match_labels or {}).items()}
    for index, each in enumerate(selector.match_expressions or ()):
        check_requirement(each, f"{place}.matchExpressions[{index}]", _OPERATORS)
        found.add(Requirement(each.key, each.operator, frozenset(each.values or ())))
    return _ordered(found)
