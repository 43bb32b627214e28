"""Label selectors and rules of webhooks and policies."""

from __future__ import annotations

import pytest

from embedded_kubernetes.admission.matching import labels_match


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [
        ("In", ["x", "y"], (True, False)),
        ("NotIn", ["x"], (False, True)),
        ("Exists", [], (True, False)),
        ("DoesNotExist", [], (False, True)),
    ],
)
def test_an_expression_selects_by_its_key(operator, values, fits) -> None:
    selector = {"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}
    assert (labels_match(selector, {"a": "x"}), labels_match(selector, {"b": "x"})) == fits


def test_everything_in_a_selector_has_to_hold() -> None:
    selector = {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}
    assert labels_match({}, {})
    assert labels_match(selector, {"a": "1", "b": ""})
    assert not labels_match(selector, {"a": "1"})
    assert not labels_match(selector, {"b": "1"})
