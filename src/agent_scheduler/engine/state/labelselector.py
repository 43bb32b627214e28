"""Compiles the label selectors of objects by the rules of apimachinery's `LabelSelectorAsSelector`."""

from __future__ import annotations

from agent_scheduler.objects import wire
from apimachinery.labels import LabelSelector, Requirement, ordered

from .podspec import check_requirement

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def label_selector(selector: wire.LabelSelector | None, place: str) -> LabelSelector | None:
    """Compile a selector; None stays None. Raises `SpecError` that names the invalid requirement below `place`."""
    if selector is None:
        return None
    found = {Requirement(key, "In", frozenset((value,))) for key, value in (selector.match_labels or {}).items()}
    for index, each in enumerate(selector.match_expressions or ()):
        check_requirement(each, f"{place}.matchExpressions[{index}]", _OPERATORS)
        found.add(Requirement(each.key, each.operator, frozenset(each.values or ())))
    return ordered(found)
