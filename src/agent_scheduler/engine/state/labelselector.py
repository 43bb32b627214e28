"""Label selectors over the labels of pods and namespaces, compiled once and compared by value.

Semantics are those of apimachinery's `LabelSelectorAsSelector`: requirements are ANDed; an object without the label
satisfies NotIn and DoesNotExist; a selector without requirements matches everything, and no selector at all (None
here) matches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from agent_scheduler.objects import wire

from .podspec import check_requirement

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")

Labels = Mapping[str, str]


class Requirement(NamedTuple):
    """`values` is empty for Exists and DoesNotExist."""

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
    """Requirements in a fixed order, so that selectors that say the same in another order are equal."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Labels) -> bool:
        # Plain loop: this runs once a pod for every selector that is counted.
        for requirement in self.requirements:  # noqa: SIM110
            if not requirement.matches(labels):
                return False
        return True

    def also(self, *requirements: Requirement) -> LabelSelector:
        """This and more."""
        return _ordered({*self.requirements, *requirements}) if requirements else self

    @property
    def pins(self) -> tuple[str, str] | None:
        """A label (key, value) that everything matched has, if the selector says so; for indices."""
        for key, operator, values in self.requirements:
            if operator == "In" and len(values) == 1:
                return key, next(iter(values))
        return None


EVERYTHING = LabelSelector(())


def _ordered(requirements: set[Requirement]) -> LabelSelector:
    return LabelSelector(tuple(sorted(requirements, key=lambda each: (each[0], each[1], sorted(each[2])))))


def label_selector(selector: wire.LabelSelector | None, place: str) -> LabelSelector | None:
    """Raises `SpecError` naming the requirement below `place` that has no meaning."""
    if selector is None:
        return None
    found = {
        Requirement(key, "In", frozenset((value,))) for key, value in (selector.match_labels or {}).items()
    }
    for index, each in enumerate(selector.match_expressions or ()):
        check_requirement(each, f"{place}.matchExpressions[{index}]", _OPERATORS)
        found.add(Requirement(each.key, each.operator, frozenset(each.values or ())))
    return _ordered(found)
