"""Which taints a toleration tolerates, by key, operator, value and effect."""

from __future__ import annotations

import pytest

from agent_scheduler.engine.rules.tolerance import schedulable, tolerates
from agent_scheduler.objects.wire import Taint, Toleration


def taint(value: str = "5", effect: str = "NoSchedule", key: str = "k") -> Taint:
    return Taint(key=key, value=value, effect=effect)


@pytest.mark.parametrize(
    ("toleration", "value", "expected"),
    [
        ({"operator": "Exists"}, "5", True),
        ({"key": "k", "operator": "Exists"}, "5", True),
        ({"key": "other", "operator": "Exists"}, "5", False),
        ({"key": "k", "value": "5"}, "5", True),
        ({"key": "k", "value": "6"}, "5", False),
        ({"key": "k"}, "", True),
        ({"key": "k", "value": "5", "effect": "NoSchedule"}, "5", True),
        ({"key": "k", "value": "5", "effect": "NoExecute"}, "5", False),
        ({"key": "k", "operator": "Lt", "value": "6"}, "5", True),
        ({"key": "k", "operator": "Lt", "value": "5"}, "5", False),
        ({"key": "k", "operator": "Gt", "value": "4"}, "5", True),
        ({"key": "k", "operator": "Gt", "value": "5"}, "5", False),
        ({"key": "k", "operator": "Gt", "value": "x"}, "5", False),
        ({"key": "k", "operator": "Lt", "value": "6"}, "x", False),
    ],
)
def test_a_taint_is_tolerated_where_key_effect_and_value_agree(
    toleration: dict[str, str], value: str, expected: bool
) -> None:
    assert tolerates(Toleration(**toleration), taint(value)) is expected


def test_every_taint_that_keeps_pods_away_has_to_be_tolerated_and_a_preference_has_not() -> None:
    tolerations = [Toleration(key="k", operator="Exists")]
    assert schedulable([taint(), taint(effect="NoExecute")], tolerations)
    assert schedulable([taint(), taint(effect="PreferNoSchedule", key="other")], tolerations)
    for effect in ("NoSchedule", "NoExecute"):
        assert not schedulable([taint(), taint(effect=effect, key="other")], tolerations)
