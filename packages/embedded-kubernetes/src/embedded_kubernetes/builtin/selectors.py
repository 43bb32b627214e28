"""Validation of label selectors and node selectors in objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import Cause
from . import names
from .causes import check_format, forbidden, invalid, required
from .metadata import check_labels

_NO_OPERATOR = "not a valid selector operator"
_NEEDS_VALUES = "must be specified when `operator` is 'In' or 'NotIn'"
_NEEDS_ONE = "must be specified single value when `operator` is 'Lt' or 'Gt'"
_FORBIDS_VALUES = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"


def check_label_selector(selector: dict[str, Any] | None, path: str) -> Iterator[Cause]:
    """Check a `LabelSelector`. None is valid and selects nothing."""
    if not selector:
        return
    yield from check_labels(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, term in enumerate(selector.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{index}]"
        yield from _check_expression(term, at)
        yield from _check_values(term.get("values") or [], f"{at}.values")


def _check_expression(expression: dict[str, Any], at: str, *, numeric: bool = False) -> Iterator[Cause]:
    """Check key and operator, and the number of values for that operator; `numeric` allows Gt and Lt."""
    operator, values = expression.get("operator", ""), expression.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{at}.values", _NEEDS_VALUES)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden(f"{at}.values", _FORBIDS_VALUES)
    elif numeric and operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(f"{at}.values", _NEEDS_ONE)
    else:
        yield invalid(f"{at}.operator", operator, _NO_OPERATOR)
    yield from check_format(f"{at}.key", expression.get("key", ""), names.qualified)


def _check_values(values: list[str], path: str) -> list[Cause]:
    return [
        invalid(f"{path}[{index}]", value, problem)
        for index, value in enumerate(values)
        for problem in names.label_value(value)
    ]


def check_node_selector_term(term: dict[str, Any], path: str, *, values_too: bool = True) -> Iterator[Cause]:
    """Check a `NodeSelectorTerm`.

    Preferred terms (`values_too` is false) may have values that are invalid as labels.
    """
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        at = f"{path}.matchExpressions[{index}]"
        yield from _check_expression(expression, at, numeric=True)
        if values_too:
            yield from _check_values(expression.get("values") or [], f"{at}.values")
    for index, expression in enumerate(term.get("matchFields") or ()):
        yield from _check_match_field(expression, f"{path}.matchFields[{index}]")


def _check_match_field(expression: dict[str, Any], at: str) -> Iterator[Cause]:
    operator, values = expression.get("operator", ""), expression.get("values") or []
    if operator not in ("In", "NotIn"):
        yield invalid(f"{at}.operator", operator, _NO_OPERATOR)
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{at}.values", detail)
    key = expression.get("key", "")
    if key != "metadata.name":
        yield invalid(f"{at}.key", key, "not a valid field selector key")
        return
    for index, value in enumerate(values):
        yield from check_format(f"{at}.values[{index}]", value, names.subdomain)


def check_node_selector(selector: dict[str, Any], path: str) -> Iterator[Cause]:
    """Check a required `NodeSelector`: it has at least one term."""
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
        return
    for index, term in enumerate(terms):
        yield from check_node_selector_term(term, f"{path}.nodeSelectorTerms[{index}]")
